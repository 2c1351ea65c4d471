"""Greedy decoding: the most likely token, one position after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

PAD, BOS, EOS, UNK = 0, 1, 2, 3
"""Token numbers with a meaning; words begin at `FIRST`."""

FIRST = 4


@torch.no_grad()
def greedy(network: Callable[..., Tensor], source: Tensor, lengths: Sequence[int]) -> list[list[int]]:
    """What `network` says to each source, without bos and eos.

    The network runs anew for each position, on targets padded to the smallest of `lengths`: a causal decoder
    does not look at the padding, and few shapes are used.

    Args:
        network: `(source, target so far)` to logits (rows, length, vocabulary).
        source: (rows, length), padded with 0.
        lengths: padded lengths, ascending. The longest ends every output, as does twice the source.
    """
    rows = len(source)
    longest = min(lengths[-1], 2 * source.shape[1])
    target = torch.zeros(rows, lengths[-1], dtype=torch.int64, device=source.device)
    target[:, 0] = BOS
    ended = torch.zeros(rows, dtype=torch.bool, device=source.device)
    for position in range(longest):
        length = next(n for n in lengths if n > position)
        logits = network(source, target[:, :length].contiguous())[:, position].float()
        logits[:, [PAD, BOS]] = -torch.inf  # an output never holds them
        token = logits.argmax(-1).masked_fill(ended, PAD)
        ended |= token == EOS
        if position + 1 < lengths[-1]:
            target[:, position + 1] = token
        if bool(ended.all()):
            break
    return [[t for t in row if t > EOS] for row in target[:, 1:].tolist()]
