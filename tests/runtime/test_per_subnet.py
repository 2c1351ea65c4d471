"""A plan that cuts each subnet by its own costs changes no bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sennit.errors import UserError
from sennit.profile.profile import Profile
from sennit.recipe import Placement
from sennit.runtime.forecast import RecipeLoad
from sennit.runtime.placing import known_costs, plans_of
from sennit.runtime.profiling import measure
from sennit.runtime.scheduling import settled
from sennit.trace.events import read_call
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_chimera import TIED
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN

CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "sink": ({}, [{"workers": 2}, {"workers": 3}]),
    "chunks, split": ({"sync": "bulk:4"}, [{"workers": 2, "chunks": 2, "split": True, "release": "layer"}]),
    "fixed order": ({**TIED, "sync": "bulk:4", "micro_batches": 2}, [{"workers": 2, "schedule": "1f1b"}]),
    "delayed": ({"shared": "delayed:3"}, [{"workers": 2, "in_flight": 3}]),
    "learning": ({"sampler": "sink.py:cycle"}, [{"workers": 2}]),
}


def profile_of(changes: dict[str, Any], folder: Path) -> Path:
    """A profile in which the times of kinds are far apart, so that cuts wander."""
    made = measure(recipe(**changes), torch.device("cpu"), each_s=0.0)
    kinds = [
        {**vars(kind), "forward": float(1 + 7 * i % 5), "backward": float(1 + 5 * i % 7)}
        for i, kind in enumerate(made.kinds)
    ]
    path = folder / "p.json"
    Profile(**{**vars(made), "kinds": [type(made.kinds[0])(**kind) for kind in kinds]}).write(path)
    return path


@pytest.mark.parametrize("case", CASES)
def test_the_bits_of_the_plain_loop(case: str, tmp_path: Path) -> None:
    changes, placed = CASES[case]
    made, plan = recipe(**changes), str(profile_of(changes, tmp_path))
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    for i, placement in enumerate(placed):
        assert hashes(run(made, tmp_path / f"{i}", plan=plan, **placement)) == plain, placement
        assert not violations(tmp_path / f"{i}"), placement


def test_layers_wander_between_workers(tmp_path: Path) -> None:
    made, plan = recipe(**CHAIN), str(profile_of(CHAIN, tmp_path))
    run(made, tmp_path / "run", plan=plan, workers=2)
    ran = {(s.seq_id, s.run): s.worker for s in read_call(tmp_path / "run" / "trace.jsonl").spans if s.kind == "F"}
    placement = Placement(workers=2, plan=plan)
    plans = plans_of(made.built, settled(made, placement))
    load = RecipeLoad(made, placement, plans, known_costs(made.built), made.steps)
    where = [tuple(plans.worker(y, 0, r.steps[0].block) for r in runs) for y, runs in enumerate(load.runs())]
    assert where == [tuple(ran[y, r] for r in range(len(w))) for y, w in enumerate(where)]
    cuts = {tuple(plans.worker(y, 0, f"blocks.{i}") for i in range(6)) for y in range(made.steps)}
    assert len(cuts) > 1


def test_going_on_under_another_plan(tmp_path: Path) -> None:
    made, plan = recipe(), str(profile_of({}, tmp_path))
    plain = run(made, tmp_path / "plain", engine="plain")
    run(made, tmp_path / "run", steps=7, workers=3)
    last = run(made, tmp_path / "run", resume=True, workers=2, plan=plan)
    assert hashes(last) == hashes(plain)


def test_a_profile_of_another_space(tmp_path: Path) -> None:
    plan = str(profile_of(CHAIN, tmp_path))
    with pytest.raises(UserError, match=r"does not know \d+ of \d+ steps of this space, such as .* `sennit profile`"):
        run(recipe(), tmp_path / "run", workers=2, plan=plan)


def test_asynchronous_rules_want_layers_to_stay(tmp_path: Path) -> None:
    changes = {**CHAIN, "sync": "asp:stash"}
    with pytest.raises(UserError, match="each layer must stay with one worker"):
        run(recipe(**changes), tmp_path / "run", workers=2, plan=str(profile_of(changes, tmp_path)))
