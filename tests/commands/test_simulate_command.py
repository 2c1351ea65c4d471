"""`sennit simulate`: figures, bound, levers, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sennit.schedule.policy import MODULES
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


@pytest.mark.parametrize("schedule", list(MODULES))
def test_every_schedule(call: Callable, schedule: str) -> None:
    words = f"--space cv.c3 --workers 4 -M 4 --subnets 8 --schedule {schedule} --json"
    held = call("simulate", *words.split()).json
    assert 0 <= held["bubble_at_bound"] <= held["bubble"] < 1 and held["subnets"] == 8
    assert held["makespan"] >= max(held["bounds"].values())


def test_a_space_of_any_size(call: Callable) -> None:
    held = call(
        "simulate", *"--space 64x1 --workers 64 --schedule 1f1b --sync bulk:1 -M 64 --subnets 1 --json".split()
    ).json
    assert held["tasks"] == 2 * 64 * 64 and held["bubble"] == pytest.approx(63 / 127)


def test_links_and_memory_bind(call: Callable, tmp_path: Path) -> None:
    words = "simulate --space cv.c3 --workers 4 -M 4 --schedule pipedream --subnets 10 --no-levers --json".split()
    free = call(*words).json
    slow = call(*words, "--out-bytes", "8", "--bandwidth", "1", "--latency", "0.1").json
    assert slow["binds"] == "links" and slow["makespan"] > 5 * free["makespan"]
    words[words.index("pipedream")] = "tap"
    free = call(*words).json
    tight = call(*words, "--held-bytes", "1", "--memory", "2").json
    assert tight["binds"] == "memory" and max(tight["peak_bytes"]) <= 2 and tight["bubble"] > free["bubble"]
    words[words.index("tap")] = "pipedream"
    free = call(*words).json
    (tmp_path / "c.toml").write_text("[[links]]\nbandwidth = 1.0\nlatency = 0.1\n")
    assert call(*words, "--out-bytes", "8", "--cluster", str(tmp_path / "c.toml")).json == slow
    fetched = call(*words, "--swap-bytes", "4", "--cluster", str(tmp_path / "s.toml"))
    assert fetched.exit == 2
    (tmp_path / "s.toml").write_text("[swap]\nbandwidth = 8.0\n")
    assert call(*words, "--swap-bytes", "4", "--cluster", str(tmp_path / "s.toml")).json["bubble"] > free["bubble"]


def test_the_best_number_in_flight(call: Callable) -> None:
    words = "simulate --space cv.c3 --workers 4 -M 2 --chunks 4 --split --subnets 30 --no-levers --json".split()
    tried = {n: call(*words, "--in-flight", str(n)).json["bubble"] for n in (1, 2, 3, 4, 6, 8, 12)}
    best = call(*words, "--in-flight", "best").json
    assert best["bubble"] == tried[best["in_flight"]] <= min(tried.values()) + 0.001
    assert all(tried[n] > min(tried.values()) + 0.001 for n in tried if n < best["in_flight"])
    assert call(*words).json == best


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--space nlp.c9", "none of nlp.c0"),
        ("--space 0x4", "such as 64x24"),
        ("--space cv.c3 --workers 8 --chunks 5", "at most 4 chunks"),
        ("--space cv.c3 --workers 0", "workers must be at least 1"),
        ("--space cv.c3 --in-flight -1", "--in-flight must be at least 1"),
        ("--space cv.c3 --schedule best", "there are csp, naspipe, gpipe"),
        ("--space cv.c3 --schedule tap --sync csp", "tap runs under asp, not under --sync csp"),
        ("--space cv.c3 --schedule 1f1b --split", "take zero-bubble"),
        ("--space cv.c3 --schedule gpipe --shared delayed:2", "belongs to --sync csp"),
        ("--space cv.c3 --schedule gpipe --chunks 2", "leave out --chunks"),
        ("--space cv.c3 --schedule gpipe --release layer", "knows stages only"),
        ("--space cv.c3 --warmup 2,1", "no warm-up to set"),
        ("--space cv.c3 --workers 2 --sizes 16,15", "sum to 31, the space has 32"),
        ("--space cv.c3 --workers 2 --sizes 16,8,8", "3 sizes do not fit 2 stages"),
        ("--space cv.c3 --workers 2 --schedule 1f1b --warmup 1,2", "none above the one before it"),
        ("--space cv.c3 --workers 2 --schedule pipedream --warmup 1,2", "none above the one before it; got 1, 2"),
        ("--space cv.c3 --workers 2 --schedule pipedream --sync csp --warmup 1,2", "none above the one before it"),
        ("--space cv.c3 --workers 2 --schedule 1f1b --warmup 1,x", "--warmup must be"),
        ("--space cv.c3 --sync bulk:0", "bulk:K with K >= 1"),
        ("--space cv.c3 --held-bytes 9 --memory 1", "give it more memory"),
        ("--space cv.c3 --latency -1", "latency of at least 0"),
        ("--space cv.c3 --shared delayed:1", "K >= 2"),
    ],
)
def test_refused(call: Callable, words: str, said: str) -> None:
    done = call("simulate", *words.split())
    assert done.exit == 2 and said in done.err
