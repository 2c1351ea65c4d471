"""The parts of the speed table that compute: what is timed, limits, prices of layers, joined rows, shared weights."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.runs import HASHES
from benchmarks.speed import hops, kept, once
from benchmarks.speed.beside import Seen
from benchmarks.speed.costs import ALIKE, HostCost, Shares, host_cost, idle_of, prices_of, shares_of
from benchmarks.speed.kernels import Look, LookingExecutor, summed
from benchmarks.speed.limit import limit
from benchmarks.speed.rows import LAYERS, Causal, Row, Ways
from benchmarks.speed.table import base_ms, hashes, joined, latest, line, table
from benchmarks.speed.window import Window

from sennit.profile.profile import Kind, Profile
from sennit.recipe import read_recipe
from sennit.supernet.hashes import state_hash
from sennit.supernet.keys import key_for
from sennit.trace.span import Span
from tests.runtime.host_gpu import stand_in
from tests.runtime.host_reach import HostReach

ROOT = Path(__file__).parents[2]


# -- what is timed


def test_only_the_timed_subnets_count_in_order() -> None:
    window = Window(warm=4, sample=4, timed=8, tail=16)
    ends = [100.0 + y for y in range(8)]  # slow before: does not count
    ends += [107.0 + 0.002 * (y + 1) for y in range(8)]
    ends += [900.0] * 16
    ms, parts = window.rate(ends)
    assert ms == pytest.approx(2.0) and parts == pytest.approx([2.0] * 4)
    assert window.rate([*ends[:9], ends[10], ends[9], *ends[11:]])[0] == pytest.approx(2.0)  # one came before another
    assert set(window.sampled).isdisjoint(range(window.begin, window.end))
    assert window.looked_at.start > window.end and window.looked_at.stop < window.steps


def test_what_is_not_there_yet_holds_up_those_behind_it() -> None:
    window = Window(warm=0, sample=4, timed=4, tail=16)
    ends = [1.0, 2.0, 3.0, 4.0, 8.0, 5.0, 6.0, 7.0, *[9.0] * 16]
    assert window.rate(ends) == (pytest.approx(1000.0), pytest.approx([4000.0, 0.0, 0.0, 0.0]))


# -- limits


@pytest.mark.parametrize(
    ("kernel_ms", "workers", "there", "back", "path", "ms", "binds"),
    [
        (40.0, 4, 0.0, 0.0, 5.0, 10.0, "kernels"),
        (40.0, 4, 8e8, 1e6, 5.0, 20.0, "copies"),  # 200 MB on each link of 10 GB/s
        (40.0, 4, 1e6, 8e8, 5.0, 40.0, "copies"),  # back, at half the speed
        (40.0, 4, 1e6, 1e6, 15.0, 15.0, "critical path"),
        (40.0, 1, 0.0, 0.0, 40.3, 40.3, "kernels"),  # all that there is to do, and the way into the pipeline
    ],
)
def test_the_largest_term_binds(
    kernel_ms: float, workers: int, there: float, back: float, path: float, ms: float, binds: str
) -> None:
    found = limit(kernel_ms, workers, there, back, (1e10, 5e9), path)
    assert found.ms == pytest.approx(ms) and found.binds == binds


def test_device_time_is_all_but_copies_over_the_bus() -> None:
    events: list[dict[str, Any]] = [
        {"cat": "kernel", "name": "gemm", "dur": 3000.0},
        {"cat": "gpu_memcpy", "name": "Memcpy DtoD (Device -> Device)", "dur": 1000.0, "args": {"bytes": 7}},
        {"cat": "gpu_memset", "name": "Memset (Device)", "dur": 500.0},
        {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "dur": 9000.0, "args": {"bytes": 100}},
        {"cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "dur": 9000.0, "args": {"bytes": 40}},
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 5.0},
        {"name": "process_name"},
    ]
    found = summed(events, 2)
    assert found == {"kernel_ms": 2.25, "there_bytes": 50.0, "back_bytes": 20.0, "kernels": 1.5}


def test_the_first_and_the_last_of_the_subnets_are_told() -> None:
    told: list[int] = []
    look = SimpleNamespace(subnets=range(3, 5), at=told.append)
    inner = SimpleNamespace(forward=lambda *given: given, counters=lambda: {"x": 1.0})
    executor = LookingExecutor(inner, look, 7, 2)  # type: ignore[arg-type]
    for y in range(6):
        context = SimpleNamespace(key=key_for(7, "step", y, 1))
        assert executor.forward(0, 1, 2, 3, 4, context, "loss", "on_step")[5:] == (context, "loss", "on_step")
    assert told == [3, 5] and executor.counters() == {"x": 1.0}


class FakeProfiler:
    """Saw one kernel."""

    def __init__(self, activities: Any) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        assert self.calls == ["start"]

    def export_chrome_trace(self, file: str) -> None:
        Path(file).write_text(json.dumps({"traceEvents": [{"cat": "kernel", "name": "k", "dur": 4000.0}]}))


def test_a_look_begins_and_ends_with_its_subnets_and_never_ends_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    monkeypatch.setattr("torch.profiler.profile", FakeProfiler)
    look = Look(range(3, 5), tmp_path / "seen.json")
    for y in (0, 2, 3, 3, 4, 5, 5, 6):
        look.at(y)
    assert json.loads(look.out.read_text())["kernel_ms"] == 2.0
    monkeypatch.setattr(FakeProfiler, "stop", lambda self: 1 / 0)
    look = Look(range(3, 5), tmp_path / "failed.json")
    for y in (3, 5, 6):
        look.at(y)
    assert "ZeroDivisionError" in json.loads(look.out.read_text())["failed"]


# -- prices


def kind(name: str, forward: float, backward: float, parameter_bytes: int = 0) -> Kind:
    return Kind(
        name=name, forward=forward, backward=backward, input=0.0, weight=0.0, parameter_bytes=parameter_bytes
    )  # fmt: skip


PROFILE = Profile(
    device="cpu", micro_batch=1, steps={"a": 0, "b": 0, "add": 1, "rare": 2},
    kinds=[kind("layer", 3.0, 6.0, 8), kind("add", 1.0, 2.0), kind("rare", 10.0, 20.0, 8)],
)  # fmt: skip


def steps(*names: str) -> Any:
    return SimpleNamespace(steps=[SimpleNamespace(name=name) for name in names])


def lap(kind: str, y: int, j: int, run: int, start: float, seconds: float) -> Span:
    return Span(0, kind, y, j, run, start, start + seconds)


def test_prices_are_means_shared_out_as_the_profile_says_and_the_last_backward_steps() -> None:
    runs = {5: [steps("a", "add")], 6: [steps("b")]}
    spans = [
        lap("F", 5, 0, 0, 0.0, 8.0), lap("F", 5, 1, 0, 8.0, 8.0), lap("B", 5, 1, 0, 16.0, 4.0),
        lap("B", 5, 0, 0, 20.0, 5.0), lap("F", 6, 0, 0, 30.0, 2.0), lap("B", 6, 0, 0, 32.0, 1.0),
        lap("F", 6, 1, 0, 33.0, 4.0), lap("B", 6, 1, 0, 37.0, 3.0), lap("F", 9, 0, 0, 50.0, 99.0),
    ]  # fmt: skip
    prices = prices_of(spans, runs, {5: "s", 6: "s"}, PROFILE)
    assert (
        prices.of("s", "a") == prices.of("s", "b") == (pytest.approx((6.0 + 3.0) / 2), pytest.approx((3.0 + 1.0) / 2))
    )
    assert prices.of("s", "add") == (pytest.approx(2.0), pytest.approx(1.0))
    assert prices.step(steps("b").steps) == pytest.approx((1.0 + 2.0) / 2)
    assert prices.step(steps("add").steps) == 0.0
    forward, backward = (8.0 + 3.0) / (4.0 + 3.0), (4.0 + 1.0) / (8.0 + 6.0)
    assert prices.of("s", "rare") == (pytest.approx(10 * forward), pytest.approx(20 * backward))
    assert prices.of("s", "a shape, which is not measured") == (0.0, 0.0)
    cost = prices.at("a shape that was not met", Shares(2.0, 3.0, 1.0, 1.0, 2.5)).of_steps(steps("a", "add").steps)
    assert cost == pytest.approx((2 * 6.5, 3 * 3.0, 3.0, 2.5 * 3.0))
    assert prices.at("s").of_steps([]).whole == 0.0


def test_with_one_micro_batch_a_step_stays_in_its_backward() -> None:
    spans = [lap("F", 0, 0, 0, 0.0, 1.0), lap("B", 0, 0, 0, 1.0, 5.0)]
    prices = prices_of(spans, {0: [steps("a")]}, {0: "s"}, PROFILE)
    assert prices.of("s", "a") == (1.0, 5.0) and prices.step(steps("a").steps) == 0.0


def test_steps_outside_of_tasks_are_shared_out_by_bytes() -> None:
    """`a` and `b` are of one kind, `add` has no parameters, `rare` as many as `a`: three layers of 8 bytes. What the
    last backward takes longer is no step then."""
    runs = {5: [steps("a", "add"), steps("rare")], 6: [steps("b")]}
    spans = [lap(k, y, 0, r, 0.0, 1.0) for y, r in ((5, 0), (5, 1), (6, 0)) for k in "FB"]
    spans += [lap("B", y, 1, r, 4.0, 2.0) for y, r in ((5, 0), (5, 1), (6, 0))]
    spans += [lap("U", 5, -1, -1, 9.0, 4.0), lap("U", 6, -1, -1, 9.0, 2.0), lap("U", 7, -1, -1, 9.0, 50.0)]
    prices = prices_of(spans, runs, {5: "s", 6: "s"}, PROFILE)
    assert prices.step(steps("a").steps) == prices.step(steps("rare").steps) == pytest.approx(6.0 / 3)
    assert prices.of("s", "rare")[1] == pytest.approx(1.5)
    assert prices.step(steps("add").steps) == 0.0


def test_layers_of_longer_tasks_take_what_one_row_took_beside_the_other() -> None:
    """Forwards, backwards and steps by themselves: a whole that takes seven tenths may have backwards as before."""
    layers, stages, halves = (Row(name, 2, executor="graphs").key for name in ("layers", "stages", "stages split"))
    rows = {layers: {"shares_s": [0.04, 0.05, 0.01, 0.0, 0.0]}, stages: {"shares_s": [0.018, 0.04, 0.002, 0.0, 0.0]}}
    seen = Seen(None, None, "cpu", {}, rows, {}, 0.0, {})  # type: ignore[arg-type]
    found = seen.in_longer_tasks(Row("CSP 2", 2, 2, "graphs", placed={"chunks": 2}))
    assert found == pytest.approx((0.45, 0.8, 0.2, 0.4, 0.4)), "halves of a backward, as long as nothing is known"
    rows[halves] = {"shares_s": [0.018, 0.0, 0.002, 0.025, 0.03]}
    found = seen.in_longer_tasks(Row("CSP 2 split", 2, 2, "graphs", placed={"split": True}))
    assert found == pytest.approx((0.45, 0.8, 0.2, 0.5, 0.6))
    assert seen.in_longer_tasks(Row("CSP 6", 2, 2, "graphs", placed={"release": "layer"})) == ALIKE
    assert seen.in_longer_tasks(Row("CSP 2", 4, 2, "graphs")) == ALIKE  # nothing is known of this M
    rows[stages]["shares_s"] = [0.018, 0.0, 0.002, 0.0, 0.0]  # no backward was seen
    assert seen.in_longer_tasks(Row("CSP 2", 2, 2, "graphs"))[:3] == pytest.approx((0.45, 1.0, 0.2))


def test_seconds_of_forwards_backwards_and_steps_are_all_seconds_of_the_sampled_subnets() -> None:
    """Steps are outside of tasks, else what the last backward of a run takes longer than those before it."""
    spans = [lap("F", 1, j, r, 0.0, 1.0 + r) for j in (0, 1) for r in (0, 1)]
    spans += [lap("B", 1, 0, 1, 5.0, 2.0), lap("B", 1, 1, 1, 7.0, 5.0), lap("B", 1, 1, 0, 13.0, 4.0)]
    spans += [lap("B", 1, 0, 0, 17.0, 3.0), lap("U", 9, -1, -1, 30.0, 7.0)]
    assert shares_of(spans, range(1, 3)) == pytest.approx((6.0 / 2, (14.0 - 3.0) / 2, 3.0 / 2, 0, 0))
    assert shares_of(spans[:4], range(1, 2)) == (6.0, 0.0, 0.0, 0.0, 0.0)
    found = shares_of([*spans, lap("U", 1, -1, -1, 20.0, 0.5)], range(1, 3))
    assert found == pytest.approx((6.0 / 2, 14.0 / 2, 0.5 / 2, 0, 0))  # steps are outside: backwards are what they are
    json.dumps(found)
    halves = [span._replace(kind="W") if span.kind == "B" else span for span in spans]
    halves += [lap("I", 1, 0, 0, 40.0, 2.5)]
    assert shares_of(halves, range(1, 3)) == pytest.approx((6.0 / 2, 0, 3.0 / 2, 2.5 / 2, (14.0 - 3.0) / 2))


def test_a_hop_is_a_part_of_a_way_there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, 2)
    monkeypatch.setattr(hops, "device_of", lambda rank, gpus: torch.device("cpu"))
    monkeypatch.setattr(hops, "CudaReach", HostReach)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    began = time.perf_counter()
    hop = hops.hop_s(4096, warm=3, hops=10)
    assert 0 < hop < (time.perf_counter() - began) / (2 * 10)


def test_idle_time_is_shared_between_tasks_and_subnets() -> None:
    assert host_cost((100.0, 0.3), (4.0, 0.204)) == HostCost(pytest.approx(0.001), pytest.approx(0.2))
    assert host_cost((100.0, 0.3)) == HostCost(0.003, 0.0)
    assert host_cost((100.0, 0.3), (4.0, 0.5)).task == 0.0  # the fewer tasks, the more idle: none of it is theirs
    assert HostCost(0.001, 0.2).per_task(100.0, 4) == pytest.approx(0.001 + 0.2 / 25)


def test_idle_time_is_counted_from_the_first_sampled_subnet_to_the_first_behind_them() -> None:
    spans = [
        lap("F", 1, 0, 0, 0.0, 5.0), lap("F", 2, 0, 0, 6.0, 2.0), lap("B", 1, 0, 0, 9.0, 1.0),
        lap("U", 2, -1, -1, 10.0, 1.0), lap("F", 3, 0, 0, 12.0, 2.0), lap("F", 4, 0, 0, 16.0, 9.0),
    ]  # fmt: skip
    tasks, idle, busy = idle_of(spans, range(2, 4))
    assert tasks == 1.5 and idle == pytest.approx((10.0 - 6.0) / 2) and busy == pytest.approx(6.0 / 2)


# -- rows


def test_every_row_has_a_key_of_its_own_and_fits_its_devices() -> None:
    ways = Ways(
        (1, 4), ("eager", "graphs"), (Causal(2), Causal(6, "layer"), Causal(1, split=True)), 0, 11.0, "delayed:8", 53
    )
    for workers in (1, 2, 4, 8, 16):
        rows = ways.on(workers)
        assert len({row.key for row in rows}) == len(rows)
        for row in rows:
            placement = row.placement("cuda")
            assert placement.workers * placement.chunks <= 53
            assert row.workers in (1, workers) and (row.workers == workers or row.engine == "plain")


def test_ways_of_causal_order_are_told_as_text() -> None:
    assert Causal.of("2") == Causal(2, "stage", split=False) and Causal.of("2").name == "CSP 2"
    assert Causal.of("6:layer") == Causal(6, "layer", split=False) and Causal.of("6:layer").name == "CSP 6 by layer"
    assert Causal.of("1:split") == Causal(1, "stage", split=True) and Causal.of("1:split").name == "CSP 1 split"
    assert Causal.of("1:layer:split") == Causal.of("1:split:layer") == Causal(1, "layer", split=True)


@pytest.mark.parametrize("text", ["1:splt", "6:layers", "2:", "layer", "", "2:layer,split"])
def test_no_other_way_is_taken_for_a_misspelt_one(text: str) -> None:
    with pytest.raises(SystemExit, match=f"--chunks {text}: a number"):
        Causal.of(text)


def result(title: str = "t", **changes: Any) -> dict[str, Any]:
    def row(name: str, m: int, ms: float | None, **more: Any) -> dict[str, Any]:
        held = {h: f"{h}{m}" for h in HASHES} | {"ms": ms, "parts_ms": [ms, ms]} if ms is not None else {}
        base = {"key": f"{name} {m}", "name": name, "micro_batches": m, "workers": 1, "executor": "eager"}
        return {**base, "shared": "strict", "sync": "csp", **held, **more}

    rows = [
        row("plain", 1, 50.0), row("plain", 4, 100.0), row("stages", 4, 20.0, predicted_ms=22.0, limit_ms=18.0),
        row("CSP", 4, None, predicted_ms=10.0, limit_ms=9.0, workers=4),
        row("BSP (GPipe)", 4, 30.0, sync="bulk-per-worker"), row("DDP", 4, None, refused="not on GPUs\nmore"),
    ]  # fmt: skip
    return {"title": title, "rows": rows, **changes}


def test_rows_are_compared_with_the_plain_loop_of_their_own_command() -> None:
    slow = result()
    for row in slow["rows"]:
        row.update({k: 2 * row[k] for k in ("ms", "predicted_ms", "limit_ms") if k in row})
    assert base_ms(slow["rows"]) == 100.0
    found = joined([result(), slow])
    one, two = found[: len(found) // 2], found[len(found) // 2 :]
    assert [r["ratio"] for r in one] == [r["ratio"] for r in two] == [1.0, 0.5, 2.5, 5.0, pytest.approx(5 / 3), None]
    assert one[2]["predicted / ms"] == 1.1 and one[2]["limit / ms"] == 0.9
    assert one[3]["predicted / ms"] is None and one[3]["limit / ms"] == 0.9
    assert len(table([result(), slow])) == 1 + 1 + 2 + 12 + 1 and len(table([result(), result("other")])) == 22


def test_another_command_on_the_same_subnets_may_have_the_plain_loop() -> None:
    without, other = result(window={"warm": 8}), result(window={"warm": 8})
    without["rows"] = [row for row in without["rows"] if row["key"] != "plain 4"]

    def told(*files: dict[str, Any]) -> str:
        return next(row["hashes"] for row in joined(files) if row["key"] == "stages 4")

    assert told(without) == "no reference" and told(without, other) == "equal"
    assert told(without, result(window={"warm": 16})) == "no reference"
    assert told(without, result(window={"warm": 8}, fingerprint={"torch": "another"})) == "no reference"
    other["rows"][1]["losses_sha256"] = "another"
    assert told(without, other) == "DIFFERENT"


def test_of_a_row_that_several_commands_have_measured_the_last_counts() -> None:
    old, new, newest = result(), result(at="2026-11-30T22:40:00+00:00"), result(at="2026-12-01T01:00:00+00:00")
    newest["rows"] = [{**row, "ms": 7.0} for row in newest["rows"] if row["name"] == "stages"]
    del new["rows"][-2]
    for files in ([newest, old, new], [new, old, newest]):
        found = {row["key"]: (row["at"], row["ms"]) for row in latest(joined(files))}
        assert len(latest(joined(files))) == len(found) == 4
        assert found["stages 4"] == (newest["at"], 7.0)
        assert found["plain 1"] == (new["at"], 50.0) and found["BSP (GPipe) 4"] == ("", 30.0)
    assert len(latest(joined([old, old]))) == 2 * 4, "when those were measured is not known"


def test_hashes_are_those_of_the_plain_loop_of_the_same_recipe() -> None:
    rows = result()["rows"]
    assert [hashes(row, rows) for row in rows] == ["reference", "reference", "equal", "", "own", ""]
    rows[2]["losses_sha256"] = "another"
    assert hashes(rows[2], rows) == "DIFFERENT"
    assert hashes({**rows[2], "shared": "frozen"}, rows) == "no reference"


def test_what_was_not_measured_is_shown_as_such() -> None:
    lines = [line(row) for row in joined([result()])]
    assert "| 20.0 |" in lines[2] and "| 2.50 |" in lines[2] and "| equal |" in lines[2]
    assert "| – |" in lines[3] and "| (5.00) |" in lines[3] and "| (0.90) |" in lines[3]
    assert "refused: not on GPUs" in lines[5] and "more" not in lines[5]


# -- shared weights


def test_runs_that_share_weights_begin_with_the_recipe_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import sennit.runtime.pipeline
    import sennit.supernet.build

    for module in (sennit.runtime.pipeline, sennit.supernet.build):
        monkeypatch.setattr(module, "initialise", module.initialise)
    monkeypatch.setattr(once, "BUILT", {})
    recipe = read_recipe(ROOT / "recipes/digits.toml")
    recipe = replace(recipe, checkpoint=replace(recipe.checkpoint, every=10**6))
    wanted = state_hash(recipe.build_model())
    kept.Kept(recipe)
    assert sennit.supernet.build.initialise is not kept.initialise
    assert state_hash(recipe.build_model()) == wanted
    window = Window(warm=4, sample=4, timed=8)
    plain, _ = once.run(recipe, Row("plain", 1, engine="plain"), window, "cpu", ByBlock())
    layers, spans = once.run(recipe, Row(LAYERS, 1, placed={"release": "layer"}), window, "cpu", ByBlock())
    two, _ = once.run(recipe, Row("CSP", 1, 2, placed={"release": "layer"}), window, "cpu", ByBlock())
    assert len({tuple(row[h] for h in HASHES) for row in (plain, layers, two)}) == 1
    assert {span.seq_id for span in spans} >= set(window.sampled) and layers["tasks"] > 2
    assert state_hash(recipe.build_model()) == wanted  # the plain loop trained on pages of its own
    refused, _ = once.run(recipe, Row("DDP", 1, 3, placed={"replicas": 2}), window, "cpu", ByBlock())
    assert "--replicas 2" in refused["refused"] and "ms" not in refused
    refused, _ = once.run(recipe, Row("ASP", 1, 2, recipe={"sync": "asp:stash"}), window, "cpu", ByBlock())
    assert "clip" in refused["refused"] and refused["sync"] == "asp:stash"
    json.dumps([plain, layers, two, refused])


class ByBlock:
    """Every block costs the same."""

    def of_steps(self, steps: Any) -> Any:
        return SimpleNamespace(forward=1.0, whole=2.0)


def test_a_row_that_keeps_activations_is_one_of_graphs() -> None:
    rows = Ways((2,), ("graphs", "kept"), (Causal(2),), 0, 0.0, "delayed:8", 12).on(1)
    by_key = {row.key: row.placement("cuda") for row in rows if row.engine == "pipeline"}
    assert {key: (p.executor, p.activations) for key, p in by_key.items()} == {
        f"{name}, {executor}, M = 2, 1": ("graphs", "keep" if executor == "kept" else "recompute")
        for name in ("layers", "stages") for executor in ("graphs", "kept")
    }  # fmt: skip
