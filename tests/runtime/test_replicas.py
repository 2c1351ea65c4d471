"""Stages of several workers: depth × replicas changes no bit."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import NanLossError, UserError
from sennit.profile.quick import block_order
from sennit.recipe import Placement
from sennit.runtime.load import load_run
from sennit.runtime.placing import known_costs, plans_of, writing_blocks
from sennit.runtime.refuse import check
from sennit.runtime.request import Request
from sennit.supernet.hashes import hash_tensors
from sennit.trace.events import read_call
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_chimera import ADAM, TIED
from tests.runtime.test_engines import cuts_file, violations
from tests.runtime.test_per_subnet import profile_of
from tests.runtime.test_sync_rules import CHAIN

NORMLESS: dict[str, Any] = {**CHAIN, **ADAM, "space": "normless.py:Normless", "steps": 8, "batch_size": 9}
SINK: dict[str, Any] = {"steps": 8, "micro_batches": 4}
SHAPES = [{"workers": 4, "replicas": r} for r in (1, 2, 4)]
TWO, FOUR = SHAPES[1:]

CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "causal": ({**NORMLESS, "micro_batches": 4}, SHAPES),
    "bulk": ({**NORMLESS, "micro_batches": 4, "sync": "bulk:4"}, SHAPES),
    "causal, batch norm": ({**TIED, "micro_batches": 4}, SHAPES),
    "bulk, batch norm": ({**TIED, "micro_batches": 4, "sync": "bulk:4"}, SHAPES),
    "everything": (SINK, [*SHAPES, {"workers": 2, "replicas": 2, "loaders": 1}]),
    "three micro-batches": ({**NORMLESS, "micro_batches": 3}, [TWO, {"workers": 3, "replicas": 3}]),
    "one micro-batch": ({**NORMLESS, "micro_batches": 1, "clip": "layer:0.5"}, [TWO]),
    "chunks, split, by layer": (
        {**NORMLESS, "micro_batches": 4},
        [{**TWO, "chunks": 2, "split": True, "release": "layer"}, {**TWO, "in_flight": 1}],
    ),
    "delayed": ({**SINK, "shared": "delayed:2"}, [TWO]),
    "frozen": ({**SINK, "shared": "frozen"}, [TWO]),
    "learning": ({**SINK, "sampler": "sink.py:cycle"}, [TWO]),
}


@pytest.mark.parametrize("case", CASES)
def test_replicas_give_the_bits_of_the_plain_loop(case: str, tmp_path: Path) -> None:
    changes, placed = CASES[case]
    made = recipe(**changes)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    for i, placement in enumerate(placed):
        assert hashes(run(made, tmp_path / f"{i}", **placement)) == plain, placement
        assert not violations(tmp_path / f"{i}"), placement


def test_a_file_of_cuts_is_of_stages(tmp_path: Path) -> None:
    made = recipe(**SINK)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    assert hashes(run(made, tmp_path / "run", workers=4, replicas=2, plan=cuts_file(made, 2, tmp_path))) == plain
    assert not violations(tmp_path / "run")


def test_each_subnet_may_be_cut_anew(tmp_path: Path) -> None:
    made, plan = recipe(**SINK), str(profile_of(SINK, tmp_path))
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    assert hashes(run(made, tmp_path / "run", workers=4, replicas=2, plan=plan)) == plain


def test_it_goes_on_from_a_checkpoint_without_replicas(tmp_path: Path) -> None:
    made = recipe(**{**NORMLESS, "micro_batches": 4})
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    run(made, tmp_path / "run", steps=4, **TWO)  # type: ignore[arg-type]
    assert hashes(run(made, tmp_path / "run", resume=True, workers=3)) == plain


@pytest.mark.parametrize("changes", [NORMLESS, TIED], ids=["no buffers", "batch norm"])
def test_micro_batches_are_dealt_out_and_blocks_that_write_are_not(changes: dict[str, Any], tmp_path: Path) -> None:
    made = recipe(**{**changes, "micro_batches": 4})
    run(made, tmp_path / "run", **TWO)  # type: ignore[arg-type]
    single, blocks = writing_blocks(made.built), block_order(made.built)
    assert bool(single) == (changes is TIED) and len(single) < len(blocks)
    plans = plans_of(made.built, Placement(**TWO), waits=known_costs(made.built))
    for y in range(4):
        for block in blocks:
            assert len(set(plans.spread(y, block, 4))) == (1 if block in single else 2)
    workers: dict[tuple[int, int], set[int]] = {}
    for span in read_call(tmp_path / "run" / "trace.jsonl").spans:
        if span.kind in "FB":
            workers.setdefault((span.seq_id, span.run), set()).add(span.worker)
    assert {len(found) for found in workers.values()} == ({1, 2} if single else {2})


def test_frozen_buffers_do_not_keep_a_block_single() -> None:
    made = recipe(**{**TIED, "space": "tied.py:OneNorm"})
    assert "norm" in writing_blocks(made.built)
    assert "norm" not in writing_blocks(replace(made, shared="frozen").built)


@pytest.mark.parametrize(("spoilt", "where"), [(0, "5 is nan in micro-batch 0"), (1, "6 is nan in micro-batch 1")])
def test_a_loss_that_is_not_finite_keeps_the_subnets_before(spoilt: int, where: str, tmp_path: Path) -> None:
    made = recipe(**{**TIED, "micro_batches": 2, "data": "tied.py:Spoilt", "data_args": {"spoilt": spoilt}})
    kept: list[tuple[str, str, str]] = []
    for name, placed in {"plain": {"engine": "plain"}, "replicas": FOUR}.items():
        with pytest.raises(NanLossError, match=where):
            run(made, tmp_path / name, **placed)  # type: ignore[arg-type]
        state = load_run(tmp_path / name).state
        kept.append((str(state.seq_id), hash_tensors(state.weights), hash_tensors(state.optimizer)))
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    "placed", [{"engine": "plain"}, {"workers": 2}, TWO, FOUR, {"schedule": "chimera", "workers": 4}], ids=str
)
def test_of_several_losses_that_are_not_finite_the_first_is_named_or_it_is_said(
    placed: dict[str, Any], tmp_path: Path
) -> None:
    """Which of several workers looks first is a matter of time; it was named as if it were the first in the subnet."""
    made = recipe(**{**NORMLESS, "micro_batches": 8, "data": "tied.py:SpoiltBatch"})
    for attempt in range(3 if placed.get("workers") == 4 else 1):
        with pytest.raises(NanLossError) as caught:
            run(made, tmp_path / f"{attempt}", **placed)
        said = re.match(
            r"the loss of subnet 5 is nan in micro-batch (\d)(?:, maybe not the first: (\d) before it (?:was|were) not "
            r"waited for)?; the state before subnet 5 is kept in",
            str(caught.value),
        )
        assert said is not None, caught.value
        assert (caught.value.seq_id, caught.value.micro_batch) == (5, int(said[1]))
        assert 0 < int(said[2]) <= int(said[1]) if said[2] else said[1] == "0"
        assert placed.get("workers") == 4 or said[1] == "0", "one worker computes them in order"


@pytest.mark.parametrize(
    ("changes", "placed", "said"),
    [
        ({}, {"schedule": "1f1b", "workers": 4, "replicas": 2}, "--replicas 2: --schedule 1f1b is an order of stages"),
        ({}, {"schedule": "chimera", "workers": 4, "replicas": 2}, "--replicas 2: --schedule chimera"),
        ({**CHAIN, "sync": "asp:stash"}, {"workers": 4, "replicas": 2}, "--replicas 2: --schedule pipedream"),
        ({}, {"workers": 4, "replicas": 2, "chunks": 99}, "--chunks 99: 2 stages of 2 workers x 99 chunks"),
        ({}, {"workers": 400, "replicas": 2}, "--workers 400: the space has only .* use at most"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_replicas(changes: dict[str, Any], placed: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check(Request(recipe=recipe(**changes), placement=Placement(**placed)))


def test_workers_that_do_not_come_out_even() -> None:
    with pytest.raises(UserError, match="--replicas 3: every stage has as many workers"):
        Placement(workers=4, replicas=3)


def test_the_run_says_how_many(tmp_path: Path) -> None:
    run(recipe(**NORMLESS), tmp_path / "run", steps=2, **TWO)  # type: ignore[arg-type]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["placement"]["replicas"] == 2
