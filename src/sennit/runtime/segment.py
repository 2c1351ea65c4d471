"""What engines have in common: a state to start from, and what they did up to a cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from sennit.memory.tally import Tally


@dataclass(frozen=True)
class State:
    """All state of a supernet at a cut.

    Attributes:
        weights: canonical name to parameter or buffer.
        optimizer: `parameter.key` to state tensor, `parameter.pending.SEQ` to a gradient that waits.
        versions: words of each group.
    """

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    versions: Mapping[str, list[int]]


@dataclass(frozen=True)
class Segment:
    """What an engine did between two cuts.

    Attributes:
        limit: all subnets below are finished, none above has begun.
        seconds: wall time.
    """

    limit: int
    seconds: float


class Engine(Protocol):
    """Runs subnets from cut to cut."""

    workers: int

    @property
    def busy(self) -> float:
        """Seconds spent in tasks, by all workers together."""
        ...

    @property
    def counted(self) -> Tally | None:
        """What came of the slots of devices that have them, up to the last cut; None if none has."""
        ...

    def run_to(self, limit: int, interrupted: Callable[[], bool]) -> Segment: ...

    def weights(self) -> dict[str, Tensor]: ...

    def hashed_weights(self) -> dict[str, Tensor]: ...

    def optimizer_state(self) -> dict[str, Tensor]: ...

    def versions(self) -> dict[str, list[int]]: ...

    def gradient_norms(self, seq_id: int) -> dict[str, float]:
        """Norm of each group's gradient before clipping, if the engine keeps them; once per subnet."""
        ...

    def figures(self) -> dict[str, Any]:
        """What else belongs into `result.json`."""
        ...

    def cut_before(self, seq_id: int) -> bool:
        """Make the state the one before `seq_id`, whose loss is not finite. False if that is not possible."""
        ...

    def close(self, failed: bool) -> None: ...
