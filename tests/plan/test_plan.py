"""Plans are pure functions of subnet and block."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sennit.errors import UserError
from sennit.plan.plan import CutsPlan, PlanEpoch, Plans, load_cuts

BLOCKS = ["stem", "blocks.0", "blocks.1", "blocks.2", "head"]


def test_the_drawing_of_the_docstring() -> None:
    plan = CutsPlan(BLOCKS, [[2, 4]], 3)
    assert [plan.worker(7, 0, block) for block in BLOCKS] == [0, 0, 1, 1, 2]
    assert plan.static


def test_chunks_go_round_the_workers(tmp_path: Path) -> None:
    plan = CutsPlan(BLOCKS, [[1, 2, 4]], 2, chunks=2)
    assert [plan.worker(7, 0, block) for block in BLOCKS] == [0, 1, 0, 0, 1]
    assert [plan.stretch(7, 0, block) for block in BLOCKS] == [0, 1, 2, 2, 3]
    (tmp_path / "cuts.json").write_text(plan.to_json())
    assert load_cuts(tmp_path / "cuts.json", BLOCKS, 2).chunks == 2
    with pytest.raises(UserError, match="2 workers with 2 chunks each need 3 sorted cuts"):
        CutsPlan(BLOCKS, [[1]], 2, chunks=2)


def test_a_place_may_look_at_the_micro_batch() -> None:
    """Even micro-batches down, odd ones up."""
    plan = CutsPlan(BLOCKS, [[2]], 2, place=lambda y, j, s: 1 - s if (y + j) % 2 else s, per_micro_batch=True)
    assert [plan.worker(0, j, "stem") for j in range(3)] == [0, 1, 0]
    assert not plan.static
    plans = Plans([PlanEpoch(0, plan), PlanEpoch(2, CutsPlan(BLOCKS, [[2]], 2))])
    assert [plans.spread(y, "head", 3) for y in range(3)] == [(1, 0, 1), (0, 1, 0), (1, 1, 1)]


def test_cuts_differ_between_subnets_and_start_again() -> None:
    plan = CutsPlan(BLOCKS, [[1], [4]], 2)
    assert [plan.worker(y, 0, "blocks.1") for y in range(4)] == [1, 0, 1, 0]
    assert not plan.static


def test_epochs_change_owners_at_a_seq_id() -> None:
    plans = Plans([PlanEpoch(0, CutsPlan(BLOCKS, [[1]], 2)), PlanEpoch(10, CutsPlan(BLOCKS, [[5]], 2))])
    assert [plans.worker(y, 0, "head") for y in (0, 9, 10, 99)] == [1, 1, 0, 0]
    assert not plans.static


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cuts.json"
    path.write_text(CutsPlan(BLOCKS, [[1, 3], [2, 2]], 3).to_json())
    assert load_cuts(path, BLOCKS, 3).cuts == [[1, 3], [2, 2]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot read the plan"),
        ("[]", r"must be a profile, or JSON with .*; it has \[\]"),
        ('{"format": "other", "cuts": [[1]]}', "sennit.cuts/1.* it has keys 'format', 'cuts', format 'other'"),
        ('{"format": "sennit.cuts/1", "cut": [[1]]}', "it has keys 'format', 'cut', format 'sennit.cuts/1'"),
        ('{"format": "sennit.cuts/1", "cuts": [[1, 2]]}', "2 workers need 1 sorted cuts"),
        ('{"format": "sennit.cuts/1", "cuts": [[9]]}', "between 0 and 5"),
        ('{"format": "sennit.cuts/1", "cuts": [3]}', "list of lists"),
        (json.dumps({"format": "sennit.cuts/1", "cuts": [[1]], "blocks": ["a"]}), "made for 1 blocks, the space has 5"),
    ],
)
def test_files_that_do_not_fit(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "cuts.json"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        load_cuts(path, BLOCKS, 2)


def test_a_block_that_no_covering_arch_has() -> None:
    """The message spoke of another space."""
    with pytest.raises(UserError, match=r"no plan places ':add#2', .* for some combination .* put it into a candidate"):
        CutsPlan(["a", "b", ":add#1"], [[1]], workers=2).worker(0, 0, ":add#2")


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_cuts(tmp_path / "cuts.json", BLOCKS, 2)
    assert str(caught.value) == f"cannot read the plan {tmp_path / 'cuts.json'}: No such file or directory"
