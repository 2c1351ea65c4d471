"""A device with a budget gives the bits of one on which everything stays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from sennit.errors import BudgetError, NanLossError, RunError, UserError
from sennit.memory.cpu import CpuStore
from sennit.memory.device import HostDevice
from sennit.memory.eviction import Key, LatestNextUse, LeastRecent, never
from sennit.memory.slots import SlotStore
from sennit.memory.store import HostStore
from sennit.recipe import CheckpointRule, Placement, Recipe
from sennit.runtime import coming
from sennit.runtime.budget import largest_shares, may_come
from sennit.runtime.forked import in_child
from sennit.runtime.placing import known_costs, plans_of
from sennit.runtime.scheduling import settled
from sennit.runtime.share import Parts
from sennit.space.initialise import build_on_meta
from sennit.trace.events import read_call
from tests.gpus import apart, needs_gpu
from tests.memory.late import LateDevice
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN

CASES: dict[str, dict[str, Any]] = {
    "strict": {},
    "delayed": {"shared": "delayed:3"},
    "frozen": {"shared": "frozen"},
    "bulk": {"sync": "bulk:4"},
    "global clip": {"clip": "global:1.0"},
    "sgd": {"optimizer": {"name": "sgd", "momentum": 0.9}},
}


def late(budget: float, wandering: Callable[[HostStore], frozenset[str]]) -> Parts:
    return Parts(
        store=lambda host: SlotStore(
            CpuStore(host), LateDevice(), wandering(host), int(budget * 2**30), LatestNextUse(never)
        )
    )


def share_of(made: Recipe) -> tuple[float, float]:
    """GiB of what the largest network needs on one worker, and of everything."""
    built = made.built
    host = HostStore(
        built.recordings.skeleton, built.groups, built.always[0] | built.always[1], made.sharing, made.optimizer_name,
        made.optimizer_arguments,
    )  # fmt: skip
    (largest,) = largest_shares(built, plans_of(built, Placement()), host)
    everything = sum(host.size(g.name) for g in built.groups.all if host.comes_and_goes(g.name))
    return (largest + host.spare()) / 2**30, (everything + host.spare()) / 2**30


@pytest.mark.parametrize(
    "placed", [{}, {"workers": 2}, {"workers": 2, "replicas": 2}, {"workers": 2, "release": "layer"}], ids=str
)
def test_what_may_come_to_a_worker_is_what_it_uses(placed: dict[str, Any]) -> None:
    built = (made := recipe(**{**CHAIN, "steps": 12})).built
    host = HostStore(
        built.recordings.skeleton, built.groups, built.always[0] | built.always[1], made.sharing, made.optimizer_name,
        made.optimizer_arguments,
    )  # fmt: skip
    placement = Placement(**placed)
    plans = plans_of(built, placement, waits=known_costs(built))
    users: dict[str, set[int]] = {}
    for program in built.covering:
        for step in program.steps:
            for group in built.groups.of_step(step)[0]:
                users.setdefault(group, set()).update(plans.worker(0, j, step.block) for j in range(made.micro_batches))
    for rank in range(placement.workers):
        mine = sum(host.size(group) for group, workers in users.items() if rank in workers)
        assert may_come(rank, built, plans, host) == mine > 0


@pytest.mark.parametrize("case", CASES)
def test_any_budget_gives_the_same_bits(case: str, tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "steps": 12, **CASES[case]})
    plain = run(made, tmp_path / "plain", engine="plain")
    least, most = share_of(made)
    ways = {
        "least": {"budget": least, "in_flight": 3},
        "one and a half": {"budget": least * 1.5},
        "lru, none ahead": {"budget": least * 1.5, "evict": "lru", "ahead": 0},
        "all": {"budget": most, "ahead": 5},
    }
    for workers in (1, 2):
        for name, placed in ways.items():
            out = tmp_path / f"{name}, {workers} workers"
            result = run(made, out, workers=workers, **placed)
            assert hashes(result) == hashes(plain), out.name
            assert not violations(out), out.name


@pytest.mark.parametrize("placed", [{"release": "layer", "split": True}, {"schedule": "1f1b"}, {"chunks": 2}], ids=str)
def test_any_schedule_runs_under_a_budget(placed: dict[str, Any], tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "steps": 12})
    plain = run(made, tmp_path / "plain", engine="plain")
    result = run(made, tmp_path / "slots", workers=2, budget=share_of(made)[0] * 1.5, **placed)
    assert hashes(result) == hashes(plain)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_layers_that_move_between_workers_come_as_they_were_left(micro_batches: int, tmp_path: Path) -> None:
    """Each subnet is cut elsewhere, so the next reader of a layer is often another worker."""
    made = recipe(**{**CHAIN, "steps": 16, "micro_batches": micro_batches, "optimizer": {"name": "adam"}})
    plain = run(made, tmp_path / "plain", engine="plain")
    plan = tmp_path / "cuts.json"
    plan.write_text(json.dumps({"format": "sennit.cuts/1", "cuts": [[1], [5], [3]]}))
    least, most = share_of(made)
    for name, budget in (("least", least), ("all", most)):
        placed = {"workers": 2, "plan": str(plan), "budget": budget}
        parts = late(budget, lambda host: frozenset(g.name for g in host.groups.all))
        for how, more in (("at once", {}), ("late", {"parts": parts})):
            out = tmp_path / f"{name}, {how}"
            result = run(made, out, **placed, **more)
            assert hashes(result) == hashes(plain), out.name
            assert not violations(out), out.name


def test_reading_whatever_is_there_goes_with_a_budget(tmp_path: Path) -> None:
    """Under PipeDream's rule the pinned slot is stepped while graphs read copies of it."""
    made = recipe(**{**CHAIN, "steps": 12, "sync": "asp:stash", "clip": "none"})
    free = run(made, tmp_path / "free", workers=2)
    assert hashes(run(made, tmp_path / "slots", workers=2, budget=share_of(made)[0] * 1.5)) == hashes(free)


