"""The simulator, at recorded moments, takes the tasks that workers took, and notices if they had taken others."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from sennit.profile.waits import Waits
from sennit.recipe import CheckpointRule, Placement, Recipe
from sennit.runtime.forecast import RecipeLoad
from sennit.runtime.placing import plans_of
from sennit.runtime.replay import replay
from sennit.runtime.request import Request
from sennit.runtime.scheduling import settled
from sennit.runtime.train import train
from sennit.trace.events import read_call

STRAND = Path(__file__).parents[2] / "acceptance" / "schedules"
DEPTH, SUBNETS = 8, 6
RULES = {"chimera": "bulk:2", "pipedream": "asp:stash"}

ORDERS = {
    "csp": Placement(schedule="csp", workers=3, chunks=2, split=True, release="layer"),
    "csp, replicas": Placement(schedule="csp", workers=4, replicas=2),
    "chimera": Placement(schedule="chimera", workers=4),
    "naspipe": Placement(schedule="naspipe", workers=3),
    "pipedream": Placement(schedule="pipedream", workers=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDERS)
def test_simulator_takes_the_tasks_that_workers_took(name: str, tmp_path: Path) -> None:
    rows = {f"blocks.{i}": {"forward": 0.002 + i / 1e4, "backward": 0.004} for i in range(DEPTH)}
    waits = tmp_path / "waits.json"
    waits.write_text(json.dumps({"format": "sennit.waits/1", "blocks": rows}))
    recipe = Recipe(
        space="strand.py:Strand", data="strand.py:Points", batch_size=8, steps=SUBNETS, micro_batches=2,
        sync=RULES.get(name, "csp"), base=str(STRAND), space_args={"depth": DEPTH},
        optimizer={"name": "sgd"}, checkpoint=CheckpointRule(every=10**6),
    )  # fmt: skip
    placement = replace(ORDERS[name], device="virtual", waits=str(waits))
    train(Request(recipe=recipe, placement=placement, out=tmp_path / "run"))
    trace = read_call(tmp_path / "run" / "trace.jsonl")
    held, told = settled(recipe, placement), Waits.read(waits, list(rows))
    load = RecipeLoad(recipe, held, plans_of(recipe.built, held, waits=told), told, SUBNETS)

    same, tasks = replay(load, trace.spans, trace.counters)
    assert same == tasks > 0

    mine = sorted((s for s in trace.spans if s.kind in "FBIW" and not s.worker), key=lambda span: span.start)
    early, late = next((a, b) for a, b in pairwise(mine) if b.ready < a.start and a.kind == b.kind)
    swapped = [s for s in trace.spans if s not in (early, late)]
    swapped += [early._replace(start=late.start, end=late.end), late._replace(start=early.start, end=early.end)]
    same, _ = replay(load, swapped, trace.counters)
    assert same < tasks
