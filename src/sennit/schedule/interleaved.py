"""Interleaved 1F1B (Narayanan et al. 2021, section 2.2): each worker holds several chunks of the network in turn.

    2 workers, 2 chunks, 2 micro-batches: worker 0 has stages 0 and 2, worker 1 has 1 and 3
    worker 0  0F0 0F1 2F0 2F1  .  2B0  .  2B1 0B0 0B1
    worker 1   .  1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1  .

Micro-batches go in rounds: a whole round through one chunk, then through the next. With `split`, weight gradients
fill what would be waiting (Qi et al. 2023, zero bubble; with one chunk that is ZB-H1).
"""

from __future__ import annotations

from sennit.errors import UserError
from sennit.schedule.action import Action
from sennit.schedule.listed import listed
from sennit.schedule.policy import Policy
from sennit.schedule.weave import Part, weave


def interleaved(worker: int, workers: int, micro_batches: int, chunks: int, *, split: bool = False) -> list[Action]:
    """The order of one worker, which holds stages worker, worker + D, worker + 2 D, ...

    Raises:
        UserError: micro-batches cannot be put in equal rounds of at least D (all in one if they are fewer).
    """
    rounds = max(1, micro_batches // workers)
    if micro_batches % rounds:
        raise UserError(
            f"{micro_batches} micro-batches do not fall into {rounds} equal rounds for {workers} workers; "
            f"use {micro_batches - micro_batches % rounds} or {micro_batches + rounds - micro_batches % rounds}"
        )
    size = micro_batches // rounds
    forwards = _parts(worker, workers, rounds, size, range(chunks))
    backwards = _parts(worker, workers, rounds, size, range(chunks - 1, -1, -1))
    hops = workers - 1 - worker  # to the last worker and, unless weight gradients fill that time, back
    warmup = (chunks - 1) * size + (hops if split else 2 * hops)
    return weave(forwards, backwards, warmup, worker if split else None)


def _parts(worker: int, workers: int, rounds: int, size: int, chunks: range) -> list[Part]:
    return [
        (chunk * workers + worker, turn * size + j) for turn in range(rounds) for chunk in chunks for j in range(size)
    ]


POLICY = Policy(
    order=listed(lambda worker, setting, number: interleaved(worker, setting.workers, number, setting.chunks)),
    chunked=True,
)
