"""`Limit`: milliseconds per subnet below which a placement cannot go, and what binds.

`through_stages` is the bound for causal order where all subnets share a layer, read as the subnet before has left it.
It holds for every partition of the network into at most S contiguous stages, each on one worker, any number of them on
the same:

    Let a chain of layers lead from the shared layer to the loss, each reading what the one before has made, with f and
    b the seconds of a micro-batch's forward and backward on all of it, f_s and b_s on the part that stage s has.
    1   A subnet's micro-batches begin the chain when the shared layer has its version: when the subnet before has ended
        its last backward there. Each ends with its backward there. So what the chain computes of a subnet lies
        between two versions of the shared layer, and subnets take turns.
    2   In that time, T, the worker of stage s computes M forwards of it. The first begins no earlier than the
        forwards of a micro-batch on the stages before take; behind the last, that micro-batch still has the forwards
        behind s, and all backwards. The M take at least M f_s together, so T >= f + b + (M - 1) f_s. Likewise
        T >= f + b + (M - 1) b_s.
    3   Parts add up to the whole, so the largest of at most S parts is at least f / S; and b / S.

    T >= f + b + (M - 1) max(f, b) / S
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from sennit.simulate.load import Piece

CLOSE = 0.01
"""Terms that differ by less are equal."""


@dataclass(frozen=True)
class Limit:
    """Milliseconds per subnet.

    Attributes:
        kernels: device time of what a subnet runs, divided by the number of devices.
        copies: bytes to a device or back, the larger, divided by what its link carries.
        path: the longest chain of subnets that wait for one another, with as many devices as there are layers.
        stages: what micro-batches of one subnet take through contiguous stages, if subnets take turns.
    """

    kernels: float
    copies: float
    path: float
    stages: float = 0.0

    @property
    def ms(self) -> float:
        return max(self.kernels, self.copies, self.path, self.stages)

    @property
    def binds(self) -> str:
        """On one device the longest chain may be all that there is to do, and the first subnet's way: kernels then."""
        held = {
            "kernels": (1 + CLOSE) * self.kernels, "copies": self.copies, "critical path": self.path,
            "stages": self.stages,
        }  # fmt: skip
        return max(held, key=held.__getitem__)


def through_stages(pieces: Sequence[Piece], shared: Set[str], micro_batches: int, stages: int) -> float:
    """Seconds between two versions of a layer that all subnets share, at least; 0 if there is none. See the module.

    Args:
        pieces: of one subnet, a layer each.
        shared: groups that every subnet reads as the one before has left them.
        stages: S.
    """
    chains: list[tuple[float, float, float] | None] = []
    for r, piece in enumerate(pieces):
        sources = piece.sources if piece.sources is not None else range(r)[-1:]
        before = [chain for source in sources if (chain := chains[source]) is not None]
        before += [(0.0, 0.0, 0.0)] if shared & set(piece.groups) else []
        longest = max(before, default=None)
        if longest is not None:
            f, b = longest[1] + piece.cost.forward, longest[2] + piece.cost.whole
            longest = f + b, f, b
        chains.append(longest)
    if not chains or chains[-1] is None:
        return 0.0
    both, f, b = chains[-1]
    return both + (micro_batches - 1) * max(f, b) / stages


def limit(
    kernel_ms: float, workers: int, there: float, back: float, links: tuple[float, float], path_ms: float,
    stages_ms: float = 0.0,
) -> Limit:  # fmt: skip
    """Of one placement.

    Args:
        kernel_ms: of a subnet, all devices together.
        there, back: bytes per subnet from and to the host, all devices together; each device has a link of its own.
        links: bytes a second to a device, and back.
        path_ms: critical path.
        stages_ms: `through_stages`.
    """
    copies = max(there / links[0], back / links[1]) / workers
    return Limit(kernel_ms / workers, 1e3 * copies, path_ms, stages_ms)
