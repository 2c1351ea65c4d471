"""The order of a run's tasks: a policy and the setting that workers fill in, as the simulator does.

Fixed orders are lists over stages. A worker's runs are stages if every subnet passes every stretch of the network once,
so that is what they ask for; causal order takes runs as they come.
"""

from __future__ import annotations

from dataclasses import replace

from sennit.errors import UserError
from sennit.plan.plan import Place
from sennit.recipe import Placement, Recipe
from sennit.runtime.subnet import Subnet
from sennit.schedule.policy import Policy, policy
from sennit.schedule.setting import Setting


def name_of_policy(recipe: Recipe, placement: Placement) -> str:
    """The policy that a placement names, or the one that goes with the recipe's `sync`."""
    return placement.schedule or ("pipedream" if recipe.sync_rule.kind == "asp" else "csp")


def policy_of(recipe: Recipe, placement: Placement) -> Policy:
    """The policy of that name."""
    return policy(name_of_policy(recipe, placement))


def settled(recipe: Recipe, placement: Placement) -> Placement:
    """The placement with what its schedule decides filled in.

    Raises:
        UserError: a schedule that does not go with the recipe or with the rest of the placement.
    """
    held, rule, name = policy_of(recipe, placement), recipe.sync_rule, name_of_policy(recipe, placement)
    if rule.kind not in held.rules:
        raise UserError(
            f"--schedule {name} runs under {' or '.join(held.rules)}, the recipe says {recipe.sync!r}: write sync = "
            f'"{held.sync}" and allow_nondeterministic = true in the recipe, with no global clip and no shared = '
            '"delayed:K", which wait for others; or leave out --schedule'
        )
    if held.per_micro_batch:
        _refuse_fixed_places(recipe, placement)
    if placement.replicas > 1:
        _refuse_replicas(recipe, placement, held)
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


def place_of(recipe: Recipe, placement: Placement) -> Place:
    """Seq id, micro-batch and stage to the worker, wherever the policy puts it.

    Args:
        placement: settled, since rounds are as long as subnets may be in flight.
    """
    return policy_of(recipe, placement).placed(setting_of(recipe, placement))


def refuse_detours(subnet: Subnet, recipe: Recipe, placement: Placement) -> None:
    """Under a fixed order each subnet must pass every stage once, in turn.

    Raises:
        UserError: one does not.
    """
    y, place, name = subnet.seq_id, place_of(recipe, placement), placement.schedule or f"sync = {recipe.sync!r}"
    wanted = [place(y, 0, s) for s in range(placement.workers * placement.chunks)]
    found = [spread[0] for spread in subnet.spread]
    if found != wanted:
        raise UserError(
            f"{name}: a fixed order needs every subnet to pass every stage once, on workers {wanted}; subnet "
            f"{y} passes {found}. Use --schedule csp with sync = 'csp' or 'bulk:K', or fewer workers or "
            "chunks"
        )
    if placement.workers > 1 and (placement.chunks > 1 or policy_of(recipe, placement).per_micro_batch):
        _refuse_buffers_of_several_stages(subnet, name)


def _refuse_replicas(recipe: Recipe, placement: Placement, held: Policy) -> None:
    """What does not go with stages of several workers.

    Raises:
        UserError: a fixed list, or a rule without versions.
    """
    if fixed(held):
        raise UserError(
            f"--replicas {placement.replicas}: --schedule {name_of_policy(recipe, placement)} is an order of stages "
            "with one worker each; leave out --replicas, or take --schedule csp with sync = 'csp' or 'bulk:K'"
        )
    if recipe.sync_rule.kind == "asp":
        raise UserError(
            f"--replicas {placement.replicas} has every stage on several workers, and sync = {recipe.sync!r} reads "
            "whatever is there, so each layer must stay with one; use sync = 'csp' or 'bulk:K', or leave out --replicas"
        )


def _refuse_fixed_places(recipe: Recipe, placement: Placement) -> None:
    """What does not go with stages that have several workers.

    Raises:
        UserError: a plan file, or a rule without versions.
    """
    name, several = placement.schedule, "has every stage on several workers, by micro-batch"
    if placement.plan is not None:
        raise UserError(
            f"--schedule {name} {several}, and the plan {placement.plan} has it on one; leave out --plan, or take "
            "--schedule gpipe or 1f1b"
        )
    if recipe.sync_rule.kind == "asp":
        raise UserError(
            f"--schedule {name} {several}, and sync = {recipe.sync!r} reads whatever is there, so each layer must stay "
            "with one; use sync = 'csp' or 'bulk:K', or leave out --schedule"
        )


def _refuse_buffers_of_several_stages(subnet: Subnet, name: str) -> None:
    """Forwards write buffers in the order of micro-batches. If one is written by the first and the last stage, each
    micro-batch must have passed both before the next one sets out, which lists of several stages do not wait for.

    Raises:
        UserError: such a buffer.
    """
    stages: dict[str, list[int]] = {}
    for run in subnet.runs:
        for group, _ in subnet.first_moves(run):
            stages.setdefault(group, []).append(run.index)
    for group, found in stages.items():
        if len(found) > 1:
            raise UserError(
                f"{name}: buffers {group} are written on stages {found} of subnet {subnet.seq_id}; micro-batches write "
                "them in turn, so each must have passed the last of these stages before the next one sets out, and a "
                "worker with several stages would wait for ever. Use --schedule gpipe, 1f1b or csp"
            )
