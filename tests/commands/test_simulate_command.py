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


def test_a_candidate_costs_no_memory_and_a_bulk_may_be_longer_than_the_stream(call: Callable) -> None:
    many = call("simulate", *"--space 48x1000000000 --subnets 4 --json".split()).json
    assert many["tasks"] == 4 * 48 * 2 and "--sampler fair" not in {lever["change"] for lever in many["levers"]}
    words = "simulate --space cv.c3 --workers 4 --subnets 8 --schedule gpipe --in-flight 8 --no-levers --json --sync"
    assert call(*words.split(), "bulk:99999999").json["bubble"] == call(*words.split(), "bulk:8").json["bubble"]


def test_numbers_without_a_limit(call: Callable) -> None:
    words = "simulate --space cv.c3 --subnets 8 --no-levers --json".split()
    free = call(*words).json
    assert call(*words, "--bandwidth", "inf", "--out-bytes", "1").json["makespan"] == free["makespan"]
    assert call(*words, "--memory", "inf", "--held-bytes", "1").json["makespan"] == free["makespan"]
    assert call(*words, "--latency", "1e9").json["makespan"] > 1e9


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--space nlp.c9", "none of nlp.c0"),
        ("--space 0x4", "such as 64x24"),
        ("--space cv.c3 --workers 8 --chunks 5", "at most 4 chunks"),
        ("--space cv.c3 --workers 0", "--workers must be at least 1"),
        ("--space cv.c3 --workers 33", "at most 32 workers"),
        ("--space cv.c3 --workers 17 --schedule zbv", "at most 16 workers"),
        ("--space cv.c3 -M 0", "-M must be at least 1, got 0"),
        ("--space cv.c3 --subnets 0", "--subnets must be at least 1, got 0"),
        ("--space cv.c3 --in-flight -1", "--in-flight must be a number of at least 1, or best; got '-1'"),
        ("--space cv.c3 --in-flight many", "--in-flight must be a number of at least 1, or best; got 'many'"),
        ("--space cv.c3 --sizes ,", "--sizes must be numbers of at least 1 with commas between, such as 4,3,2,1; got"),
        ("--space cv.c3 --release None", "--release must be layer or stage, got 'None'"),
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
        ("--space cv.c3 --latency -1", "--latency must be at least 0 and at most 1e+09 seconds, got -1"),
        ("--space cv.c3 --latency inf", "--latency must be at least 0 and at most 1e+09 seconds, got inf"),
        ("--space cv.c3 --latency 1e308", "--latency must be at least 0 and at most 1e+09 seconds, got 1e+308"),
        ("--space cv.c3 --bandwidth nan", "--bandwidth must be above 0 (inf: no limit), got nan"),
        ("--space cv.c3 --bandwidth 0", "--bandwidth must be above 0"),
        ("--space cv.c3 --bandwidth 1e-320 --out-bytes 1", "--out-bytes: 1 bytes take inf seconds"),
        ("--space cv.c3 --memory nan", "--memory must be above 0 (inf: no limit), got nan"),
        ("--space cv.c3 --out-bytes nan", "--out-bytes must be at least 0 and at most 1e+18, got nan"),
        ("--space cv.c3 --held-bytes inf", "--held-bytes must be at least 0 and at most 1e+18, got inf"),
        ("--space cv.c3 --swap-bytes nan", "--swap-bytes must be at least 0 and at most 1e+18, got nan"),
        ("--space cv.c3 --swap-bytes 1", "describe it as [swap] in a --cluster"),
        ("--space 1000000000x1 --workers 1", "blocks of --space must be at most 100,000"),
        ("--space 99999999999999999999999x2", "blocks of --space must be at most 100,000"),
        ("--space 8x99999999999999999999999", "candidates of --space must be at most 1,000,000,000"),
        ("--space 48x1000000000 --sampler fair", "Use --sampler uniform"),
        ("--space cv.c3 --schedule zbv --sync bulk:99999999", "Use a bulk of at most 100000 subnets (bulk:K)"),
        ("--space cv.c3 --schedule gpipe --sync bulk:99999999", "99,999,999 subnets (bulks of 99,999,999)"),
        ("--space cv.c3 --shared delayed:1", "K >= 2"),
    ],
)
def test_refused(call: Callable, words: str, said: str) -> None:
    done = call("simulate", *words.split())
    assert done.exit == 2 and said in done.err


def test_stages_of_several_workers(call: Callable) -> None:
    words = "simulate --space nlp.c3 --workers 4 -M 4 --shared strict --subnets 20 --in-flight 1 --no-levers".split()
    found = [call(*words, "--replicas", str(r), "--json").json for r in (1, 2, 4)]
    assert [held["replicas"] for held in found] == [1, 2, 4]
    assert found[0]["bubble"] > found[1]["bubble"] > found[2]["bubble"] == pytest.approx(0.0, abs=1e-9)
    assert "2 workers a stage" in call(*words, "--replicas", "2").out
    for options, said in (
        ("--replicas 3", "--replicas 3: every stage has as many workers"),
        ("--replicas 2 --schedule 1f1b", "order of stages with one worker each"),
        ("--replicas 2 --sizes 10,10,10,18", "4 sizes do not fit 2 stages"),
        ("--replicas 2 --sync asp:stash --in-flight 2", "each layer must stay with one"),
    ):
        done = call(*words, *options.split())
        assert done.exit == 2 and said in done.err
