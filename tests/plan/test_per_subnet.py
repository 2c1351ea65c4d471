"""Each subnet is cut by its own costs."""

from __future__ import annotations

from collections.abc import Sequence

from sennit.plan.per_subnet import PerSubnet
from sennit.plan.plan import PlanEpoch, Plans

BLOCKS = ["b0", "b1", "b2", "b3"]
COSTS = {"light": 1.0, "heavy": 3.0}


def cost(steps: Sequence[str]) -> float:
    return sum(COSTS[step.partition(".")[2]] for step in steps)


def subnet(*layers: str) -> list[tuple[str, str]]:
    return [(f"{block}.{layer}", block) for block, layer in zip(BLOCKS, layers, strict=True)]


SEVEN = subnet("light", "light", "light", "heavy")
EIGHT = subnet("heavy", "light", "light", "light")


def workers(plans: Plans, seq_id: int) -> list[int]:
    return [plans.worker(seq_id, 0, block) for block in BLOCKS]


def test_the_drawing_of_the_docstring() -> None:
    plans = Plans([PlanEpoch(0, PerSubnet(BLOCKS, 2, 1, cost))])
    plans.tell(7, SEVEN)
    plans.tell(8, EIGHT)
    assert workers(plans, 7) == [0, 0, 0, 1]
    assert workers(plans, 8) == [0, 1, 1, 1]
    assert plans.spread(8, "b3", 3) == (1, 1, 1)
    assert not plans.static


def test_what_is_done_is_forgotten() -> None:
    plan = PerSubnet(BLOCKS, 2, 1, cost)
    for seq_id in (7, 8):
        plan.tell(seq_id, SEVEN)
    plan.forget(8)
    assert list(plan.known) == [8]


def test_layers_stay_where_they_were_if_balance_allows() -> None:
    """Subnet 9 is as balanced with its cut before b2 as before b3 within the slack; what was on worker 0 stays."""
    nine = subnet(*["light"] * 4)
    loose, strict = (PerSubnet(BLOCKS, 2, 1, cost, sizes=len, slack=slack) for slack in (0.5, 0.0))
    for plan in (loose, strict):
        plan.tell(7, SEVEN)
        plan.tell(9, nine)
    assert loose.cuts_of(7) == strict.cuts_of(7) == [3]
    assert loose.cuts_of(9) == [3], "b0, b1 and b2 light are on worker 0"
    assert strict.cuts_of(9) == [2]


def test_a_block_without_steps_costs_nothing() -> None:
    """A `Repeat` of depth 2 of 4."""
    plan = PerSubnet(BLOCKS, 2, 1, cost)
    plan.tell(0, subnet("heavy", "light", "light", "light")[:2])
    assert plan.cuts_of(0) == [1]
