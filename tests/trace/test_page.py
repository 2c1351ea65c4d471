"""The report page: its data is the trace's, it is one file, and no text from outside can become markup."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sennit.errors import UserError
from sennit.trace.access import Access
from sennit.trace.access_order import MOST, MOST_ROWS, LayerOrder, access_order
from sennit.trace.columns import ELSEWHERE, NOBODY, TYPES, columns
from sennit.trace.events import Counted, Trace
from sennit.trace.html import SCRIPTS, embedded, page, write_page
from sennit.trace.page_data import MOST_LOSSES, Content, Facts, page_data
from sennit.trace.span import Span

EVIL = '</script><script>alert(1)</script><!-- "&amp;\u2028'
SPANS = [
    Span(0, "F", 0, 0, 0, 5.0, 6.0, 5.0, 5.0),
    Span(0, "B", 0, 0, 0, 9.0, 10.0, 8.5, 8.0, "gradient", "", "1B0.0"),
    Span(1, "F", 0, 0, 1, 6.5, 7.0, 6.25, 6.0, "value", "", "0F0.0"),
    Span(1, "B", 0, 0, 1, 7.0, 8.0, 7.0, 7.0, "gradient", "loss", "1F0.0"),
    Span(1, "F", 1, 0, 1, 8.25, 9.0, 8.0, 8.0, "version", EVIL, "3B9.9"),
]
TRACE = Trace({"workers": 2, "unit": "s"}, SPANS, [Counted("bytes", 1, 6.0, 10.0), Counted("bytes", 1, 7.0, 12.0)])


def unpacked(column: dict[str, str]) -> list[float]:
    return np.frombuffer(base64.b64decode(column["base64"]), dtype=TYPES[column["type"]]).tolist()


def test_columns_hold_the_spans() -> None:
    held = columns(TRACE)
    found = {name: unpacked(column) for name, column in held["columns"].items()}
    begins = min(span.start for span in SPANS)
    for i, span in enumerate(SPANS):
        row = {name: values[i] for name, values in found.items()}
        assert (row["worker"], row["seq"], row["micro"], row["run"]) == (
            span.worker,
            span.seq_id,
            span.micro_batch,
            span.run,
        )
        assert held["kinds"][row["kind"]] == span.kind and held["causes"][row["cause"]] == span.cause
        assert held["of"][row["of"]] == span.of
        assert [row[name] + begins for name in ("start", "ready", "left")] == [span.start, span.ready, span.left]
        assert row["length"] == span.end - span.start
    assert found["by"] == [NOBODY, 3, 0, 2, ELSEWHERE]
    assert held["n"] == 5 and held["workers"] == 2


def test_data_of_a_trace() -> None:
    data = page_data(Content("t", trace=TRACE))
    assert data["bubble"]["makespan"] == pytest.approx(5.0)
    idle = {(i["worker"], i["start"]): i for i in data["idle"]}
    assert idle[0, 1.0]["end"] == pytest.approx(4.0) and idle[0, 1.0]["before"] == 1
    assert idle[0, 1.0]["words"] == (
        "waited for the gradient from 1B0.0 on worker 1; in the end for the loss from 1F0.0 on worker 1"
    )
    assert idle[1, 4.0]["before"] == -1
    assert data["counters"] == [{"name": "bytes", "workers": [{"worker": 1, "x": [1.0, 2.0], "y": [10.0, 12.0]}]}]
    assert data["spans"]["note"] == "5 tasks of 2 workers."
    later = page_data(Content("t", trace=Trace(TRACE.facts, SPANS, left_out=1234, calls=2)))
    assert "1,234 before them" in later["spans"]["note"] and "last of 2 calls" in later["spans"]["note"]


def test_data_of_a_run_without_a_trace() -> None:
    losses = [float(i) for i in range(2 * MOST_LOSSES + 1)]
    data = page_data(Content("t", losses=losses, evaluations=[{"seq_id": 3, "metric": "a", "mean": float("nan")}]))
    assert data["loss"]["stride"] == 3 and unpacked(data["loss"]["losses"]) == losses[::3]
    assert data["loss"]["evaluations"] == [{"seq_id": 3, "metric": "a", "mean": None, "best": None}]
    assert "spans" not in data and "access" not in data


def accesses(group: str, subnets: int) -> list[Access]:
    log: list[Access] = []
    for y in range(subnets):
        log += [Access(0, "s", group, y, j, phase, "R", y - 1) for phase in "FB" for j in range(2)]  # type: ignore[arg-type]
        log.append(Access(1, "s", group, y, -1, "U", "W", y))
    return log


def test_order_of_accesses() -> None:
    log = [
        *accesses("a", 3),
        Access(0, "s", "b#buffers", 0, 0, "F", "W", (0, 0)),
        Access(2, "s", "b", 1, 0, "F", "R", -1),
    ]
    order = access_order(reversed(log))
    assert order == {
        "a": LayerOrder([(0, -1, 0, 0, 1), (1, 0, 0, 1, 1), (2, 1, 0, 2, 1)]),
        "b": LayerOrder([(1, -1, 2, None, -1)]),
    }


def test_order_of_accesses_is_bounded() -> None:
    (order,) = access_order(accesses("a", MOST + 10)).values()
    assert len(order.rows) == MOST and order.left_out == 10 and order.rows[0][0] == 10
    many = access_order(a for n in range(400) for a in accesses(f"g{n}", 60))
    assert sum(len(order.rows) for order in many.values()) <= MOST_ROWS


class Elements(HTMLParser):
    """Names and attributes of what a browser would see, and what stands inside scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.inside.append("")

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script":
            self.inside[-1] += data


