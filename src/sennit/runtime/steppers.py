"""Who steps which groups: numbers of groups, and those that one worker steps for every subnet."""

from __future__ import annotations

from collections.abc import Mapping

from sennit.plan.plan import Plans
from sennit.plan.stepper import stepper
from sennit.profile.quick import block_order
from sennit.supernet.build import Built


def group_numbers(built: Built) -> dict[str, int]:
    """A number of each parameter group, by which workers that share a run take turns at stepping.

    Groups of one block count on from the block's position, so that one subnet's are dealt out evenly whatever its
    choices are.
    """
    position = {block: i for i, block in enumerate(block_order(built))}
    numbers: dict[str, int] = {}
    for program in built.covering:
        found: dict[str, int] = {}
        for step in program.steps:
            for group in built.groups.of_step(step)[0]:
                numbers.setdefault(group, position[step.block] + found.get(step.block, 0))
                found[step.block] = found.get(step.block, 0) + 1
    return numbers


def lone_steppers(built: Built, plans: Plans, numbers: Mapping[str, int]) -> dict[str, int]:
    """Parameter groups that one worker steps for every subnet, with that worker."""
    found: dict[str, set[int]] = {}
    unknown: set[str] = set()
    for program in built.covering:
        for step in program.steps:
            members = plans.members(step.block)
            for group in built.groups.of_step(step)[0]:
                if members is None:
                    unknown.add(group)
                else:
                    found.setdefault(group, set()).add(stepper(members, numbers[group]))
    return {group: min(held) for group, held in found.items() if len(held) == 1 and group not in unknown}


def readers_of(built: Built, plans: Plans, lone: Mapping[str, int]) -> dict[str, frozenset[int]]:
    """Of groups that one worker alone steps, all workers that use them."""
    found = dict.fromkeys(lone, frozenset[int]())
    for program in built.covering:
        for step in program.steps:
            for group in built.groups.of_step(step)[0]:
                if group in lone:
                    found[group] |= plans.members(step.block) or frozenset()
    return found
