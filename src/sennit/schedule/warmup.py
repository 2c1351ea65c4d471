"""`warmup_counts`: forwards under way on each worker before the first backward, for 1F1B and PipeDream.

4 workers    4 3 2 1        D - k, unless told otherwise
             1 2 3 4        cannot run: worker 1 waits for a second forward, worker 0 for its first backward
"""

from __future__ import annotations

from collections.abc import Sequence

from sennit.errors import UserError


def warmup_counts(workers: int, warmup: Sequence[int] | None = None) -> tuple[int, ...]:
    """A number for each worker.

    Args:
        warmup: what was asked for; None for D - k. Must fall or stay equal from worker to worker and end in at least
            1, or a worker would wait for a forward that waits for it.

    Raises:
        UserError: a warm-up that cannot run.
    """
    counts = tuple(range(workers, 0, -1)) if warmup is None else tuple(warmup)
    if len(counts) != workers or min(counts) < 1 or list(counts) != sorted(counts, reverse=True):
        raise UserError(
            f"a warm-up needs a number for each of {workers} workers, at least 1, none above the one before it; got "
            f"{', '.join(map(str, counts))}"
        )
    return counts
