"""`NasNetSpace`: the space of `cv.c1` .. `cv.c3`.

    image ─▶ stem ─┬▶ blocks.0 ─┬▶ blocks.1 ─┬▶ … ─▶ blocks.31 ─▶ head
                   └────────────┴─▶ (older)  └─▶ (older)

Each block reads the two newest outputs, so each output is read by two blocks. Blocks at one and two thirds of
the depth halve the size; after one, and at the start, both inputs of the next block are the same output.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from sennit.errors import SpaceError
from sennit.space.layer_choice import LayerChoice
from sennit.space.model_space import ModelSpace
from sennit.space.ready.cv.catalogue import GROUPS, NAMES, candidate
from sennit.space.ready.cv.operators import conv
from sennit.space.ready.ranges import refuse_below, refuse_no_share, refuse_uneven
from sennit.supernet.drawless import drawless

LEAST = 12


@drawless
class Stem(nn.Module):
    """(rows, channels, h, w) to (rows, width, h, w)."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.conv = conv(channels, width, 3)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, image: Tensor) -> Tensor:
        return self.norm(self.conv(image))


@drawless
class Head(nn.Module):
    """(rows, channels, h, w) to (rows, classes) logits, from the means over places."""

    def __init__(self, channels: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.dropout(F.relu(self.norm(x)).mean((2, 3))))


class NasNetSpace(ModelSpace):
    """`candidates` ** `blocks` image networks (Zoph et al. 2018, Real et al. 2019 in their parts).

    Args:
        candidates: per block, 12 to 48: the first ones of `catalogue.NAMES`.
        width: channels of the first third of the blocks; each reduction doubles them. Divisible by 4;
            160 is "full", 8 "small".
        blocks: at least 3.
        channels: of an image.
        classes: of the data.
        dropout: before the last linear map.

    Height and width of the images divide by 4.

    Raises:
        SpaceError: an argument that is out of range.
    """

    def __init__(
        self,
        candidates: int = 48,
        width: int = 160,
        blocks: int = 32,
        channels: int = 3,
        classes: int = 10,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not LEAST <= candidates <= len(NAMES):
            raise SpaceError(f"space_args candidates must be {LEAST} to {len(NAMES)}, got {candidates!r}")
        refuse_uneven(GROUPS, "the groups of a convolution", width=width)
        refuse_below(3, blocks=blocks)
        refuse_below(1, channels=channels, classes=classes)
        refuse_no_share(dropout=dropout)
        self.stem = Stem(channels, width)
        self.reductions = (blocks // 3, 2 * blocks // 3)
        made: list[LayerChoice] = []
        for index in range(blocks):
            reduces = index in self.reductions
            made.append(LayerChoice({name: candidate(name, width, reduces) for name in NAMES[:candidates]}))
            width *= 2 if reduces else 1
        self.blocks = nn.ModuleList(made)
        self.head = Head(width, classes, dropout)

    def forward(self, image: Tensor) -> Tensor:
        """(rows, channels, h, w) to logits (rows, classes)."""
        x = older = self.stem(image)
        for index, block in enumerate(self.blocks):
            out = block(x, older)
            x, older = out, out if index in self.reductions else x
        return self.head(x)
