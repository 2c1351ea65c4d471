"""Every figure of a run says which subnets it is of, however many calls the run took, and what it ran on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.commands.test_report_command import changed, data_of

from sennit.commands.counted import counted_rows
from sennit.runtime.calls import OF_CALL, earlier_calls, graphs_of
from sennit.trace.events import Counted, Trace

COUNTED = ("first", "steps", "seconds", "workers", "engine", "bubble", "subnets_per_s")


def result_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "result.json").read_text())


def words_of(text: str) -> str:
    """Without the line breaks of a table."""
    return " ".join(re.sub("[│┃]", " ", text).split())


def test_a_resumed_run_keeps_what_earlier_calls_counted(call: Callable, workplace: Path) -> None:
    """Was the number of subnets of the whole run beside the seconds of the last call."""
    words = ("train", "r.toml", "--out", "o")
    call(*words, "--steps", "6", "--workers", "2", "--budget", "0.001")
    one = result_of(Path("o"))
    call(*words, "--steps", "17", "--resume", "--engine", "plain")
    two = result_of(Path("o"))
    said = call(*words, "--steps", "23", "--resume", "--workers", "3")
    three = result_of(Path("o"))
    assert [(r["first"], r["steps"]) for r in (one, two, three)] == [(0, 6), (6, 17), (17, 23)]
    assert "slots" not in three and one["slots"]["reads"] > 0
    assert three["earlier"] == [{key: r[key] for key in OF_CALL if key in r} for r in (one, two)]
    assert said.out.startswith("o: 23 subnets are there, this call ran the last 6 in ")
    shown = words_of(call("report", "o").out)
    assert "last call subnets 17 to 22: " in shown
    assert "call 1 subnets 0 to 5: " in shown and "call 2 subnets 6 to 16: " in shown
    assert "2 workers; layers: " in shown and "plain loop" in shown
    facts = call("report", "o", "--json").json
    assert facts["earlier"] == three["earlier"]
    assert {key: facts["last_call"][key] for key in COUNTED} == {key: three[key] for key in COUNTED}
    assert "bubble, last call" in dict(data_of(Path("o/report.html"))["tiles"])


def test_a_call_that_found_nothing_left_counts_nothing(call: Callable, workplace: Path) -> None:
    words = ("train", "r.toml", "--out", "o", "--steps", "3")
    call(*words)
    one = result_of(Path("o"))
    assert "none was left" in call(*words, "--resume").out
    assert "none was left" in call(*words, "--resume").out
    again = result_of(Path("o"))
    assert again["earlier"] == [{key: one[key] for key in OF_CALL if key in one}]
    assert again["first"] == again["steps"] == 3 and again["subnets_per_s"] is None
    assert "no subnet was left: " in words_of(call("report", "o").out)


def kept(first: Any, steps: Any, **more: Any) -> dict[str, Any]:
    return {"first": first, "steps": steps, "seconds": 1.0, "workers": 1, **more}


@pytest.mark.parametrize(
    ("held", "start", "found"),
    [
        (kept(0, 6), 6, [(0, 6)]),
        (kept(6, 17, earlier=[kept(0, 6)]), 17, [(0, 6), (6, 17)]),
        (kept(6, 17, earlier=[kept(0, 6)]), 30, [(0, 6), (6, 17)]),  # the one in between was killed
        (kept(6, 17, earlier=[kept(0, 6)]), 10, [(0, 6)]),  # gone on from an earlier checkpoint
        (kept(6, 17, earlier=[kept(0, 6)]), 0, []),
        (kept(3, 17, earlier=[kept(0, 6)]), 17, [(0, 6)]),
        (kept("0", 6), 6, []),
        (kept(0, 6, earlier="none"), 6, [(0, 6)]),
        (kept(0, 6, earlier=[1, None, {}]), 6, [(0, 6)]),
        ({"steps": 6}, 6, []),  # of a version that did not say
    ],
)
def test_calls_whose_subnets_are_there(
    held: dict[str, Any], start: int, found: list[tuple[int, int]], tmp_path: Path
) -> None:
    (tmp_path / "result.json").write_text(json.dumps(held))
    calls = earlier_calls(tmp_path / "result.json", start)
    assert [(c["first"], c["steps"]) for c in calls] == found and all("earlier" not in c for c in calls)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"first": 0, "steps": 6, "seconds": 1e999}', "[" * 100_000])
def test_a_damaged_result_of_an_earlier_call_ends_nothing(text: str, call: Callable, workplace: Path) -> None:
    call("train", "r.toml", "--out", "o", "--steps", "6")
    Path("o/result.json").write_text(text)
    assert call("train", "r.toml", "--out", "o", "--steps", "8", "--resume").exit == 0
    assert result_of(Path("o"))["earlier"] == []


def test_the_budget_is_told_of(call: Callable, workplace: Path) -> None:
    said = call("train", "r.toml", "--out", "o", "--steps", "6", "--workers", "2", "--budget", "0.001").out
    slots = result_of(Path("o"))["slots"]
    hits = f"{100 * slots['hit_rate']:.1f} % of reads were there already"
    assert f"  layers    {hits}, " in said
    shown = words_of(call("report", "o").out)
    assert hits in shown and "2 workers on cpu, budget 0.001 GiB" in shown
    assert dict(data_of(Path("o/report.html"))["tiles"])["reads that hit"] == f"{slots['hit_rate']:.3f}"


def test_replicas_are_told_of(call: Callable, workplace: Path) -> None:
    words = ("train", "r.toml", "--out", "o", "--steps", "4", "--workers", "2", "--replicas", "2")
    assert "2 workers, 2 a stage" in call(*words).out
    assert "2 workers, 2 a stage on cpu" in words_of(call("report", "o").out)
    assert dict(data_of(Path("o/report.html"))["tiles"])["workers"] == "2 workers, 2 a stage"


def test_graphs_and_hosts_are_told_of(call: Callable, run: Path) -> None:
    """Of a run elsewhere: what its result has."""
    graphs = {"captured": 7, "replayed_steps": 300, "eager_steps": 100, "kept_steps": 200}
    hosts = {
        "hosts": 2, "pushes": 44, "pushed_bytes": 2**21, "gathered_bytes": 2**20, "tensor_bytes": 2**22, "stall_s": 0.5,
        "gather_s": 0.1,
    }  # fmt: skip
    changed(run / "run.json", "hosts", 2)
    changed(run / "run.json", "placement.executor", "graphs")
    changed(run / "run.json", "placement.activations", "keep")
    changed(run / "result.json", "graphs", graphs)
    changed(run / "result.json", "hosts", hosts)
    changed(run / "result.json", "tasks_run_again", 3)
    shown = words_of(call("report", run).out)
    assert "2 workers of 2 hosts on cpu, executor graphs, activations kept" in shown
    assert "graphs 7 captured; 300 steps replayed, 100 run eagerly; 200 of the replayed kept what they made" in shown
    assert "hosts 2: 44 versions pushed (2 MiB), 4 MiB of values and gradients, 1 MiB at cuts; 0.5 s waited" in shown
    assert "3 tasks ran again" in shown
    tiles = dict(data_of(run / "report.html")["tiles"])
    assert tiles["steps replayed"] == "0.750" and tiles["hosts"] == "2"
    changed(run / "result.json", "graphs", {"captured": 7})
    assert "result.json is damaged" in call("report", run).err


def test_nothing_is_told_of_what_there_was_not() -> None:
    assert counted_rows({"first": 0, "steps": 6, "seconds": 1.0}) == []


def test_what_became_of_steps_is_summed_over_cuts_and_workers() -> None:
    names = ("replayed steps", "eager steps", "graphs")
    counters = [Counted(name, w, float(cut), 10.0 * cut + w) for name in names for w in (0, 1) for cut in (1, 2)]
    assert graphs_of(Trace({}, [], [*counters, Counted("another", 0, 0.0, 5.0)])) == {
        "captured": 62, "replayed_steps": 62, "eager_steps": 62
    }  # fmt: skip
    kept = graphs_of(Trace({}, [], [*counters, Counted("kept steps", 0, 1.0, 3.0), Counted("kept steps", 1, 2.0, 4.0)]))
    assert kept is not None and kept["kept_steps"] == 7
    assert graphs_of(Trace({}, [], [Counted("another", 0, 0.0, 5.0)])) is None
    assert graphs_of(Trace({}, [], [*counters, Counted("graphs", 0, 3.0, float("inf"))])) is None


@pytest.mark.parametrize(("replicas", "said"), [(1, False), (2, False), (3, False), (4, True), (6, True)])
def test_replicas_that_a_subnet_has_nothing_for_are_told_of(
    replicas: int, said: bool, call: Callable, workplace: Path
) -> None:
    """Was silent: such workers are idle for all of a subnet, and of three micro-batches that is every fourth."""
    words = ("--workers", str(replicas), "--replicas", str(replicas))
    done = call("train", "r.toml", "--out", "o", "--steps", "2", *words)
    wanted = f"--replicas {replicas}: a subnet has 3 micro-batches, so of the {replicas} workers of a stage"
    assert done.exit == 0 and (wanted in done.err) == ("use --replicas 3" in done.err) == said
    done = call("simulate", "--space", "cv.c3", "-M", "3", "--subnets", "4", "--no-levers", "--json", *words)
    assert done.exit == 0 and (wanted in done.err) == said and done.json["replicas"] == replicas


def test_layers_that_come_and_go_without_a_budget_are_not_said_to_have_one() -> None:
    """On GPUs, layers of several workers do."""
    slots = {"hit_rate": 0.5, "fetched_bytes": 2**20, "written_bytes": 0, "stall_s": 0.0}
    ((name, said),) = counted_rows({"slots": slots})
    assert "budget" not in name + said and said.startswith("50.0 % of reads were there already")


@pytest.mark.parametrize(
    ("loading", "said"),
    [(0.0, ""), (0.3, ""), (0.9, "4% of the workers' time went by with loading batches"), (9.0, "45% of the workers'")],
)
def test_loading_is_told_of_where_it_takes_part_of_the_time(loading: float, said: str) -> None:
    rows = dict(counted_rows({"workers": 2, "seconds": 10.0, "loading_s": loading}))
    assert rows.get("data", "").startswith(said) and bool(rows) == bool(said)
    assert ("--loaders" in rows.get("data", "")) == (loading > 2)


SLOW = """
import time
from nets import Points


