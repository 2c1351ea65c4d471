"""The report page in a real browser, from disk: what its script draws and says, by mouse, touch and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser import Browser, Tab, chromium

from sennit.trace.access_order import LayerOrder
from sennit.trace.events import Counted, Trace
from sennit.trace.html import write_page
from sennit.trace.idle import Idleness
from sennit.trace.page_data import Content, Facts, page_data
from sennit.trace.span import Span

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="no Chromium here; on Debian: apt-get install chromium"),
]

EVIL = "</script><script>document.documentElement.dataset.errors = 'owned'</script><img src=x onerror=alert(1)>&amp;"
SPANS = [  # worker 0   F0 0-10   F1 10-20 ......... B0 40-60
    Span(0, "F", 0, 0, 0, 0.0, 10.0),  # worker 1   ......... F0 12-25 . B0 25-38
    Span(0, "F", 1, 0, 0, 10.0, 20.0),
    Span(0, "B", 0, 0, 0, 40.0, 60.0, 39.0, 38.0, "gradient", "", "1B0.0"),
    Span(1, "F", 0, 0, 1, 12.0, 25.0, 11.0, 10.0, "value", "", "0F0.0"),
    Span(1, "B", 0, 0, 1, 25.0, 38.0, 25.0, 25.0, "gradient", "loss", "1F0.0"),
]
TRACE = Trace({"workers": 2, "unit": "s"}, SPANS, [Counted(EVIL, 0, t, t) for t in (1.0, 2.0)])
GUTTER = 30
"""Pixels left of the tasks, where the workers' numbers stand."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "small.html"
    layers = {
        EVIL: LayerOrder([(0, -1, 0, 0, 1), (3, 0, 1, 3, 1)]),
        "blocks.0": LayerOrder([(y, y - 1, y % 2, y, y % 2) for y in range(40)], 7),
    }
    content = Content(
        EVIL, EVIL, [(EVIL, EVIL)], TRACE, losses=[3.0, float("nan"), 2.0, 1.0] * 30, layers=layers,
        evaluations=[{"seq_id": 60, "metric": "accuracy", "mean": 0.5, "best": 0.75}],
        facts=[Facts("Hashes", [(EVIL, "a" * 64)]), Facts("Recipe", text=EVIL)],
    )  # fmt: skip
    write_page(path, page_data(content))
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 workers, 102,400 tasks in a chain from worker to worker."""
    spans = [
        Span(w, "F", y, 0, w, w + 3.0 * y, w + 3.0 * y + 2, w + 3.0 * y, w + 3.0 * y, "value", "", f"{w - 1}F{y}.0")
        for w in range(64)
        for y in range(1600)
    ]
    path = tmp_path_factory.mktemp("pages") / "large.html"
    write_page(path, page_data(Content("large", trace=Trace({"workers": 64}, spans))))
    return path


def told(tab: Tab) -> str:
    return tab.value("document.getElementById('details').textContent")


def place(tab: Tab, worker: int, time: float, makespan: float = 60.0) -> tuple[float, float]:
    """Where the middle of a row is in the window, at a time of the whole trace."""
    tab.value("document.getElementById('timeline').scrollIntoView()")
    box = tab.value("(({x, y, width}) => [x, y, width])(document.getElementById('timeline').getBoundingClientRect())")
    return box[0] + GUTTER + (box[2] - GUTTER) * time / makespan, box[1] + 34 * worker + 17


def drawn(tab: Tab) -> tuple[int, int, int]:
    data = "document.getElementById('timeline').dataset"
    return tuple(int(tab.value(f"{data}.{name}")) for name in ("drawn", "spans", "rows"))  # type: ignore[return-value]


def window(tab: Tab) -> str:
    return tab.value("document.getElementById('window').textContent")


def test_everything_is_drawn_and_nothing_goes_wrong(browser: Browser, small: Path) -> None:
    tab = browser.open(small, 1400, 900)
    assert tab.problems() == [] and tab.value("document.documentElement.dataset.errors") == "0"
    assert drawn(tab) == (5, 5, 2)
    hidden = tab.value("[...document.querySelectorAll('section[hidden]')].map((s) => s.id)")
    assert hidden == []
    assert tab.value("document.querySelectorAll('#bubble-bars .track').length") == 2
    intervals = len(Idleness.of(TRACE).long())
    assert tab.value("document.querySelectorAll('#idle-table tr').length") == 1 + intervals
    assert tab.value("document.getElementById('loss-chart').dataset.points") == "120"
    assert tab.value("document.getElementById('held-chart').dataset.most") == "3"  # of F0, F1 and F0 on worker 1


def test_every_part_of_the_bars_is_in_the_legend(browser: Browser, small: Path) -> None:
    """`ramp-up` and `ramp-down` were in none."""
    tab = browser.open(small, 1400, 900)
    parts = "[...document.querySelectorAll('#bubble-bars .track div')].map((part) => part.title.split(':')[0])"
    legend = "[...document.querySelectorAll('#legend li')].filter((line) => line.querySelector('i'))"
    named = tab.value(f"{legend}.map((line) => line.textContent)")
    there = set(tab.value(parts))
    assert {"ramp-up", "ramp-down"} <= there <= set(named) and len(named) == len(set(named))
    colour = "(found) => getComputedStyle(found).backgroundColor"
    for part in there:
        bar = f"[...document.querySelectorAll('#bubble-bars .track div')].find((b) => b.title.startsWith('{part}:'))"
        swatch = f"{legend}.find((line) => line.textContent === '{part}').querySelector('i')"
        assert tab.value(f"({colour})({bar})") == tab.value(f"({colour})({swatch})")


def test_what_fingers_press_is_large_enough_on_a_phone(browser: Browser, small: Path) -> None:
    tab = browser.open(small, 400, 800)
    sizes = tab.value(
        "[...document.querySelectorAll('button, select')].map((e) => e.getBoundingClientRect())"
        ".filter((box) => box.width).map((box) => [box.width, box.height])"
    )
    assert len(sizes) > 6 and all(wide >= 40 and tall >= 40 for wide, tall in sizes), sizes


def test_texts_from_outside_stay_texts(browser: Browser, small: Path) -> None:
    tab = browser.open(small, 1400, 900)
    assert tab.value("document.title").startswith(EVIL) and tab.value("document.scripts.length") == 2
    assert tab.value("document.images.length") == 0
    for place_of in ("title", "subtitle", "tiles", "facts", "counters", "access-group"):
        assert EVIL in tab.value(f"document.getElementById('{place_of}').textContent"), place_of
    assert tab.problems() == []


def test_pointing_at_a_task_tells_its_maker_and_its_dependents(browser: Browser, small: Path) -> None:
    tab = browser.open(small, 1400, 900)
    tab.mouse("mouseMoved", *place(tab, 1, 30.0))
    assert told(tab).startswith("1B0.0: backward of subnet 0, micro-batch 0, run 1, on worker 1. 25 s – 38 s, 13 s")
    assert "Last to come: gradient loss made by 1F0.0 on worker 1" in told(tab)
    assert "Waited for by: 0B0.0 (worker 0, gradient)." in told(tab)
    tab.mouse("mouseMoved", *place(tab, 0, 30.0))
    assert told(tab).startswith("0B0.0"), "a gap is told by the task that ended it"
    assert "Its worker was idle for 20 s before." in told(tab)
    tab.mouse("mouseMoved", *place(tab, 1, 50.0))
    assert told(tab).startswith("Point at a task")


def test_keys_move_zoom_and_choose(browser: Browser, small: Path) -> None:
    tab = browser.open(small, 1400, 900)
    tab.value("document.getElementById('timeline').focus()")
    assert window(tab) == "0 s – 60 s"
    tab.key("+")
    assert window(tab) == "12 s – 48 s"
    tab.key("ArrowRight")
    assert window(tab) == "17.4 s – 53.4 s"
    tab.key("0")
    for key, name in (("n", "0F0.0"), ("n", "0F1.0"), ("n", "0B0.0"), ("Enter", "1B0.0"), ("ArrowUp", "0B0.0")):
        tab.key(key)
        assert told(tab).startswith(name), key
    tab.key("Escape")
    assert told(tab).startswith("Point at a task") and window(tab) == "0 s – 60 s"


def test_the_idle_list_and_the_address_lead_to_tasks(browser: Browser, small: Path) -> None:
    tab = browser.open(small, 1400, 900, fragment="#1F0.0")
    assert told(tab).startswith("1F0.0: forward")
    tab.value("document.querySelector('#idle-table button').click()")
    tab.drawn()
    assert told(tab).startswith("0B0.0: backward")


def test_bubble_by_what_all_waited_for_in_the_end(browser: Browser, small: Path) -> None:
    tab = browser.open(small, 1400, 900)
    near = tab.value("document.getElementById('bubble-note').textContent")
    choose = "(s) => { s.value = 'end'; s.dispatchEvent(new Event('change')); }"
    tab.value(f"({choose})(document.getElementById('bubble-view'))")
    end = tab.value("document.getElementById('bubble-note').textContent")
    assert "gradient 15 %" in near and "gradient 15 %" in end, "18 of 120; its maker was running already"
    assert tab.value("document.querySelectorAll('#bubble-bars .track').length") == 2


def test_a_layer_can_be_chosen(browser: Browser, small: Path) -> None:
    tab = browser.open(small, 1400, 900)
    rows = "document.getElementById('access-table').dataset.rows"
    assert tab.value(rows) == "2"
    choose = "(s) => { s.value = 'blocks.0'; s.dispatchEvent(new Event('change')); }"
    tab.value(f"({choose})(document.getElementById('access-group'))")
    assert tab.value(rows) == "40" and "7 earlier" in tab.value("document.getElementById('access-note').textContent")
    assert tab.value("document.querySelectorAll('#access-chart circle').length") == 40
    assert tab.value("document.querySelectorAll('#access-chart .edge').length") == 39, (
        "each read what the one before left"
    )


def test_a_phone(browser: Browser, small: Path) -> None:
    tab = browser.open(small, 400, 800)
    assert tab.value("document.documentElement.scrollWidth") <= 400
    x, y = place(tab, 0, 50.0)
    tab.touch("touchStart", (x, y))
    tab.touch("touchEnd")
    assert told(tab).startswith("0B0.0")
    tab.touch("touchStart", (x - 20, y), (x + 20, y))
    for spread in (40, 80):
        tab.touch("touchMove", (x - spread, y), (x + spread, y))
    tab.touch("touchEnd")
    first, last = (float(t.removesuffix(" s")) for t in window(tab).split(" – "))
    assert 0 < first < 50 < last and last - first < 40
    assert tab.problems() == []


def test_a_hundred_thousand_tasks(browser: Browser, large: Path) -> None:
    tab = browser.open(large, 1400, 900)
    shown, spans, rows = drawn(tab)
    assert (spans, rows) == (102_400, 64)
    assert 64 * 600 < shown <= 64 * 1400, "about one for each pixel of a row"
    tab.value("location.hash = '#5F10.0'")
    tab.wait("document.getElementById('details').textContent.startsWith('5F10.0')")
    assert window(tab) == "30 – 42", "six times its two"
    tab.value("document.getElementById('timeline').focus()")
    tab.key("0")
    for _ in range(10):
        tab.key("+")
    length = (1600 * 3 + 62) * 0.6**10
    shown, _, _ = drawn(tab)
    assert 64 * length / 3 * 0.8 < shown < 64 * (length / 3 + 2), "those of the window, and no others"
    assert tab.problems() == []


def test_dark_and_printed(browser: Browser, small: Path) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    light, dark = browser.open(small, 1400, 900), browser.open(small, 1400, 900, dark=True)
    assert light.value(back) == "rgb(255, 255, 255)" != dark.value(back)
    dark.ask("Emulation.setEmulatedMedia", media="print")
    assert dark.value(back) == "rgb(255, 255, 255)", "on paper"
    assert dark.ask("Page.printToPDF")["data"]
