"""Opens report pages from disk in Chromium and writes pictures. Usage: shots.py FOLDER PAGE...

Prints one JSON object per page and width: tasks, drawn slices, rows of idle intervals, problems, width needed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.browser import Browser

WIDTHS = {1400: 900, 400: 800}

FACTS = """({
  tasks: Number(document.getElementById('timeline').dataset.spans),
  drawn: Number(document.getElementById('timeline').dataset.drawn),
  intervals: Number(document.getElementById('idle-table').dataset.intervals),
  unnamed: [...document.querySelectorAll('#idle-table td:last-child')].filter((c) => !c.textContent.trim()).length,
  wide: document.documentElement.scrollWidth,
  bytes: document.documentElement.outerHTML.length,
})"""

folder = Path(sys.argv[1])
with Browser() as browser:
    for page in map(Path, sys.argv[2:]):
        for width, height in WIDTHS.items():
            for dark in (False, True):
                tab = browser.open(page, width, height, dark=dark)
                tab.screenshot(folder / f"{page.stem}-{width}{'-dark' if dark else ''}.png")
            tab.value("document.getElementById('idle-more').click()")
            print(json.dumps({"page": page.stem, "width": width, **tab.value(FACTS), "problems": tab.problems()}))
