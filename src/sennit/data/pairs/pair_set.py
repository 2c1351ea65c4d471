"""`PairSet`: token pairs as a map-style dataset, for any source of sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from sennit.data.order import TOO_LARGE
from sennit.data.pairs.bleu import bleu
from sennit.data.pairs.buckets import Buckets
from sennit.data.pairs.decode import BOS, EOS, greedy
from sennit.data.splits import keyed_order
from sennit.errors import UserError

DECODE_ROWS = 32
"""Sentences that are decoded together."""


class PairSet(Dataset[Any]):
    """`(x, y)` with x = (source, target so far) and y = target, all int64 token numbers.

        source  s1 s2 s3 eos        what the encoder reads
        target  bos t1 t2           what the decoder reads
        y       t1  t2 eos          what it should say, position by position

    A batch has all three padded with 0 to one length, (rows, length).

    Args:
        sources, targets: token numbers of each sentence, without bos and eos.
        references: the targets as text.
        text: token numbers of an output to text.
        lengths, rows_multiple: see `Buckets`.
        score_samples: how many sentences `score` translates.
        sha256: hash of the content that this set was made from.

    Attributes:
        left_out: number of pairs longer than the longest length; they are not in the set.
        signature: sacrebleu's, of the last `score`; empty before.
    """

    def __init__(
        self,
        sources: Sequence[list[int]],
        targets: Sequence[list[int]],
        references: Sequence[str],
        text: Callable[[list[int]], str],
        *,
        lengths: Sequence[int],
        rows_multiple: int,
        score_samples: int,
        sha256: str,
    ) -> None:
        if score_samples < 1:
            raise UserError(f"data_args score_samples must be at least 1, got {score_samples!r}")
        sizes = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]
        kept = [i for i, size in enumerate(sizes) if size <= max(lengths, default=0)]
        self.sources = [[*sources[i], EOS] for i in kept]
        self.targets = [[*targets[i], EOS] for i in kept]
        self.references = [references[i] for i in kept]
        self.left_out = len(sizes) - len(kept)
        self.text = text
        self.buckets = Buckets(lengths, rows_multiple, [sizes[i] for i in kept])
        self.score_samples = score_samples
        self.sha256 = sha256
        self.signature = ""
        self._tensors: dict[int, tuple[tuple[Tensor, Tensor], Tensor]] = {}
        """Of samples that have been asked for: making them anew takes three times as long as copying."""

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        known = self._tensors.get(index)
        if known is None:
            target = self.targets[index]
            known = (torch.tensor(self.sources[index]), torch.tensor([BOS, *target[:-1]])), torch.tensor(target)
            self._tensors[index] = known
        (source, so_far), wanted = known
        return (source.clone(), so_far.clone()), wanted.clone()  # whoever gets them may change them

    def collate(self, samples: Sequence[tuple[tuple[Tensor, Tensor], Tensor]]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Samples, padded to the length of their bucket: x = (source, target so far) and y, each (rows,
        length)."""
        length = self.buckets.length_of(max(max(len(source), len(y)) for (source, _), y in samples))
        columns = ([s for (s, _), _ in samples], [t for (_, t), _ in samples], [y for _, y in samples])
        source, so_far, wanted = (
            pad(padded, (0, length - padded.shape[1]))
            for padded in (pad_sequence(c, batch_first=True) for c in columns)
        )
        return (source, so_far), wanted

    def batch(self, seq_id: int, batch_size: int, seed: int) -> list[int]:
        """Samples of the batch of subnet `seq_id`, at most `batch_size` tokens; see `Buckets.batch`."""
        return self.buckets.batch(seq_id, batch_size, seed)

    def refuse_batch_size(self, batch_size: int) -> None:
        """Raise if batches of so many tokens have more rows than there are pairs."""
        length = min(self.buckets.members)
        rows = batch_size // length
        if rows > len(self):
            asked = f"batch_size = {batch_size:,} tokens are {rows:,} rows of padded length {length}"
            raise UserError(TOO_LARGE.format(asked=asked, n=len(self), most=length * len(self)))

    def score(self, network: Callable[..., Tensor], device: torch.device | str = "cpu") -> dict[str, float]:
        """BLEU of greedy translations of `score_samples` sentences, the same ones for every network.

        Args:
            network: `(source, target so far)` to logits (rows, length, vocabulary); in eval mode.
            device: where it runs.

        Returns:
            `{"bleu": 0 .. 100}`.
        """
        picked = keyed_order(len(self), "score")[: self.score_samples]
        picked.sort(key=lambda i: len(self.sources[i]))  # neighbours need little padding
        outputs: list[str] = []
        for start in range(0, len(picked), DECODE_ROWS):
            rows = [self.sources[i] for i in picked[start : start + DECODE_ROWS]]
            source = torch.zeros(len(rows), self.buckets.length_of(max(map(len, rows))), dtype=torch.int64)
            for row, tokens in enumerate(rows):
                source[row, : len(tokens)] = torch.tensor(tokens)
            outputs += [self.text(out) for out in greedy(network, source.to(device), self.buckets.lengths)]
        value, self.signature = bleu(outputs, [self.references[i] for i in picked])
        return {"bleu": value}
