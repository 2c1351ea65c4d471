"""`mnist5k`: the shape of `digits` with convolutions: 8 blocks × 4 candidates on 28×28 images.

The stem leaves 7×7 places with `width` channels; every block maps (rows, width, 7, 7) to the same shape.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sennit.space.layer_choice import LayerChoice
from sennit.space.model_space import ModelSpace
from sennit.space.ready.ranges import refuse_below, refuse_no_share, refuse_uneven
from sennit.supernet.drawless import drawless


@drawless
class Stem(nn.Module):
    """(rows, 1, 28, 28) to (rows, width, 7, 7)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, 6, stride=4, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)))


@drawless
class Conv(nn.Module):
    """3×3 convolution, BatchNorm, ReLU, dropout; with a residual."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.dropout = nn.Dropout2d(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(F.relu(self.norm(self.conv(x))))


@drawless
class ChannelsLast(nn.Module):
    """Depthwise 5×5 and pointwise convolution in channels-last memory, BatchNorm; with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 5, padding=2, groups=width, bias=False)
        self.pointwise = nn.Conv2d(width, width, 1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        last = x.contiguous(memory_format=torch.channels_last)
        return last + F.relu(self.norm(self.pointwise(self.depthwise(last))))


@drawless
class DownUp(nn.Module):
    """A convolution to 4×4 places and a transposed one back to 7×7; with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(width, width // 2, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(width // 2)
        self.up = nn.ConvTranspose2d(width // 2, width, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.up(F.relu(self.norm(self.down(x))))


@drawless
class Head(nn.Module):
    """(rows, width, 7, 7) to (rows, 10) logits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width)
        self.out = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.norm(x)).mean((2, 3)))


class Mnist5k(ModelSpace):
    """4 ** `blocks` networks.

    Args:
        width: channels, even.
        blocks: choice blocks.
        dropout: of whole channels, in `conv`.

    Raises:
        SpaceError: an argument that is out of range.
    """

    def __init__(self, width: int = 16, blocks: int = 8, dropout: float = 0.1) -> None:
        super().__init__()
        refuse_uneven(2, "one layer halves it", width=width)
        refuse_below(1, blocks=blocks)
        refuse_no_share(dropout=dropout)
        self.stem = Stem(width)
        self.blocks = nn.Sequential(
            *[
                LayerChoice(
                    {
                        "conv": Conv(width, dropout),
                        "sep_last": ChannelsLast(width),
                        "down_up": DownUp(width),
                        "identity": nn.Identity(),
                    }
                )
                for _ in range(blocks)
            ]
        )
        self.head = Head(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))
