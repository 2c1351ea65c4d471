"""How much a search may do, and which networks it may look at."""

from __future__ import annotations

from dataclasses import dataclass

from sennit.errors import UserError


@dataclass(frozen=True)
class Budget:
    """How much a search may do.

    Attributes:
        evaluations: results, those of before a resume included.
    """

    evaluations: int

    def __post_init__(self) -> None:
        if self.evaluations < 1:
            raise UserError(f"the budget of a search must be at least 1 evaluation, got {self.evaluations}")

    def left(self, done: int) -> int:
        return max(0, self.evaluations - done)


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """Limits of a network, checked before it is evaluated. A network that breaks one costs no budget."""

    max_parameters: int | None = None
    max_flops: int | None = None
    """Floating-point operations of one sample."""

    def broken(self, costs: dict[str, int]) -> str | None:
        """The limit that these costs break, in words."""
        for name in ("parameters", "flops"):
            limit = getattr(self, f"max_{name}")
            if limit is not None and costs[name] > limit:
                return f"max_{name} = {limit}"
        return None


FREE = Constraints()
"""No limits."""