def test_a_list_of_tasks_that_holds_too_much_is_refused(tmp_path: Path) -> None:
    """GPipe has all forwards of a bulk before its backwards."""
    made = recipe(**{**CHAIN, "steps": 8, "sync": "bulk:4"})
    with pytest.raises(UserError, match=r"too little for this schedule: .* Raise --budget, lower --in-flight"):
        run(made, tmp_path / "less", workers=1, schedule="gpipe", budget=share_of(made)[0])
    assert run(made, tmp_path / "csp", workers=1, budget=share_of(made)[0])["steps"] == 8


def test_a_run_goes_on_under_another_budget(tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "steps": 12, "checkpoint": CheckpointRule(every=4)})
    plain = run(made, tmp_path / "plain", engine="plain")
    least, most = share_of(made)
    run(made, tmp_path / "slots", steps=4, workers=2, budget=least)
    run(made, tmp_path / "slots", steps=8, resume=True, workers=1, budget=most, evict="lru")
    assert hashes(run(made, tmp_path / "slots", resume=True, workers=2)) == hashes(plain)


def test_nothing_is_used_before_it_has_come(tmp_path: Path) -> None:
    """Copies that come late, and poison until they do."""
    made = recipe(**{**CHAIN, "steps": 12})
    plain = run(made, tmp_path / "plain", engine="plain")
    least, most = share_of(made)
    for budget in (least * 1.5, most):
        parts = late(budget, lambda host: frozenset(g.name for g in host.groups.all))
        result = run(made, tmp_path / f"{budget}", workers=2, budget=budget, parts=parts)
        assert hashes(result) == hashes(plain)
    parts = late(least * 1.5, lambda host: frozenset())
    assert hashes(run(made, tmp_path / "one", workers=1, budget=least, parts=parts)) == hashes(plain)


def test_a_budget_below_one_share_is_refused(tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "steps": 4})
    least = share_of(made)[0]
    needed = round(least * 2**30)
    told = rf"--budget .* \({needed - 1:,} bytes\) is too little: .* on worker 0 .*\({needed:,} bytes\), or use more"
    with pytest.raises(UserError, match=told):
        run(made, tmp_path / "run", workers=1, budget=(needed - 1) / 2**30)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="too little") as refused:
        run(made, tmp_path / "run", workers=1, budget=1e-9)
    (advice,) = re.findall(r"at least --budget (\S+)", str(refused.value))
    assert run(made, tmp_path / "run", workers=1, budget=float(advice))["steps"] == 4
    with pytest.raises(UserError, match="too little") as refused:  # of two that need different shares, the larger
        run(made, tmp_path / "two", workers=2, budget=1e-9)
    (advice,) = re.findall(r"at least --budget (\S+)", str(refused.value))
    assert run(made, tmp_path / "two", workers=2, budget=float(advice))["steps"] == 4


def test_a_share_that_shows_only_when_a_subnet_is_cut_is_refused_then(tmp_path: Path) -> None:
    """Chimera gives a worker other blocks by micro-batch, so nothing is known beforehand."""
    made = recipe(**{**CHAIN, "steps": 4, "micro_batches": 4})
    with pytest.raises(RunError, match=r"(?s)--budget .* is too little: .* on one worker.*Later subnets may need more"):
        run(made, tmp_path / "run", workers=2, schedule="chimera", budget=1e-6)


