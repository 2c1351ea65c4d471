"""Operators on images: (rows, `inputs`, h, w) to (rows, `outputs`, h / stride, w / stride).

Every one is built of functions with a deterministic kernel on every device, in both directions: no adaptive
pooling, no interpolation; means are taken over dimensions. Order as in NASNet: ReLU, convolution, BatchNorm.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sennit.supernet.drawless import drawless


def conv(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    stride: int | tuple[int, int] = 1,
    groups: int = 1,
    dilation: int = 1,
) -> nn.Conv2d:
    """Convolution without bias whose padding keeps the size, but for the stride."""
    high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = (high // 2 * dilation, wide // 2 * dilation)
    return nn.Conv2d(inputs, outputs, (high, wide), stride, padding, dilation=dilation, groups=groups, bias=False)


def plain(inputs: int, outputs: int, stride: int, kernel: int, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), conv(inputs, outputs, kernel, stride, groups), nn.BatchNorm2d(outputs))


def depthwise(inputs: int, outputs: int, stride: int, kernel: int, dilation: int = 1) -> nn.Sequential:
    """One filter per channel, then a map over channels (Chollet 2017)."""
    return nn.Sequential(
        nn.ReLU(),
        conv(inputs, inputs, kernel, stride, groups=inputs, dilation=dilation),
        conv(inputs, outputs, 1),
        nn.BatchNorm2d(outputs),
    )


def separable(inputs: int, outputs: int, stride: int, kernel: int) -> nn.Sequential:
    """Twice depthwise, the first with the stride (Zoph et al. 2018, appendix A.4)."""
    return nn.Sequential(depthwise(inputs, inputs, stride, kernel), depthwise(inputs, outputs, 1, kernel))


def factorised(inputs: int, outputs: int, stride: int, kernel: int) -> nn.Sequential:
    """1×k, then k×1."""
    return nn.Sequential(
        nn.ReLU(),
        conv(inputs, outputs, (1, kernel), (1, stride)),
        conv(outputs, outputs, (kernel, 1), (stride, 1)),
        nn.BatchNorm2d(outputs),
    )


def bottleneck(inputs: int, outputs: int, stride: int, kernel: int) -> nn.Sequential:
    """To a quarter of the channels, convolution there, and back (He et al. 2016)."""
    inner = max(1, outputs // 4)
    return nn.Sequential(plain(inputs, inner, 1, 1), plain(inner, inner, stride, kernel), plain(inner, outputs, 1, 1))


def transposed(inputs: int, outputs: int, stride: int, kernel: int) -> nn.Sequential:
    """To twice the size in half of the channels by a transposed convolution, and back by a strided one."""
    inner = max(1, inputs // 2)
    return nn.Sequential(
        nn.ReLU(),
        nn.ConvTranspose2d(inputs, inner, 2, stride=2, bias=False),
        nn.BatchNorm2d(inner),
        plain(inner, outputs, 2 * stride, kernel),
    )


def pool(inputs: int, outputs: int, stride: int, kernel: int, kind: str) -> nn.Sequential:
    """The mean ("avg") or maximum ("max") of k×k places, then a 1×1 convolution."""
    taken = nn.AvgPool2d if kind == "avg" else nn.MaxPool2d
    return nn.Sequential(taken(kernel, stride, kernel // 2), conv(inputs, outputs, 1), nn.BatchNorm2d(outputs))


def inverted(inputs: int, outputs: int, stride: int, kernel: int, expansion: int, squeeze: bool) -> nn.Sequential:
    """Inverted residual without its residual: wide, depthwise, narrow (Sandler et al. 2018)."""
    wide = inputs * expansion
    parts: list[nn.Module] = [
        conv(inputs, wide, 1),
        nn.BatchNorm2d(wide),
        nn.ReLU(),
        conv(wide, wide, kernel, stride, groups=wide),
        nn.BatchNorm2d(wide),
        nn.ReLU(),
    ]
    if squeeze:
        parts.append(SqueezeExcite(wide))
    return nn.Sequential(*parts, conv(wide, outputs, 1), nn.BatchNorm2d(outputs))


@drawless
class SqueezeExcite(nn.Module):
    """Each channel times a number in 0 .. 1 that the means of all channels decide (Hu et al. 2018)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(1, channels // 4)
        self.squeeze = nn.Linear(channels, inner)
        self.excite = nn.Linear(inner, channels)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3))))))
        return x * gate[:, :, None, None]


@drawless
class ChannelsLast(nn.Module):
    """`operator` on channels-last memory, which its result keeps."""

    def __init__(self, operator: nn.Module) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, x: Tensor) -> Tensor:
        return self.operator(x.to(memory_format=torch.channels_last))


def gate(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Squeeze-and-excite alone, after a BatchNorm; where the shape changes, after means of 2×2 places."""
    parts: list[nn.Module] = [nn.BatchNorm2d(inputs), SqueezeExcite(inputs)]
    if stride > 1:
        parts += [nn.AvgPool2d(stride), conv(inputs, outputs, 1), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*parts)


@drawless
class Shrink(nn.Module):
    """The older input of a reduction block: means of 2×2 places, a 1×1 convolution, BatchNorm."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = conv(inputs, outputs, 1)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(F.avg_pool2d(x, 2)))
