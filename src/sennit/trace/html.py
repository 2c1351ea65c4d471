"""`write_page`: one HTML file with everything in it. It opens from disk, loads nothing and sends nothing.

Data goes in as JSON in a script element that the browser does not run. In it `<`, `>` and `&` are written as escapes,
so no text from outside, a layer's name for instance, can end the element or begin another. The page's own script puts
such texts into text nodes alone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from sennit.errors import UserError

SCRIPTS = ("data", "words", "paint", "timeline", "charts", "sections", "access", "main")
"""In this order."""

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def page(data: Mapping[str, Any]) -> str:
    """The page that shows `data`, which is what `page_data` makes."""
    files = resources.files("sennit.trace") / "page"
    script = "\n".join((files / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    text = (files / "page.html").read_text(encoding="utf-8")
    text = text.replace("@STYLE@", (files / "page.css").read_text(encoding="utf-8"))
    text = text.replace("@SCRIPT@", f"(() => {{\n'use strict';\n{script}\n}})();")
    return text.replace("@DATA@", embedded(data))


def embedded(data: Mapping[str, Any]) -> str:
    """JSON without a character that means something in HTML; ASCII, so no line separators of JavaScript either."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def write_page(path: Path, data: Mapping[str, Any]) -> None:
    """Write the page, whole or not at all.

    Raises:
        UserError: it cannot be written there.
    """
    aside = path.with_name(f".{path.name}.writing")
    try:
        aside.write_text(page(data), encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise UserError(f"{path} cannot be written: {error.strerror}; name another place with --html") from error