SHORT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cuts": ({}, {"cuts": [[3], [3], [3], [3], [3], [3], [3], [3], [1]]}),
    "cuts, delayed": ({"shared": "delayed:3"}, {"cuts": [[3], [3], [3], [3], [3], [3], [3], [3], [1]]}),
    "cuts, bulks": ({"sync": "bulk:3", "steps": 24}, {"cuts": [[3], [3], [3], [3], [3], [3], [3], [3], [3], [3], [1]]}),
    "chimera": ({"micro_batches": 4, "batch_size": 8}, {"schedule": "chimera"}),
}  # fmt: skip


def needs(made: Recipe, placement: Placement) -> list[int]:
    """Of each subnet, bytes that the worker with most of it needs."""
    built = made.built
    host = HostStore(
        built.recordings.skeleton, built.groups, built.always[0] | built.always[1], made.sharing, made.optimizer_name,
        made.optimizer_arguments,
    )  # fmt: skip
    for name, parameter in build_on_meta(built.space_factory, made.space_args).named_parameters():
        host.home(name).copy_(torch.ones(parameter.shape))
    plans, found = plans_of(built, settled(made, placement), host.home), list[int]()
    for y, task in enumerate(built.tasks(made.steps)):
        program = built.program(task.arch)
        plans.tell(y, program.places)
        held: list[set[str]] = [set() for _ in range(plans.workers)]
        for step in program.steps:
            for rank in plans.spread(y, step.block, made.micro_batches):
                held[rank] |= {g for g in built.groups.of_step(step)[0] if host.comes_and_goes(g)}
        found.append(max(sum(map(host.size, groups)) for groups in held) + host.spare())
    return found


@pytest.mark.parametrize("case", SHORT)
def test_a_budget_that_turns_out_too_small_loses_nothing(case: str, tmp_path: Path) -> None:
    """Was the last checkpoint, however long ago: what is said to be kept is there, and goes on to the same bits."""
    changes, placed = SHORT[case]
    made = recipe(**{**CHAIN, "steps": 12, **changes})
    plain = run(made, tmp_path / "plain", engine="plain")
    placed = {"workers": 2, **placed}
    if (cuts := placed.pop("cuts", None)) is not None:
        placed["plan"] = str(tmp_path / "cuts.json")
        Path(placed["plan"]).write_text(json.dumps({"format": "sennit.cuts/1", "cuts": cuts}))
    sizes = needs(made, Placement(**placed))
    y = next(y for y in range(4, made.steps) if sizes[y] > max(sizes[:y]))
    cut = y // made.sync_rule.bulk(2) * made.sync_rule.bulk(2)
    with pytest.raises(
        BudgetError, match=rf"(?s)--budget .* is too little: .*{sizes[y]:,} bytes.*is kept in"
    ) as caught:
        run(made, tmp_path / "run", **placed, budget=(sizes[y] - 1) / 2**30, in_flight=2)
    assert caught.value.seq_id == cut and f"before subnet {cut} is kept" in str(caught.value)
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == [f"{cut:08d}"]
    assert hashes(run(made, tmp_path / "run", resume=True, **placed)) == hashes(plain)
    assert not violations(tmp_path / "run")