class Slow(Points):
    def __getitem__(self, i):
        time.sleep(0.005)
        return super().__getitem__(i)
"""


def test_a_slow_data_set_is_seen(call: Callable, workplace: Path) -> None:
    """Was nowhere: loading is part of the tasks that need a batch, so the bubble of a run that waited for its data most
    of the time was small."""
    (workplace / "slow.py").write_text(SLOW)
    text = (workplace / "r.toml").read_text()
    (workplace / "s.toml").write_text(text.replace("nets.py:Points", "slow.py:Slow"))
    done = call("train", "s.toml", "--out", "slow", "--steps", "6", "--workers", "1", "--json")
    assert done.json["loading_s"] > 6 * 12 * 0.005, "of 12 samples each"
    assert "time went by with loading batches; more --loaders" in words_of(call("report", "slow").out)


def test_a_call_that_runs_nothing_tells_nothing_of_loading(call: Callable, workplace: Path) -> None:
    """Was told what an earlier call took, by this one's seconds: 974 % of them."""
    first = call("train", "r.toml", "--out", "run", "--steps", "4", "--workers", "2", "--json")
    again = call("train", "r.toml", "--out", "run", "--steps", "4", "--workers", "2", "--resume", "--json")
    assert "loading_s" in first.json and "loading_s" not in again.json
    assert again.json["weights_sha256"] == first.json["weights_sha256"]
