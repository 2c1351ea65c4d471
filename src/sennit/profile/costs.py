"""`Costs`: what runs of steps take, whoever says so: times by block (`Waits`) or by step (`Profile`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from sennit.profile.profile import Profile, is_profile, read_profile
from sennit.profile.quick import block_order
from sennit.profile.waits import Waits
from sennit.program.step import Step
from sennit.simulate.load import Cost
from sennit.supernet.build import Built


class Costs(Protocol):
    """Seconds of one micro-batch."""

    def of_steps(self, steps: Iterable[Step]) -> Cost:
        """Of steps that are run in one piece."""
        ...


def read_costs(path: Path, built: Built) -> Costs:
    """A file of waits, or a profile.

    Raises:
        UserError: neither, or one of another space.
    """
    if not is_profile(path):
        return Waits.read(path, block_order(built))
    return profile_for(path, built)


def profile_for(path: Path, built: Built) -> Profile:
    """A profile of this space.

    Raises:
        UserError: unreadable, or of another space.
    """
    profile = read_profile(path)
    profile.check(path, (step.name for program in built.covering for step in program.steps if step.kind != "shape"))
    return profile


def rows_of(built: Built) -> int:
    """Samples in a micro-batch of the recipe, the largest one."""
    return -(-built.recipe.batch_size // built.recipe.micro_batches)


def told_of_rows(path: Path, built: Built, so: str) -> str:
    """What to say of a profile of other micro-batches than the recipe's; else nothing.

    Args:
        so: what is done with its times.
    """
    if not is_profile(path):
        return ""
    measured, rows = read_profile(path).micro_batch, rows_of(built)
    if measured == rows:
        return ""
    return (
        f"{path} was measured with micro-batches of {measured} samples, the recipe has {rows}: its times are {so}. "
        "Measure again with `sennit profile` for this recipe's own"
    )


def mean_costs(built: Built, costs: Costs) -> list[float]:
    """Seconds of forward and backward of each block, in program order: the mean over programs that run every candidate
    once."""
    found: dict[str, list[float]] = {block: [] for block in block_order(built)}
    for program in built.covering:
        of: dict[str, list[Step]] = {}
        for step in program.steps:
            of.setdefault(step.block, []).append(step)
        for block, steps in of.items():
            cost = costs.of_steps(steps)
            found[block].append(cost.forward + cost.whole)
    return [sum(seconds) / len(seconds) for seconds in found.values()]
