"""`Limit`: milliseconds per subnet below which a placement cannot go, and what binds."""

from __future__ import annotations

from dataclasses import dataclass

CLOSE = 0.01
"""Terms that differ by less are equal."""


@dataclass(frozen=True)
class Limit:
    """Milliseconds per subnet.

    Attributes:
        kernels: device time of what a subnet runs, divided by the number of devices.
        copies: bytes to a device or back, the larger, divided by what its link carries.
        path: the longest chain of subnets that wait for one another, with as many devices as there are layers.
    """

    kernels: float
    copies: float
    path: float

    @property
    def ms(self) -> float:
        return max(self.kernels, self.copies, self.path)

    @property
    def binds(self) -> str:
        """On one device the longest chain may be all that there is to do, and the first subnet's way: kernels then."""
        held = {"kernels": (1 + CLOSE) * self.kernels, "copies": self.copies, "critical path": self.path}
        return max(held, key=held.__getitem__)


def limit(
    kernel_ms: float, workers: int, there: float, back: float, links: tuple[float, float], path_ms: float
) -> Limit:
    """Of one placement.

    Args:
        kernel_ms: of a subnet, all devices together.
        there, back: bytes per subnet from and to the host, all devices together; each device has a link of its own.
        links: bytes a second to a device, and back.
        path_ms: critical path.
    """
    copies = max(there / links[0], back / links[1]) / workers
    return Limit(kernel_ms / workers, 1e3 * copies, path_ms)
