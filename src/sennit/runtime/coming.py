"""`Coming`: the subnets that a worker will let in: their archs, and their programs before they are needed.

let in       next_id      untold            known                      limit
───────────────┼─────────────┼─────────────────┼──────────────────────────┤
               │  plan and   │ asked for: their│  nothing is known yet
               │ slots know  │ programs come   │
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sennit.errors import SpaceError
from sennit.program.step import Program
from sennit.runtime.ahead import DEPTH, Ahead
from sennit.runtime.control import Line
from sennit.runtime.refusal import refused

if TYPE_CHECKING:
    from sennit.supernet.build import Built

AHEAD = 2
"""Subnets whose programs are recorded in idle time."""

KNOWN = 32
"""The same under a budget: what they will use is not given up (docs/memory.md)."""


class Coming:
    """Of one worker.

    Args:
        loaders: processes beside the worker; with any, another one records programs.
        lines: of the worker.
        limited: whether it has a budget.
        start: the first subnet.
        tell: told of each subnet to come and its program, in their order.
    """

    def __init__(
        self, built: Built, loaders: int, lines: Iterable[Line], limited: bool, start: int,
        tell: Callable[[int, Program], None],
    ) -> None:  # fmt: skip
        sampler = built.sampler()
        self.built, self.limited, self.tell = built, limited, tell
        self.sampler = None if sampler.learning else sampler
        self.programs = Ahead(built, self.sampler if loaders else None, lines)
        self.drawn: dict[int, dict[str, Any]] = {}
        """Archs, as far as they are known here."""
        self.known = self.untold = start

    def has(self, seq_id: int) -> bool:
        """Whether the arch of a subnet is there, or can be drawn here."""
        return self.sampler is not None or seq_id in self.drawn

    def prepare(self, next_id: int, limit: int) -> bool:
        """Use idle time to record the program of a subnet to come and to cut it, so that this is done when the subnet
        is let in.

        Returns:
            Whether there was one.

        Raises:
            SubnetError: its program is refused. So early, those before it can still be finished.
        """
        asked = self.ask(next_id, limit)
        return self._tell_next(next_id) or asked

    def ask(self, next_id: int, limit: int) -> bool:
        """Go on to a further subnet to come; if there is a process for it, have its program recorded."""
        most = max(KNOWN if self.limited else AHEAD, DEPTH if self.programs.wanted else 0)
        y = max(self.known, next_id)
        if self.sampler is None or y >= min(limit, next_id + most):
            return False
        self.known = y + 1
        self.programs.ask(y, next_id)
        return True

    def _tell_next(self, next_id: int) -> bool:
        """Tell of the next of these subnets, once its program is there or will not come."""
        y = max(self.untold, next_id)
        if not self.programs.settled(y) or y >= self.known:
            return False
        program = self._program(y)
        self.untold = y + 1
        self.tell(y, program)
        return True

    def _program(self, y: int) -> Program:
        drawn = self.drawn[y] if y in self.drawn else self.programs.hand_over(y)
        if drawn is None:
            assert self.sampler is not None
            drawn = self.sampler.draw(y, [])
        self.drawn[y] = drawn
        try:
            return self.built.program(drawn)
        except SpaceError as error:
            raise refused(error, y) from error

    def let_in(self, seq_id: int) -> Program:
        """The program of a subnet, whose turn it is.

        Raises:
            SubnetError: it is refused.
        """
        program = self._program(seq_id)
        del self.drawn[seq_id]
        return program
