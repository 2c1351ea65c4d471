"""`sennit simulate`: figures, bound, levers, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sennit.trace.span import Span


def test_figures_bound_and_levers(call: Callable) -> None:
    words = "--space cv.c3 --workers 4 -M 4 --split --chunks 4 --in-flight 2 --subnets 40"
    held = call("simulate", *words.split(), "--json").json
    assert 0 <= held["bubble_at_bound"] <= held["bubble"] < 0.1
    assert held["bound"] <= held["makespan"] and held["binds"] in ("dependencies", "devices")
    assert held["subnets"] == 40 and held["tasks"] == 40 * 32 * 4 * 3
    changes = {lever["change"] for lever in held["levers"]}
    assert {"-M 8", "--sampler fair", "--chunks 5", "--in-flight 1"} <= changes
    assert call("simulate", *words.split(), "--json").json == held


def test_the_papers_order_is_bound_by_dependencies(call: Callable) -> None:
    done = call("simulate", "--space", "cv.c3", "--workers", "8", "--schedule", "naspipe", "--subnets", "100")
    assert done.out.splitlines()[0].startswith("bubble 0.8")
    assert "dependencies bind" in done.out and "--release layer" in done.out


def test_a_trace_holds_every_task(call: Callable, tmp_path: Path) -> None:
    words = "--space cv.c3 --workers 4 -M 2 --split --in-flight 2 --subnets 10 --no-levers"
    held = call("simulate", *words.split(), "--trace", str(tmp_path / "t.jsonl"), "--json").json
    first, *lines = map(json.loads, (tmp_path / "t.jsonl").read_text().splitlines())
    assert {**first["facts"], **held} == first["facts"] and first["facts"]["workers"] == 4
    spans = [Span(**line) for line in lines]
    assert len(set(spans)) == held["tasks"] and max(span.end for span in spans) == pytest.approx(held["makespan"])
    done = call("simulate", *words.split(), "--trace", str(tmp_path / "none" / "t.jsonl"))
    assert done.exit == 2 and "cannot write" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--space nlp.c9", "none of nlp.c0"),
        ("--space cv.c3 --workers 8 --chunks 5", "at most 4 chunks"),
        ("--space cv.c3 --workers 0", "workers must be at least 1"),
        ("--space cv.c3 --in-flight -1", "--in-flight must be at least 1"),
        ("--space cv.c3 --shared delayed:1", "K >= 2"),
    ],
)
def test_refused(call: Callable, words: str, said: str) -> None:
    done = call("simulate", *words.split())
    assert done.exit == 2 and said in done.err
