"""`ende`: English-German sentence pairs of the LibreOffice help (27,525), in sub-words."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from pathlib import Path

from sennit.data import fetch
from sennit.data.pairs.bpe import encoder
from sennit.data.pairs.help_text import parse
from sennit.data.pairs.pair_set import PairSet
from sennit.data.splits import chosen, limited
from sennit.data.store import read_file, sha256
from sennit.errors import UserError

LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128)
"""With 8,000 units, 2 of the 27,525 pairs are longer than 128."""


def ende_pairs(
    split: str = "train",
    *,
    path: str | os.PathLike[str] | None = None,
    pin: str | None = None,
    vocab: int = 8000,
    lengths: Sequence[int] = LENGTHS,
    rows_multiple: int = 1,
    score_samples: int = 200,
    limit: int | None = None,
) -> PairSet:
    """Train 24,779, valid 1,372, test 1,374 pairs, less those that are too long.

    This is technical text of one domain: call a score "LibreOffice help, own held-out split".

    Args:
        split: "train", "valid", "test", or several joined by "+".
        path: a table `split TAB source TAB target` (`.gz` allowed); default the fetched one.
        pin: SHA-256 of the (uncompressed) table, where it is to be another one than the pinned.
        vocab: sub-word units of both languages together; the space's `vocab`.
        lengths, rows_multiple: see `Buckets`.
        score_samples: how many sentences BLEU is computed from.
        limit: only the first so many pairs of the split.

    Raises:
        UserError: the set has not been fetched, is damaged, or an argument is out of range.
    """
    names = chosen(split)
    where = Path(path) if path is not None else fetch.fetched("ende", sha256=pin)
    content = read_file(where, "the table of sentence pairs")
    if where.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise UserError(f"{where} is not a gzip file: {error}") from error
    if path is None or pin is not None:
        fetch.check("ende", content, where, pin)
    pairs = parse(content, str(where))
    key = sha256(content)
    bpe = encoder([side for pair in pairs["train"] for side in pair], key, vocab)
    rows = limited([pair for name in names for pair in pairs[name]], limit)
    return PairSet(
        bpe.encode([source for source, _ in rows], num_threads=1),
        bpe.encode([target for _, target in rows], num_threads=1),
        [target for _, target in rows],
        bpe.decode,
        lengths=lengths,
        rows_multiple=rows_multiple,
        score_samples=score_samples,
        sha256=key,
    )
