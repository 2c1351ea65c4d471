"""Runs that are stopped early, and what they must find when they go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import CheckpointError, UserError
from sennit.recipe import Placement
from sennit.runtime.pipeline import Pipeline
from sennit.runtime.scheduling import settled
from sennit.runtime.segment import State
from sennit.supernet.hashes import hash_tensors
from sennit.supernet.samplers import Result
from sennit.supernet.sync import delayed_words
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_sync_rules import CHAIN

STEPS, ENOUGH = 16, 3


def to_the_end(made: Any, placement: Placement, logs: Path, stop: bool) -> tuple[str, int, dict[str, list[int]]]:
    """Train, stopped once after some subnets or not at all.

    Returns:
        The hash of the weights, where the first part ended, and its versions.
    """
    seen: list[Result] = []
    cut, state = 0, None
    versions: dict[str, list[int]] = {}
    if stop:
        with Pipeline(made, placement, logs, on_result=seen.append) as first:
            cut = first.run_to(STEPS, lambda: len(seen) >= ENOUGH).limit
            versions = first.versions()
            weights = {name: t.clone() for name, t in first.weights().items()}
            optimizer = {name: t.clone() for name, t in first.optimizer_state().items()}
            state = State(weights, optimizer, versions)
    with Pipeline(made, placement, logs, start=cut, state=state, earlier=seen) as rest:
        rest.run_to(STEPS, lambda: False)
        return hash_tensors(rest.hashed_weights()), cut, versions


@pytest.mark.parametrize("lag", [2, 3, 8])
@pytest.mark.parametrize("placed", [{}, {"in_flight": 1}, {"schedule": "gpipe"}, {"workers": 3, "schedule": "1f1b"}])
def test_a_stopped_run_has_applied_no_gradient_too_many(lag: int, placed: dict[str, Any], tmp_path: Path) -> None:
    """However few subnets are in flight: the gradient of x is the step of x + K - 1, and that one may not have come."""
    made = recipe(**{**CHAIN, "steps": STEPS, "shared": f"delayed:{lag}", "clip": "none"})
    placement = settled(made, Placement(**{"workers": 2, **placed}))
    whole = to_the_end(made, placement, tmp_path / "whole.jsonl", stop=False)[0]
    stopped, cut, versions = to_the_end(made, placement, tmp_path / "stopped.jsonl", stop=True)
    assert ENOUGH <= cut < STEPS
    groups = [g for g in made.built.always[0] if made.built.groups.by_name[g].kind == "parameters"]
    assert groups and all(versions[group] == delayed_words(cut, lag) for group in groups)
    assert stopped == whole


def test_a_checkpoint_whose_versions_have_moved_on_is_refused(tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "shared": "delayed:3"})
    run(made, tmp_path / "run", steps=8)
    file = next((tmp_path / "run" / "checkpoints").glob("*8/state.json"))
    text = json.loads(file.read_text())
    assert json.dumps([5, 6, 7])[1:-1] in json.dumps(text)
    file.write_text(json.dumps(text).replace("[5, 6, 7]", "[6, 7]"))
    for engine in ("pipeline", "plain"):
        with pytest.raises(CheckpointError):
            run(made, tmp_path / "run", engine=engine, resume=True)


def test_an_asynchronous_run_goes_on_with_its_schedule(tmp_path: Path) -> None:
    """Its result depends on it."""
    made = recipe(**{**CHAIN, "sync": "asp:stash"})
    run(made, tmp_path / "run", workers=2, steps=8)
    for placed, said in (
        ({"schedule": "gpipe"}, r"the schedule is part of the result, and .* began with pipedream; go on with"),
        ({"in_flight": 2}, r"--in-flight is part of the result"),
        ({"workers": 3}, r"the number of workers is part of the result"),
    ):
        with pytest.raises(UserError, match=said):
            run(made, tmp_path / "run", **{"workers": 2, **placed}, resume=True)
    again = run(made, tmp_path / "run", workers=2, schedule="pipedream", resume=True)
    other = run(made, tmp_path / "other", workers=2, steps=8)
    assert again["steps"] > other["steps"] and hashes(again) != hashes(other)