def read(text: str) -> Elements:
    elements = Elements()
    elements.feed(text)
    return elements


def test_texts_from_outside_cannot_become_markup() -> None:
    content = Content(
        EVIL, EVIL, [(EVIL, EVIL)], TRACE, EVIL, layers={EVIL: LayerOrder([(0, -1, 0, 0, 0)])},
        facts=[Facts(EVIL, [(EVIL, EVIL)], EVIL)],
    )  # fmt: skip
    data = page_data(content)
    elements, harmless = read(page(data)), read(page(page_data(Content("t"))))
    assert [tag for tag, _ in elements.found] == [tag for tag, _ in harmless.found]
    assert json.loads(elements.inside[0]) == json.loads(json.dumps(data))
    assert not set("<>&\u2028") & set(embedded(data))


def test_the_scripts_write_text_nodes_alone_and_load_nothing() -> None:
    folder = Path(__file__).parents[2] / "src" / "sennit" / "trace" / "page"
    scripts = {path.stem: path.read_text() for path in folder.glob("*.js")}
    assert scripts.keys() == set(SCRIPTS)
    for text in scripts.values():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|srcdoc", text)
    whole = page(page_data(Content("t")))
    assert not re.search(r"""(src|href)\s*=|url\(|@import|fetch\(|XMLHttpRequest|import\s*\(""", whole)
    urls = set(re.findall(r"https?://[^\s\"']+", whole))
    assert urls <= {"http://www.w3.org/2000/svg"}, "a name, not an address"
    policy = next(attrs["content"] for tag, attrs in read(whole).found if "http-equiv" in attrs)
    assert policy.startswith("default-src 'none'; ")


def test_everything_with_an_id_that_scripts_ask_for_is_there() -> None:
    whole = page(page_data(Content("t")))
    asked = set(re.findall(r'\bat\("([\w-]+)"\)', whole)) | set(re.findall(r'getElementById\("([\w-]+)"\)', whole))
    ids = [attrs["id"] for _, attrs in read(whole).found if "id" in attrs]
    assert asked <= set(ids) and len(ids) == len(set(ids))


def test_writing_is_whole_or_not_at_all(tmp_path: Path) -> None:
    write_page(tmp_path / "r.html", page_data(Content("t")))
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    with pytest.raises(UserError, match=r"cannot be written: No such file.*; name another place with --html"):
        write_page(tmp_path / "no" / "r.html", {})
