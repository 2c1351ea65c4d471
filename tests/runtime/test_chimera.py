"""Chimera on workers: the worker of a stage depends on the micro-batch, and no bit does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import NanLossError, UserError
from sennit.profile.quick import block_order
from sennit.profile.waits import Waits
from sennit.recipe import Placement, Recipe
from sennit.runtime.forecast import RecipeLoad, forecast
from sennit.runtime.load import load_run
from sennit.runtime.placing import plans_of
from sennit.runtime.scheduling import settled
from sennit.schedule.chimera import chimera
from sennit.supernet.hashes import hash_tensors
from sennit.trace.events import read_call
from sennit.trace.span import Span
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN

ADAM: dict[str, Any] = {"optimizer": {"name": "adam"}, "lr": 0.01, "clip": "global:1.0"}
TIED: dict[str, Any] = {**CHAIN, **ADAM, "space": "tied.py:Tied", "steps": 8, "batch_size": 9}

GPIPE: dict[str, Any] = {"schedule": "gpipe", "workers": 2}
TWO, THREE, FOUR = ({"schedule": "chimera", "workers": n} for n in (2, 3, 4))

CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "one micro-batch": ({"sync": "bulk:4", "micro_batches": 1}, [TWO, FOUR, {**TWO, "in_flight": 3}]),
    "two": ({"sync": "bulk:4", "micro_batches": 2}, [GPIPE, TWO, THREE, FOUR]),
    "four": ({"sync": "bulk:4", "micro_batches": 4}, [GPIPE, TWO, {**FOUR, "loaders": 1}]),
    "three, clipped by layer": ({"sync": "bulk:2", "micro_batches": 3, "clip": "layer:0.5"}, [FOUR]),
    "causal": ({"micro_batches": 4}, [TWO, FOUR]),
    "delayed": ({"micro_batches": 2, "shared": "delayed:2"}, [{**TWO, "in_flight": 3}]),
    "learning": ({"micro_batches": 2, "sampler": "sink.py:cycle"}, [TWO]),
}


@pytest.mark.parametrize("case", CASES)
def test_both_directions_give_the_bits_of_the_plain_loop(case: str, tmp_path: Path) -> None:
    changes, placed = CASES[case]
    made = recipe(**{**TIED, **changes})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    for i, placement in enumerate(placed):
        assert hashes(run(made, tmp_path / f"{i}", **placement)) == plain, placement
        assert not violations(tmp_path / f"{i}"), placement


def test_a_bulk_per_worker_is_the_same_in_both_directions(tmp_path: Path) -> None:
    made = recipe(**{**TIED, "sync": "bulk-per-worker", "micro_batches": 1})
    found = [hashes(run(made, tmp_path / name, schedule=name, workers=4)) for name in ("gpipe", "chimera")]
    assert found[0] == found[1]


def test_it_goes_on_from_a_checkpoint_in_one_direction(tmp_path: Path) -> None:
    made = recipe(**{**TIED, "sync": "bulk:4", "micro_batches": 1})
    plain = run(made, tmp_path / "plain", engine="plain")
    run(made, tmp_path / "run", steps=4, schedule="chimera", workers=4)
    run(made, tmp_path / "run", resume=True, schedule="1f1b", workers=3)
    again = run(made, tmp_path / "other", steps=4, schedule="1f1b", workers=3)
    assert again["steps"] == 4
    last = run(made, tmp_path / "other", resume=True, schedule="chimera", workers=4)
    assert hashes(last) == hashes(plain)
    assert hashes(json.loads((tmp_path / "run" / "result.json").read_text())) == hashes(plain)


def executed(folder: Path, worker: int) -> list[str]:
    """Tasks of a worker in the order in which it took them, as stage, kind, subnet, micro-batch."""
    spans = read_call(folder / "trace.jsonl").spans
    mine = [span for span in spans if span.worker == worker and span.kind in "FB"]
    return [named(span) for span in sorted(mine, key=lambda span: span.start)]


def named(span: Span) -> str:
    return f"{span.run}{span.kind}{span.seq_id}.{span.micro_batch}"


@pytest.mark.parametrize(("workers", "m", "in_flight"), [(2, 2, 0), (4, 1, 0), (4, 4, 0), (3, 2, 0), (2, 1, 3)])
def test_each_worker_goes_through_its_list(workers: int, m: int, in_flight: int, tmp_path: Path) -> None:
    """Rounds of a bulk of 4 subnets, or with 3 in flight rounds of 3 and 1."""
    made = recipe(**{**TIED, "sync": "bulk:4", "micro_batches": m})
    run(made, tmp_path / "run", schedule="chimera", workers=workers, in_flight=in_flight)
    rounds = [range(y, min(y + 3, y // 4 * 4 + 4)) for y in (0, 3, 4, 7)] if in_flight else [range(4), range(4, 8)]
    for worker in range(workers):
        wanted = [
            f"{action.stage}{action.kind}{held[action.micro_batch // m]}.{action.micro_batch % m}"
            for held in rounds
            for action in chimera(worker, workers, len(held) * m)
        ]
        assert executed(tmp_path / "run", worker) == wanted


@pytest.mark.parametrize("workers", [2, 4])
def test_the_simulator_takes_the_tasks_of_every_worker(workers: int, tmp_path: Path) -> None:
    made = recipe(**{**TIED, "sync": "bulk:4", "micro_batches": 2})
    blocks = block_order(made.built)
    rows = {block: {"forward": 0.001 + i / 1e4, "backward": 0.002} for i, block in enumerate(blocks)}
    waits = tmp_path / "waits.json"
    waits.write_text(json.dumps({"format": "sennit.waits/1", "blocks": rows}))
    placement = Placement(schedule="chimera", workers=workers, device="virtual", waits=str(waits))
    run(made, tmp_path / "run", schedule="chimera", workers=workers, device="virtual", waits=str(waits))
    assert forecast_order(made, placement, Waits.read(waits, blocks)) == [
        executed(tmp_path / "run", worker) for worker in range(workers)
    ]


def forecast_order(made: Recipe, placement: Placement, waits: Waits) -> list[list[str]]:
    """What each worker does in the simulation of a recipe."""
    held, spans = settled(made, placement), list[Span]()
    load = RecipeLoad(made, held, plans_of(made.built, held, waits=waits), waits, made.steps)
    forecast(load, watch=spans.append)
    spans.sort(key=lambda span: span.start)
    return [[named(span) for span in spans if span.worker == worker] for worker in range(placement.workers)]


@pytest.mark.parametrize(("spoilt", "where"), [(0, "5 is nan in micro-batch 0"), (1, "6 is nan in micro-batch 1")])
def test_a_loss_that_is_not_finite_keeps_the_subnets_before(spoilt: int, where: str, tmp_path: Path) -> None:
    """In either direction; buffers that its subnet has written are taken back."""
    made = recipe(**{**TIED, "micro_batches": 2, "data": "tied.py:Spoilt", "data_args": {"spoilt": spoilt}})
    kept: list[tuple[str, str, str]] = []
    for name, placed in {"plain": {"engine": "plain"}, "chimera": {"schedule": "chimera", "workers": 4}}.items():
        with pytest.raises(NanLossError, match=where):
            run(made, tmp_path / name, **placed)  # type: ignore[arg-type]
        state = load_run(tmp_path / name).state
        kept.append((str(state.seq_id), hash_tensors(state.weights), hash_tensors(state.optimizer)))
    assert kept[0] == kept[1]


@pytest.mark.parametrize("schedule", ["chimera", "interleaved", "zbv"])
def test_buffers_of_several_stages_are_refused(schedule: str, tmp_path: Path) -> None:
    """Where a worker has several stages; gpipe waits between two micro-batches, and ends."""
    made = recipe(**{**TIED, "space": "tied.py:OneNorm", "sync": "bulk:4"})
    chunks = 2 if schedule == "interleaved" else 1
    with pytest.raises(UserError, match=rf"{schedule}: buffers norm.* are written on stages \[0, .*gpipe"):
        run(made, tmp_path / "run", schedule=schedule, chunks=chunks, workers=2)
    done = run(made, tmp_path / "gpipe", schedule="gpipe", workers=2)
    assert hashes(done) == hashes(run(made, tmp_path / "plain", engine="plain"))
