"""`EvolvedTransformer`: the space of `nlp.c0` .. `nlp.c3`.

source ─▶ embed ─▶ encoder.0 ─▶ … ─▶ encoder.23 ─▶ norm ─▶ memory
                                                      │  ╲  (only to blocks with cross-attention)
target ─▶ embed ─────────────────────────────▶ bridge ─▶ decoder.0 ─▶ … ─▶ decoder.23 ─▶ project
"""

from __future__ import annotations

from torch import Tensor, nn

from sennit.errors import SpaceError
from sennit.space.layer_choice import LayerChoice
from sennit.space.model_space import ModelSpace
from sennit.space.ready.nlp.candidate import VARIANTS
from sennit.space.ready.nlp.catalogue import DECODER, ENCODER, KINDS, MOST_HEADS, candidate, names
from sennit.space.ready.nlp.embedding import Bridge, Projection, TokenEmbedding
from sennit.space.ready.ranges import refuse_below, refuse_no_share, refuse_uneven


class DecoderChoice(LayerChoice):
    """A choice that passes the encoder's output to those candidates only that read it.

    So the output travels no further than the last of them.
    """

    def forward(self, y: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        chosen = getattr(self, str(self.selected()))
        return chosen(y, memory, source) if chosen.reads_memory else chosen(y)


class EvolvedTransformer(ModelSpace):
    """`candidates` ** (2 × `layers`) encoder-decoder networks (So et al. 2019 in its parts, NASPipe in its
    form).

    Args:
        candidates: per block: 24, 48, 72 or 96. All have the same kinds; see `catalogue` and `candidate`.
        vocab: number of tokens of both languages; 0 is padding.
        d: numbers per position, divisible by 16; 1024 is "full", 64 "small".
        layers: blocks of the encoder, and as many of the decoder.
        dropout: on each block's addition, the embeddings and the attention weights.
        tied: both embeddings and the projection are one table.
        max_length: most positions of a source or a target.

    Raises:
        SpaceError: an argument that is out of range.
    """

    def __init__(
        self,
        candidates: int = 24,
        vocab: int = 8000,
        d: int = 1024,
        layers: int = 24,
        dropout: float = 0.1,
        tied: bool = False,
        max_length: int = 256,
    ) -> None:
        super().__init__()
        if candidates % KINDS or not 1 <= candidates // KINDS <= len(VARIANTS):
            raise SpaceError(f"space_args candidates must be 24, 48, 72 or 96, got {candidates!r}")
        refuse_uneven(MOST_HEADS, "the largest number of heads", d=d)
        refuse_below(1, layers=layers)
        refuse_below(5, vocab=vocab)
        refuse_below(2, max_length=max_length)
        refuse_no_share(dropout=dropout)
        self.embed_source = TokenEmbedding(vocab, d, max_length, dropout)
        self.embed_target = TokenEmbedding(vocab, d, max_length, dropout)
        self.encoder = nn.ModuleList(
            LayerChoice({name: candidate(name, d, False, dropout) for name in names(ENCODER, candidates)})
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(d)
        self.bridge = Bridge()
        self.decoder = nn.ModuleList(
            DecoderChoice({name: candidate(name, d, True, dropout) for name in names(DECODER, candidates)})
            for _ in range(layers)
        )
        self.project = Projection(d, vocab)
        if tied:
            self.embed_target.weight = self.embed_source.weight
            self.project.weight = self.embed_source.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """(rows, source length) and (rows, length) int64 to logits (rows, length, vocab)."""
        x = self.embed_source(source)
        for block in self.encoder:
            x = block(x, source)
        memory = self.norm(x)
        y = self.bridge(self.embed_target(target), memory, source)
        for block in self.decoder:
            y = block(y, memory, source)
        return self.project(y)
