"""`Action`: what one worker does with one micro-batch, in text that torch reads too.

    2F0   forward of micro-batch 0 on stage 2
    2B0   its whole backward                      2I0   only the gradient of its input
                                                  2W0   only the gradients of the stage's weights

A table of actions has a row for each worker; None is a slot in which it waits. The CSV form is that of
`torch.distributed.pipelining` (`_load_csv(..., format="compute_only")`).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, cast

from sennit.errors import UserError

Kind = Literal["F", "B", "I", "W"]

_TEXT = re.compile(r"(\d+)([FBIW])(\d+)")

Row = list["Action | None"]
Table = dict[int, Row]
"""Worker to its actions, in order."""


class Action(NamedTuple):
    """One entry of a schedule for a fixed number of micro-batches.

    Attributes:
        stage: index among all stages; with several chunks per worker there are more stages than workers.
        kind: F forward, B whole backward, I input gradient, W weight gradient.
        micro_batch: which one.
    """

    stage: int
    kind: Kind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"

    @staticmethod
    def parse(text: str) -> Action:
        """The action that `str` writes.

        Raises:
            UserError: another form.
        """
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise UserError(f"{text!r} is no action; the form is stage, one of F B I W, micro-batch, as in 2F0")
        stage, kind, micro_batch = match.groups()
        return Action(int(stage), cast("Kind", kind), int(micro_batch))


def write_csv(table: Mapping[int, Sequence[Action | None]]) -> str:
    """One line for each worker, one cell for each slot; an empty cell is a slot of waiting."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for worker in sorted(table):
        writer.writerow("" if action is None else str(action) for action in table[worker])
    return out.getvalue()


def read_csv(text: str) -> Table:
    """The table that `write_csv` wrote.

    Raises:
        UserError: a cell is no action; says which.
    """
    table: Table = {}
    for worker, cells in enumerate(csv.reader(io.StringIO(text))):
        try:
            table[worker] = [Action.parse(cell) if cell.strip() else None for cell in cells]
        except UserError as error:
            raise UserError(f"line {worker + 1}: {error}") from error
    return table


def compact(row: Iterable[Action | None]) -> list[Action]:
    """A row without its slots of waiting: the order alone."""
    return [action for action in row if action is not None]
