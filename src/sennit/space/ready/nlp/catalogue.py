"""The 24 kinds of layers of an encoder block and of a decoder block, by name.

    conv{k}x{r}     convolution of width k to d / r channels      sep{k}     separable convolution
    lconv{k}h{h}    lightweight convolution, h heads              att{h}     self-attention, h heads
    glu             gated linear                                  ffn{e}     perceptron, e × d hidden
    cross{h}        attention over the encoder's output, h heads (decoder)
    a_cross{h}      a layer of the own sequence, then attention over the encoder's output (decoder)

A quarter of the decoder's kinds read the encoder's output, so that a random network of 24 decoder blocks does
in all but one of a thousand cases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from sennit.space.ready.nlp.attention import CrossAttention, SelfAttention
from sennit.space.ready.nlp.candidate import VARIANTS, Candidate, CrossCandidate
from sennit.space.ready.nlp.convolution import Convolution, LightweightConvolution, SeparableConvolution
from sennit.space.ready.nlp.pointwise import FeedForward, GatedLinear

KINDS = 24
"""Kinds per block."""

ENCODER = (
    "conv1x1 conv3x1 conv3x4 conv5x4 sep3 sep5 sep7 sep9 sep11 "
    "lconv3h4 lconv5h4 lconv7h4 lconv15h4 lconv31h4 lconv3h16 lconv5h16 lconv7h16 lconv15h16 lconv31h16 "
    "att4 att8 att16 glu ffn4"
).split()

DECODER = (
    "conv1x1 conv3x4 conv5x4 sep3 sep7 sep11 "
    "lconv3h4 lconv5h4 lconv7h4 lconv15h4 lconv31h4 lconv3h16 lconv7h16 lconv15h16 lconv31h16 "
    "att8 glu ffn2 cross4 cross8 cross16 lconv7h4_cross8 lconv15h4_cross16 att8_cross8"
).split()

MOST_HEADS = 16
"""d must divide by it."""


def own_layer(kind: str, d: int, causal: bool, dropout: float) -> nn.Module:
    """The layer called `kind`, of those that read their own sequence only."""
    if kind.startswith("conv"):
        kernel, reduction = map(int, kind[4:].split("x"))
        return Convolution(d, kernel, reduction, causal)
    if kind.startswith("lconv"):
        kernel, heads = map(int, kind[5:].split("h"))
        return LightweightConvolution(d, kernel, heads, causal)
    makers: dict[str, Callable[[int], nn.Module]] = {
        "sep": lambda n: SeparableConvolution(d, n, causal),
        "att": lambda n: SelfAttention(d, n, causal, dropout),
        "ffn": lambda n: FeedForward(d, n),
    }
    return GatedLinear(d) if kind == "glu" else makers[kind[:3]](int(kind[3:]))


def candidate(name: str, d: int, causal: bool, dropout: float) -> Candidate:
    """The candidate called `name`: kind and variant, as in "conv3x1_res_ln"."""
    variant = next(v for v in VARIANTS if name.endswith(v))
    kind = name.removesuffix(variant)
    first, _, heads = kind.rpartition("cross")
    if not heads.isdecimal() or "cross" not in kind:
        return Candidate(own_layer(kind, d, causal, dropout), variant, d, dropout)
    own = own_layer(first.rstrip("_"), d, causal, dropout) if first else None
    return CrossCandidate(CrossAttention(d, int(heads), dropout), variant, d, dropout, own)


def names(kinds: Sequence[str], candidates: int) -> list[str]:
    """Names of the candidates of a block: every kind in the first `candidates` / 24 variants."""
    return [kind + variant for variant in VARIANTS[: candidates // KINDS] for kind in kinds]
