"""`Costs`: what runs of steps take, whoever says so: times by block (`Waits`) or by step (`Profile`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sennit.errors import UserError
from sennit.profile.profile import Profile, is_profile, read_profile
from sennit.profile.quick import block_order
from sennit.profile.waits import Waits
from sennit.program.step import Step
from sennit.simulate.load import Cost
from sennit.space.names import unique_tensors
from sennit.supernet.build import Built


class Costs(Protocol):
    """Seconds of one micro-batch."""

    def of_steps(self, steps: Iterable[Step]) -> Cost:
        """Of steps that are run in one piece."""
        ...


@dataclass(frozen=True)
class Scaled:
    """Costs of a micro-batch with `by` times as many rows, if they take `by` times as long."""

    costs: Costs
    by: float

    def of_steps(self, steps: Iterable[Step]) -> Cost:
        """Of steps that are run in one piece."""
        return Cost(*(seconds * self.by for seconds in self.costs.of_steps(steps)))


def read_costs(path: Path, built: Built) -> Costs:
    """A file of waits; or a profile, scaled to the recipe's micro-batches.

    Raises:
        UserError: neither, or one of another space.
    """
    if not is_profile(path):
        return Waits.read(path, block_order(built))
    profile = profile_for(path, built)
    by = rows_of(built) / profile.micro_batch
    return profile if by == 1.0 else Scaled(profile, by)


def profile_for(path: Path, built: Built) -> Profile:
    """A profile of this space.

    Raises:
        UserError: unreadable, or of another space.
    """
    profile = read_profile(path)
    steps = [step for program in built.covering for step in program.steps if step.kind != "shape"]
    profile.check(path, (step.name for step in steps))
    like = unique_tensors(built.recordings.skeleton)
    for step in steps:
        kind, size = profile.kind(step.name), sum(like[name].nbytes for name in step.params)
        if kind is not None and kind.parameter_bytes != size:
            raise UserError(
                f"the profile {path} is of another space: {step.name} has {size:,} bytes of parameters here, and "
                f"{kind.parameter_bytes:,} there; measure it again with `sennit profile`"
            )
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
