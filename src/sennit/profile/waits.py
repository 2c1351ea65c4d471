"""`Waits`: how long each block takes, told instead of measured. What virtual devices wait, and what is simulated.

    {"format": "sennit.waits/1", "blocks": {"blocks.0": {"forward": 0.01, "backward": 0.02}, ...}}

Seconds for one micro-batch, whatever candidate is chosen. `input` and `weight`, the parts of a split backward, are half
of `backward` each unless they are given. A block that is not named takes no time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sennit.errors import UserError, why
from sennit.program.step import Step
from sennit.simulate.cluster import LONGEST_S
from sennit.simulate.load import Cost

FORMAT = "sennit.waits/1"
KEYS = ("forward", "backward", "input", "weight")


@dataclass(frozen=True)
class Waits:
    """Seconds by block.

    Attributes:
        blocks: name to cost of one micro-batch.
    """

    blocks: Mapping[str, Cost]

    def of(self, blocks: Iterable[str]) -> Cost:
        """Of a run that consists of these blocks."""
        costs = [self.blocks[block] for block in dict.fromkeys(blocks) if block in self.blocks]
        return Cost(*(sum(column) for column in zip(*costs, strict=True))) if costs else Cost(0.0, 0.0, 0.0, 0.0)

    def of_steps(self, steps: Iterable[Step]) -> Cost:
        """Of steps that are run in one piece."""
        return self.of(step.block for step in steps)

    def total(self, block: str) -> float:
        """Forward and backward."""
        cost = self.of([block])
        return cost.forward + cost.whole

    @staticmethod
    def measured(seconds: Mapping[str, float]) -> Waits:
        """From seconds of forward and backward together, a third of which is taken for forward."""
        return Waits({block: Cost(s / 3, 2 * s / 3, s / 3, s / 3) for block, s in seconds.items()})

    @staticmethod
    def read(path: Path, blocks: Sequence[str]) -> Waits:
        """Read a file.

        Raises:
            UserError: unreadable, another format, a block that the space does not have, a number that is none.
        """
        try:
            held: Any = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"cannot read the waits {path}: {why(error)}") from error
        table = cast("dict[str, Any]", held) if isinstance(held, dict) else {}
        rows: Any = table.get("blocks")
        if table.get("format") != FORMAT or not isinstance(rows, dict):
            raise UserError(
                f'the waits {path} must be JSON with "format": "{FORMAT}" and a table "blocks", or a profile'
            )
        found: dict[str, Cost] = {}
        for block, row in cast("dict[str, Any]", rows).items():
            if block not in blocks:
                raise UserError(f"{path}: the space has no block {block!r}; it has {', '.join(blocks[:8])}, ...")
            found[block] = _cost(row, f"{path}: {block}")
        return Waits(found)


def _cost(row: Any, where: str) -> Cost:
    table = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    wrong = [key for key in table if key not in KEYS]
    numbers = {key: table.get(key, 0.0) for key in KEYS}
    if not table or wrong or not all(_seconds(n) for n in numbers.values()):
        raise UserError(f"{where} must hold seconds from 0 to {LONGEST_S:g} under {', '.join(KEYS)}, got {row!r:.80}")
    half = numbers["backward"] / 2
    return Cost(numbers["forward"], numbers["backward"], table.get("input", half), table.get("weight", half))


def _seconds(n: Any) -> bool:
    return isinstance(n, int | float) and not isinstance(n, bool) and 0 <= n <= LONGEST_S
