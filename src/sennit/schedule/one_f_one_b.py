"""1F1B (PipeDream-flush): a few forwards, then one backward for each forward, so that few activations are held.

    2 stages, 3 micro-batches
    worker 0  0F0 0F1  .  0B0 0F2 0B1  .  0B2
    worker 1   .  1F0 1B0 1F1 1B1 1F2 1B2  .

Worker k of D has D - k forwards under way. SPP's execution order (INFOCOM'22, section V-B) is the same shape with
another number for each worker: more where a slow link must be covered.
"""

from __future__ import annotations

from collections.abc import Sequence

from sennit.schedule.action import Action
from sennit.schedule.listed import listed
from sennit.schedule.policy import Policy
from sennit.schedule.warmup import warmup_counts
from sennit.schedule.weave import weave


def one_f_one_b(worker: int, workers: int, micro_batches: int, warmup: Sequence[int] | None = None) -> list[Action]:
    """The order of one worker, which holds the stage of its own number.

    Args:
        warmup: for each worker, forwards under way once it alternates; None for D - k.

    Raises:
        UserError: a warm-up that cannot run.
    """
    counts = warmup_counts(workers, warmup)
    parts = [(worker, j) for j in range(micro_batches)]
    return weave(parts, parts, counts[worker] - 1)


POLICY = Policy(
    order=listed(lambda worker, setting, number: one_f_one_b(worker, setting.workers, number, setting.warmup)),
    warmed=True,
)
