"""`Exchange`: what replicas send each other for each subnet, in the prediction.

    gradients of a run ──▶ those who step them ── step ── weights ──▶ the other replicas

Each of R replicas steps its share of the groups, and a link between two GPUs carries as much both ways at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sennit.recipe import Recipe
from sennit.space.names import unique_tensors


@dataclass(frozen=True)
class Exchange:
    """The way between two GPUs.

    Attributes:
        between: bytes a second.
        message_s: seconds from the end of one thing on one device to the beginning of the next on another.
    """

    between: float
    message_s: float

    def reach(self, sizes: Sequence[int], replicas: int) -> float:
        """Seconds besides the step until all replicas have the new versions of a run's groups, of so many bytes."""
        if replicas == 1 or not sizes:
            return 0.0
        # R - 1 others send their gradients of a share of the groups, and get its weights
        return 2 * (self.message_s + (replicas - 1) * sum(sizes) / replicas / self.between)


def exchange_of(device: str, links: Mapping[str, float], message_s: float) -> Exchange | None:
    """By the bandwidths of a profile; None where replicas share memory, or nothing is known of the way between."""
    between = [rate for name, rate in links.items() if name.startswith("device to device")]
    return Exchange(min(between), message_s) if device == "cuda" and between else None


def group_sizes(recipe: Recipe) -> dict[str, int]:
    """Bytes of the parameters of each group."""
    tensors = unique_tensors(recipe.built.recordings.skeleton)
    return {
        group.name: sum(tensors[name].nbytes for name in group.names)
        for group in recipe.built.groups.all if group.kind == "parameters"
    }  # fmt: skip
