"""Sub-word units by byte-pair encoding (Sennrich et al. 2016), learnt by sentencepiece from the training
pairs."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

from sennit.data.pairs.decode import BOS, EOS, FIRST, PAD, UNK
from sennit.data.store import data_root, locked, write_atomically
from sennit.errors import UserError


def encoder(
    sentences: Sequence[str], content_sha256: str, vocab: int, root: str | os.PathLike[str] | None = None
) -> Any:
    """A `SentencePieceProcessor` of `vocab` units.

    It is learnt once per content and size and kept in the data folder. Learning uses one thread, so it gives
    the same units each time (with one version of sentencepiece).

    Args:
        sentences: the training side of the content, both languages.
        content_sha256: hash of the content that the sentences come from.
        vocab: number of units, the special ones included.

    Raises:
        UserError: sentencepiece is not installed, or cannot make so many units of these sentences.
    """
    try:
        import sentencepiece
    except ImportError as error:
        raise UserError("sub-words need sentencepiece, which is not installed: pip install 'sennit[mt]'") from error
    if not isinstance(vocab, int) or vocab <= FIRST:
        raise UserError(f"data_args vocab must be a number of units above {FIRST}, got {vocab!r}")
    version = sentencepiece.__version__
    path = data_root(root) / "cache" / f"bpe-{content_sha256[:16]}-{vocab}-{version}.model"
    if not path.is_file():
        with locked(path):
            if not path.is_file():
                write_atomically(path, _learn(sentencepiece, sentences, vocab))
    return sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())


def _learn(sentencepiece: Any, sentences: Sequence[str], vocab: int) -> bytes:
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=written, model_type="bpe", vocab_size=vocab,
            num_threads=1, character_coverage=1.0, minloglevel=2,
            pad_id=PAD, bos_id=BOS, eos_id=EOS, unk_id=UNK,
        )  # fmt: skip
    except RuntimeError as error:
        raise UserError(f"data_args vocab = {vocab} does not fit these sentences: {error}") from error
    return written.getvalue()
