"""The order of a run's tasks: a policy and the setting that workers fill in, as the simulator does.

Fixed orders are lists over stages. A worker's runs are stages if every subnet passes every stretch of the network once,
so that is what they ask for; causal order takes runs as they come.
"""

from __future__ import annotations

from dataclasses import replace

from sennit.errors import UserError
from sennit.recipe import Placement, Recipe
from sennit.runtime.subnet import Subnet
from sennit.schedule.policy import Policy, looped, policy
from sennit.schedule.setting import Setting


def policy_of(recipe: Recipe, placement: Placement) -> Policy:
    """The policy that a placement names, or the one that goes with the recipe's `sync`."""
    return policy(placement.schedule or ("pipedream" if recipe.sync_rule.kind == "asp" else "csp"))


def settled(recipe: Recipe, placement: Placement) -> Placement:
    """The placement with what its schedule decides filled in.

    Raises:
        UserError: a schedule that does not go with the recipe or with the rest of the placement.
    """
    held, rule, name = policy_of(recipe, placement), recipe.sync_rule, placement.schedule
    if rule.kind not in held.rules:
        raise UserError(f"--schedule {name} runs under {' or '.join(held.rules)}, the recipe says {recipe.sync!r}")
    if held.per_micro_batch:
        raise UserError(
            f"--schedule {name} places micro-batches on different workers: it can be simulated, not run yet"
        )
    if rule.kind == "asp" and not fixed(held) and not recipe.allow_nondeterministic:
        raise UserError(
            f"--schedule {name} runs whatever is ready, so its result depends on times: set allow_nondeterministic = "
            "true in the recipe, or leave it out for PipeDream's order"
        )
    if placement.release not in held.releases:
        raise UserError(f"--schedule {name} knows stages only; leave out --release {placement.release}")
    if placement.split and held.split is False:
        raise UserError(f"--schedule {name} has whole backwards; leave out --split, or take zero-bubble")
    if placement.chunks > 1 and not held.chunked:
        raise UserError(f"--schedule {name} fixes the number of chunks; leave out --chunks {placement.chunks}")
    if not fixed(held):
        return placement
    setting = setting_of(recipe, placement)
    in_flight = placement.in_flight or held.in_flight(setting)
    chunks = max(1, held.stages(setting) // placement.workers)
    return replace(placement, in_flight=in_flight, chunks=chunks, split=placement.split or held.split is True)


def in_flight_of(recipe: Recipe, placement: Placement) -> int:
    """Most unfinished subnets: as many as told, or enough to fill the workers and a bulk."""
    bulk = recipe.sync_rule.bulk(placement.workers)
    return placement.in_flight or max(2 * placement.workers, bulk + placement.workers if bulk > 1 else 0)


def fixed(held: Policy) -> bool:
    """Whether a policy is a list over stages."""
    return "layer" not in held.releases


def setting_of(recipe: Recipe, placement: Placement, start: int = 0) -> Setting:
    """What orders may know before the run."""
    rule = recipe.sync_rule
    return Setting(
        workers=placement.workers, micro_batches=recipe.micro_batches, chunks=placement.chunks,
        bulk=rule.bulk(placement.workers), in_flight=max(1, placement.in_flight), asynchronous=rule.kind == "asp",
        split=placement.split, start=start,
    )  # fmt: skip


def stage_worker(recipe: Recipe, placement: Placement, stage: int) -> int:
    """The worker of a stage, wherever the policy puts it."""
    held = policy_of(recipe, placement)
    if held.place is looped:
        return stage % placement.workers
    return held.place(setting_of(recipe, placement), stage, 0)


def refuse_detours(subnet: Subnet, recipe: Recipe, placement: Placement) -> None:
    """Under a fixed order each subnet must pass every stage once, in turn.

    Raises:
        UserError: one does not.
    """
    wanted = [stage_worker(recipe, placement, s) for s in range(placement.workers * placement.chunks)]
    found = [run.worker for run in subnet.runs]
    if found != wanted:
        name = placement.schedule or f"sync = {recipe.sync!r}"
        raise UserError(
            f"{name}: a fixed order needs every subnet to pass every stage once, on workers {wanted}; subnet "
            f"{subnet.seq_id} passes {found}. Use --schedule csp with sync = 'csp' or 'bulk:K', or fewer workers or "
            "chunks"
        )
