"""`sennit simulate`: figures, bound, levers, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest


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