@pytest.mark.parametrize("in_flight", [1, 6])
def test_a_subnet_that_is_seen_to_be_too_large_only_when_it_comes_in(
    in_flight: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have gone on by then; what is said to be kept is."""
    monkeypatch.setattr(coming, "KNOWN", 0)
    made = recipe(**{**CHAIN, "steps": 12, "checkpoint": CheckpointRule(every=3)})
    plan = tmp_path / "cuts.json"
    plan.write_text(json.dumps({"format": "sennit.cuts/1", "cuts": [[3], [3], [3], [3], [3], [3], [3], [3], [1]]}))
    placed: dict[str, Any] = {"workers": 2, "plan": str(plan)}
    sizes = needs(made, Placement(**placed))
    y = next(y for y in range(4, made.steps) if sizes[y] > max(sizes[:y]))
    with pytest.raises(BudgetError, match=r"--budget .* is too little") as caught:
        run(made, tmp_path / "run", **placed, budget=(sizes[y] - 1) / 2**30, in_flight=in_flight)
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    assert str(newest) in str(caught.value)
    assert newest.name == f"{y:08d}" or "later subnets had gone on already" in str(caught.value)
    assert in_flight > 1 or newest.name == f"{y:08d}"
    assert hashes(run(made, tmp_path / "run", resume=True, **placed)) == hashes(
        run(made, tmp_path / "plain", engine="plain")
    )
    assert not violations(tmp_path / "run")


def test_a_budget_where_it_means_nothing_is_refused(tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "steps": 4})
    with pytest.raises(UserError, match=r"--budget 1 belongs to --engine pipeline"):
        run(made, tmp_path / "run", engine="plain", budget=1.0)
    with pytest.raises(UserError, match=r"--budget 1 is memory of a device, and --device virtual has none"):
        Placement(budget=1.0, device="virtual")
    with pytest.raises(UserError, match=r"--evict lru says how .* under a --budget, and there is none"):
        Placement(evict="lru")
    with pytest.raises(UserError, match=r"--budget must be a number of GiB"):
        Placement(budget=-1.0)


def test_what_came_of_the_slots_is_counted(tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "steps": 12})
    least, most = share_of(made)
    assert "slots" not in run(made, tmp_path / "free", workers=1)
    few = run(made, tmp_path / "few", workers=1, budget=least, ahead=0)["slots"]
    all_stay = run(made, tmp_path / "all", workers=1, budget=most, ahead=0)["slots"]
    ahead = run(made, tmp_path / "ahead", workers=1, budget=most, ahead=2)["slots"]
    assert few["reads"] == all_stay["reads"] == ahead["reads"]
    assert few["hits"] < all_stay["hits"] < ahead["hits"] <= ahead["reads"]
    assert few["fetches"] > all_stay["fetches"] == ahead["fetches"]
    assert few["ahead"] == few["right"] == 0 and few["right_rate"] is None
    assert 0 < ahead["right"] == ahead["ahead"] <= ahead["fetches"], "nothing was evicted"
    assert few["written_bytes"] > all_stay["written_bytes"] > 0 and few["stall_s"] > 0
    counted: dict[str, float] = {}
    for found in read_call(tmp_path / "few" / "trace.jsonl").counters:
        counted[found.counter] = counted.get(found.counter, 0.0) + found.value
    assert counted["fetched, bytes"] == few["fetched_bytes"]


class PoisoningStore(SlotStore):
    """A slot that is given up holds poison at once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.evict, self.residents.evict = self.residents.evict, self.poison

    def poison(self, key: Key) -> None:
        slot = self.slots[key]
        self.evict(key)
        self.leaving.settle_all()
        slot.flat.fill_(0xFF)


class ForgetfulStore(PoisoningStore):
    """Pins nothing, so what a live graph uses may leave."""

    def pin(self, group: str, seq_id: int) -> None:
        pass

    def unpin(self, groups: Iterable[str], seq_id: int) -> None:
        pass


def poisoning(kind: type[SlotStore], budget: float) -> Parts:
    return Parts(
        store=lambda host: kind(
            CpuStore(host), HostDevice(), frozenset(g.name for g in host.groups.all), int(budget * 2**30), LeastRecent()
        )
    )


def test_a_slot_in_a_live_graph_stays(tmp_path: Path) -> None:
    """With the least budget; without pins it is noticed."""
    made = recipe(**{**CHAIN, "steps": 12, "micro_batches": 3})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    least = share_of(made)[0]
    for workers in (1, 2):
        placed = {"workers": workers, "budget": least}
        result = run(made, tmp_path / f"{workers}", parts=poisoning(PoisoningStore, least), **placed)
        assert hashes(result) == plain
    try:
        result = run(made, tmp_path / "forgetful", parts=poisoning(ForgetfulStore, least), workers=1, budget=least)
    except (RunError, UserError, NanLossError):
        return
    assert hashes(result) != plain


@needs_gpu
@pytest.mark.parametrize("case", ["strict", "delayed", "bulk"])
def test_a_gpu_with_a_budget_gives_the_same_bits(case: str, tmp_path: Path) -> None:
    assert apart(differing, case, tmp_path) == []


def differing(case: str, folder: Path) -> list[str]:
    """What of a case is not as it should be on GPUs."""
    made = recipe(**{**CHAIN, "steps": 12, **CASES[case]})
    plain = in_child(lambda: hashes(run(made, folder / "plain", engine="plain", device="cuda")))
    least, most = share_of(made)
    found: list[str] = []
    for workers in range(1, min(2, torch.cuda.device_count()) + 1):
        for placed in ({"budget": least}, {"budget": least * 1.5, "ahead": 2}, {"budget": most, "evict": "lru"}):
            out = folder / f"{placed}, {workers}"
            result = run(made, out, workers=workers, device="cuda", **placed)
            found += [f"{out.name}: other bits"] * (hashes(result) != plain)
            found += [f"{out.name}: {broken}" for broken in violations(out)]
            found += [f"{out.name}: nothing was fetched"] * (not result["slots"]["fetches"])
    return found
