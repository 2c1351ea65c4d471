"""BLEU of a corpus, by sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence

from sennit.errors import UserError


def bleu(outputs: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """BLEU in 0 .. 100, and sacrebleu's signature, which belongs beside every such number.

    Raises:
        UserError: sacrebleu is not installed.
    """
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise UserError("BLEU needs sacrebleu, which is not installed: pip install 'sennit[mt]'") from error
    metric = BLEU()
    score = metric.corpus_score(list(outputs), [list(references)])
    return float(score.score), str(metric.get_signature())
