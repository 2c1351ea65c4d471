"""Batches that evaluation looks at: held-out samples, each once, and training batches for statistics.

Both are functions of the recipe and of their own keys. The stream of training batches is not touched: no seq
id of it is asked for, and nothing is drawn from a generator that anybody else uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from sennit.data.order import KeyedBatches
from sennit.errors import UserError
from sennit.program.template import map_tree
from sennit.supernet.edge import settled
from sennit.supernet.keys import key_for, numpy_generator

IDLE = 64
"""A data set with batches of its own is taken to be through after so many batches without a new sample."""

RECALIBRATE = "recalibrate"


class _Chosen(KeyedBatches):
    """Batches of given indices instead of those of the stream."""

    def __init__(self, dataset: Any, batches: list[list[int]], seed: int) -> None:
        super().__init__(dataset, 1, seed)
        self.chosen = batches

    def indices(self, seq_id: int) -> list[int]:
        return self.chosen[seq_id]


def held_out(dataset: Any, batch_size: int, samples: int | None, seed: int, device: torch.device) -> list[Any]:
    """Batches `(x, y)` that hold each of the chosen samples once; the last may be smaller.

    All samples come in their order; fewer than all are a keyed choice, in their order. A data set with length
    buckets (its own `batch(number, batch_size, seed)`) forms the batches itself.

    Args:
        samples: how many; None for all.
        seed: the recipe's.

    Raises:
        UserError: no samples, or fewer than one asked for.
    """
    n = len(dataset)
    if n < 1 or (samples is not None and samples < 1):
        raise UserError(f"evaluation needs held-out samples >= 1, got {samples} of a data set of {n}")
    wanted = n if samples is None else min(samples, n)
    if hasattr(dataset, "batch"):
        batches = list(_own_batches(dataset, batch_size, seed, wanted))
    else:
        order = list(range(n))
        if wanted < n:
            picked = numpy_generator(key_for(seed, "held out")).permutation(n)[:wanted]
            order = sorted(int(i) for i in picked)
        batches = [order[i : i + batch_size] for i in range(0, wanted, batch_size)]
    source = _Chosen(dataset, batches, seed)
    return [moved(source[i], device) for i in range(len(batches))]


def _own_batches(dataset: Any, batch_size: int, seed: int, wanted: int) -> Iterator[list[int]]:
    seen: set[int] = set()
    number = idle = 0
    while len(seen) < wanted and idle < IDLE:
        new = [i for i in dict.fromkeys(dataset.batch(number, batch_size, seed)) if i not in seen]
        new = new[: wanted - len(seen)]
        seen.update(new)
        number, idle = number + 1, 0 if new else idle + 1
        if new:
            yield new


def recalibration(dataset: Any, batch_size: int, count: int, seed: int, device: torch.device) -> list[Any]:
    """Inputs x of `count` training batches, in an order and with augmentation under keys of their own."""
    source = KeyedBatches(dataset, batch_size, key_for(seed, RECALIBRATE) >> 1)
    return [moved(source[i][0], device) for i in range(count)]


def moved(tree: Any, device: torch.device) -> Any:
    """Every tensor on `device`, contiguous and aligned."""
    return map_tree(lambda t: settled(t.to(device)) if isinstance(t, Tensor) else t, tree)
