"""`digits`: 8 blocks × 4 candidates on 8×8 images, seconds on one core. The space of the README.

An image becomes 4×4 patches of 2×2 pixels, each a vector of `width` numbers; every block maps (rows, 16, width)
to the same shape. The head reads one corner, so what the rest of the image says must be carried there: `conv`
brings it from the neighbours, `att` along a row, `mlp` and `identity` not at all. That makes archs differ by
far more than two trainings of one arch do.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from sennit.space.layer_choice import LayerChoice
from sennit.space.model_space import ModelSpace
from sennit.space.ready.ranges import refuse_below, refuse_no_share, refuse_uneven
from sennit.supernet.drawless import drawless

PATCH = 2
SIDE = 4
"""Patches in a row and in a column of an 8×8 image."""


@drawless
class Stem(nn.Module):
    """(rows, 64) or (rows, 1, 8, 8) to (rows, 16, width): a linear map per patch, and a vector for its
    place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH, width)
        self.place = nn.Embedding(SIDE * SIDE, width)

    def forward(self, x: Tensor) -> Tensor:
        patches = x.reshape(-1, SIDE, PATCH, SIDE, PATCH).transpose(2, 3).reshape(-1, SIDE * SIDE, PATCH * PATCH)
        return self.embed(patches) + self.place.weight

    def reset_parameters(self) -> None:
        nn.init.normal_(self.place.weight, std=0.02)


@drawless
class Mlp(nn.Module):
    """Pre-norm perceptron with a residual and dropout; each patch alone."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width // 2)
        self.down = nn.Linear(width // 2, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


@drawless
class Conv(nn.Module):
    """Depthwise 3×3 convolution over the grid of patches, BatchNorm, a linear map; with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.mix = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        grid = x.transpose(1, 2).reshape(x.shape[0], x.shape[2], SIDE, SIDE)
        seen = F.relu(self.norm(self.conv(grid)))
        return x + self.mix(seen.flatten(2).transpose(1, 2))


@drawless
class Attention(nn.Module):
    """Pre-norm self-attention along each row of patches, with a residual (axial attention, Ho et al. 2019)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * (width // 2))
        self.out = nn.Linear(width // 2, width)

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[2] // 2 // self.heads
        # 3 × (rows × SIDE, heads, SIDE, size)
        q, k, v = self.qkv(self.norm(x)).view(-1, SIDE, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) * size**-0.5).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(*x.shape[:2], -1))


@drawless
class Head(nn.Module):
    """(rows, 16, width) to (rows, 10) logits, from the patch in the upper left corner."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(x[:, 0]))


class Digits(ModelSpace):
    """4 ** `blocks` networks.

    Args:
        width: numbers per patch, divisible by 8.
        blocks: choice blocks.
        dropout: in `mlp`.

    Raises:
        SpaceError: an argument that is out of range.
    """

    def __init__(self, width: int = 64, blocks: int = 8, dropout: float = 0.1) -> None:
        super().__init__()
        refuse_uneven(8, "four heads of half the width", width=width)
        refuse_below(1, blocks=blocks)
        refuse_no_share(dropout=dropout)
        self.stem = Stem(width)
        self.blocks = nn.Sequential(
            *[
                LayerChoice(
                    {
                        "mlp": Mlp(width, dropout),
                        "conv": Conv(width),
                        "att": Attention(width, heads=4),
                        "identity": nn.Identity(),
                    }
                )
                for _ in range(blocks)
            ]
        )
        self.head = Head(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))
