"""`weave`: the one shape behind GPipe, 1F1B, interleaved and zero-bubble orders.

A worker has a sequence of forwards and a sequence of backwards. It runs some forwards to warm up, then forwards
and backwards in turn until the forwards are used up, then the remaining backwards:

    forwards 0 1 2 3 4, warm-up 2     F0 F1 │ F2 B0  F3 B1  F4 B2 │ B3 B4
                                     warm-up│      in turn        │ cool-down

Split backwards put weight gradients behind: W i follows the input gradient i + lag, the rest come at the end:

    lag 1                             F0 F1 │ F2 I0  F3 I1 W0  F4 I2 W1 │ I3 W2  I4 W3 │ W4
"""

from __future__ import annotations

from collections.abc import Sequence

from sennit.schedule.action import Action

Part = tuple[int, int]
"""(stage, micro-batch)."""


def weave(forwards: Sequence[Part], backwards: Sequence[Part], warmup: int, lag: int | None = None) -> list[Action]:
    """The order of one worker.

    Args:
        warmup: forwards before the first backward is due; capped by their number. The first backward follows
            forward `warmup`, so 0 is one forward, one backward from the start.
        lag: by how many backwards a weight gradient stays behind its input gradient; None for whole backwards.
    """
    assert len(forwards) == len(backwards), "each micro-batch goes forward and back"
    warmup = min(warmup, len(forwards))
    order = [Action(stage, "F", j) for stage, j in forwards[:warmup]]
    for i, (stage, j) in enumerate(backwards):
        if warmup + i < len(forwards):
            ahead, k = forwards[warmup + i]
            order.append(Action(ahead, "F", k))
        order.append(Action(stage, "B" if lag is None else "I", j))
        if lag is not None and i >= lag:
            order.append(Action(backwards[i - lag][0], "W", backwards[i - lag][1]))
    if lag is not None:
        order += [Action(stage, "W", j) for stage, j in backwards[max(len(backwards) - lag, 0) :]]
    return order
