"""Where blocks run: the plan of a placement, and which groups it makes several workers use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from sennit.errors import UserError
from sennit.plan.balance import balanced_cuts
from sennit.plan.per_subnet import PerSubnet
from sennit.plan.plan import CutsPlan, Plan, PlanEpoch, Plans, load_cuts
from sennit.plan.replicated import Replicated
from sennit.profile.costs import Costs, mean_costs, profile_for, read_costs
from sennit.profile.profile import is_profile
from sennit.profile.quick import block_costs, block_order
from sennit.profile.waits import Waits
from sennit.recipe import Placement
from sennit.runtime.forked import in_child
from sennit.runtime.scheduling import place_of, policy_of
from sennit.supernet.build import Built


def waits_of(built: Built, placement: Placement, home: Callable[[str], Tensor] | None) -> Costs | None:
    """What virtual devices wait: a file, or what blocks take here."""
    if placement.device != "virtual":
        return None
    if placement.waits is not None:
        return read_costs(Path(placement.waits), built)
    assert home is not None
    return Waits.measured(_measured(built, home))


def known_costs(built: Built) -> Waits:
    """What has been measured; else every block is taken to cost the same."""
    return Waits.measured(built.block_s or dict.fromkeys(block_order(built), 1.0))


def cut_by(built: Built, placement: Placement) -> Costs:
    """What a run's plan took blocks to take: what it was told, or has measured; else every block the same."""
    return known_costs(built) if placement.waits is None else read_costs(Path(placement.waits), built)


def _measured(built: Built, home: Callable[[str], Tensor]) -> dict[str, float]:
    if not built.block_s:
        built.block_s = in_child(lambda: block_costs(built, home, block_order(built)))
    return built.block_s


def plans_of(
    built: Built, placement: Placement, home: Callable[[str], Tensor] | None = None, waits: Costs | None = None
) -> Plans:
    """A file of cuts, a profile by which each subnet is cut, or one balanced partition for all.

    Args:
        home: memory of a tensor by name, to measure blocks with. Under asynchronous rules, where the plan is part of
            the result, nothing is measured: every worker gets as many blocks.
        waits: told instead of measured.
    """
    n, v, blocks = placement.depth, placement.chunks, block_order(built)
    if placement.plan is not None:
        return Plans([PlanEpoch(0, _replicated(built, placement, read_plan(Path(placement.plan), built, n, v)))])
    if placement.workers == 1:
        return Plans([PlanEpoch(0, CutsPlan(blocks, [[]], 1))])
    if built.recipe.sync_rule.kind == "asp":
        costs = [1.0] * len(blocks)
    elif waits is not None:
        costs = mean_costs(built, waits)
    else:
        assert home is not None
        measured = _measured(built, home)
        costs = [measured[b] for b in blocks]
    cuts = [balanced_cuts(costs, n * v)]
    if placement.replicas > 1:
        return Plans([PlanEpoch(0, _replicated(built, placement, CutsPlan(blocks, cuts, n, v), costs))])
    held = policy_of(built.recipe, placement)
    place = place_of(built.recipe, placement)
    plan = CutsPlan(blocks, cuts, n, v, place, held.per_micro_batch)
    return Plans([PlanEpoch(0, plan)])


def _replicated(built: Built, placement: Placement, plan: CutsPlan, costs: Sequence[float] | None = None) -> Plan:
    """The plan, with stages of as many workers as the placement says."""
    if placement.replicas == 1:
        return plan
    return Replicated(plan, placement.replicas, built.recipe.micro_batches, writing_blocks(built), costs)


def writing_blocks(built: Built) -> frozenset[str]:
    """Blocks with a candidate whose forward writes buffers."""
    kept = built.always[1] if built.recipe.sharing.kind == "frozen" else frozenset[str]()
    steps = [step for program in built.covering for step in program.steps]
    return frozenset(step.block for step in steps if set(built.groups.of_step(step)[1]) - kept)


def read_plan(path: Path, built: Built, workers: int, chunks: int) -> CutsPlan:
    """A file of cuts, or a profile by which each subnet is cut.

    Raises:
        UserError: neither; or one of another space.
    """
    blocks = block_order(built)
    if not is_profile(path):
        return load_cuts(path, blocks, workers)
    profile = profile_for(path, built)

    def seconds(steps: Sequence[str]) -> float:
        cost = profile.of(steps)
        return cost.forward + cost.whole

    return PerSubnet(blocks, workers, chunks, seconds)


def refuse_races(built: Built, placement: Placement) -> None:
    """Under asynchronous rules a group that several workers use would be read whenever they happen to."""
    recipe = built.recipe
    if recipe.sync_rule.kind == "asp" and (wander := wandering(built, plans_of(built, placement))):
        raise UserError(
            f"sync = {recipe.sync!r} reads whatever is there, so each layer must stay with one worker; "
            f"{', '.join(sorted(wander)[:3])} would be used by several. Use sync = 'csp' or 'bulk:K', another plan, "
            "or one worker"
        )


def wandering(built: Built, plans: Plans) -> frozenset[str]:
    """Groups that more than one worker uses: all of a block that the plan moves, and those with steps on several
    workers."""
    if plans.workers == 1:
        return frozenset()
    users: dict[str, set[int]] = {}
    moving: set[str] = set()
    for program in built.covering:
        for step in program.steps:
            workers = plans.members(step.block)
            read, moved = built.groups.of_step(step)
            for group in (*read, *moved):
                if workers is None:
                    moving.add(group)
                else:
                    users.setdefault(group, set()).update(workers)
    return frozenset(moving | {group for group, workers in users.items() if len(workers) > 1})


def heir_of(group: str, built: Built, plans: Plans) -> int:
    """Who steps a group for subnets that no worker has run: one that uses it, since on a device of its own the others
    would not see it. Where blocks move, all of them see it."""
    blocks = [step.block for step in built.covering[0].steps if group in built.groups.of_step(step)[0]]
    users = [min(workers) for block in blocks if (workers := plans.members(block)) is not None]
    return min(users) if blocks and len(users) == len(blocks) else 0
