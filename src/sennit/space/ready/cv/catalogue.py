"""The 48 candidates of a block, by name. `cv.c2` has the first 24 of them, `cv.c3` the first 12.

sep{k}          separable convolution, twice         dw{k}       once
dil{k}          depthwise with dilation 2            conv{k}     standard convolution
conv1x{k}_{k}x1 factorised convolution               gconv{k}    4 groups
bneck{k}        bottleneck                           avg{k}, max{k}  pooling, then 1×1
mb{e}k{k}       inverted residual, expansion e       identity    the mean of both inputs
up{k}           transposed to twice the size, back   se          squeeze-and-excite alone
..._se          the same, then squeeze-and-excite    ..._drop    the same, then dropout
..._last        the same in channels-last memory

The first 12 hold one of everything that could make bits depend on a placement: BatchNorm, dropout, a
transposed convolution, strides that a layer leaves behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor, nn

from sennit.errors import SpaceError
from sennit.space.ready.cv import operators as op
from sennit.supernet.drawless import drawless

NAMES = (
    "sep3 sep5_drop dil3 conv1x7_7x1 avg3 max3 mb3k3 mb6k5 mb3k5_se up3 conv3_last identity "
    "sep5 sep7 dil5 conv1 conv3 dw3 conv1x3_3x1 avg5 max5 mb3k5 mb6k3 mb3k3_se "
    "dw5 dw7 dil7 conv5 conv1x5_5x1 mb3k7 mb6k7 mb3k7_se mb6k3_se mb6k5_se mb6k7_se "
    "sep3_se sep5_se sep7_se dil3_se dil5_se "
    "bneck3 bneck5 bneck3_se bneck5_se gconv3 gconv5 conv3_se se"
).split()

GROUPS = 4
"""Of `gconv`; channels divide by it."""

DROPOUT = 0.1
"""Of `..._drop`."""

Maker = Callable[[int, int, int, int], nn.Module]
"""(inputs, outputs, stride, kernel) to an operator."""

FAMILIES: dict[str, Maker] = {
    "sep": op.separable,
    "dw": op.depthwise,
    "dil": lambda i, o, s, k: op.depthwise(i, o, s, k, dilation=2),
    "conv": op.plain,
    "gconv": lambda i, o, s, k: op.plain(i, o, s, k, GROUPS),
    "bneck": op.bottleneck,
    "avg": lambda i, o, s, k: op.pool(i, o, s, k, "avg"),
    "max": lambda i, o, s, k: op.pool(i, o, s, k, "max"),
    "up": op.transposed,
}
"""What stands before the kernel size in a name, to what makes it."""

VARIANTS: dict[str, Callable[[nn.Module, int], nn.Module]] = {
    "se": lambda made, channels: nn.Sequential(made, op.SqueezeExcite(channels)),
    "drop": lambda made, channels: nn.Sequential(made, nn.Dropout(DROPOUT)),
    "last": lambda made, channels: op.ChannelsLast(made),
}
"""(operator, its channels) to another operator."""


def operator(name: str, inputs: int, outputs: int, stride: int) -> nn.Module:
    """The operator called `name`; all but "identity"."""
    if name == "se":
        return op.gate(inputs, outputs, stride)
    kind, _, variant = name.partition("_") if not name.startswith("conv1x") else (name, "", "")
    if match := re.fullmatch(r"mb(\d)k(\d)", kind):
        return op.inverted(inputs, outputs, stride, int(match[2]), int(match[1]), variant == "se")
    if match := re.fullmatch(r"conv1x(\d)_\1x1", kind):
        return op.factorised(inputs, outputs, stride, int(match[1]))
    match = re.fullmatch(r"([a-z]+)(\d)", kind)
    assert match is not None, name
    made = FAMILIES[match[1]](inputs, outputs, stride, int(match[2]))
    return VARIANTS[variant](made, outputs) if variant else made


@drawless
class Cell(nn.Module):
    """operator(newest output) + older output, as in a NASNet cell with two inputs."""

    def __init__(self, made: nn.Module) -> None:
        super().__init__()
        self.operator = made

    def forward(self, x: Tensor, older: Tensor) -> Tensor:
        """Both (rows, channels, h, w), and so is the result."""
        if x.device.type == "meta":
            return torch.empty_like(x)
        return self.operator(x) + older


@drawless
class Mean(nn.Module):
    """`identity`: no operator, and both inputs count alike, so that depth does not make values grow."""

    def forward(self, x: Tensor, older: Tensor) -> Tensor:
        return (x + older) * 0.5


@drawless
class Reduction(nn.Module):
    """A cell that halves height and width and doubles the channels."""

    def __init__(self, made: nn.Module, inputs: int, outputs: int) -> None:
        super().__init__()
        self.operator = made
        self.older = op.Shrink(inputs, outputs)

    def forward(self, x: Tensor, older: Tensor) -> Tensor:
        """Both (rows, channels, h, w), the result (rows, 2 × channels, h / 2, w / 2)."""
        if x.device.type == "meta":
            rows, channels, high, wide = x.shape
            if high % 2 or wide % 2:
                raise SpaceError(f"height and width of the images must divide by 4; here {high}×{wide} is halved")
            return x.new_empty(rows, 2 * channels, high // 2, wide // 2)
        return self.operator(x) + self.older(older)


def candidate(name: str, channels: int, reduces: bool) -> nn.Module:
    """The candidate called `name` of a block, called with (newest output, the one before)."""
    if not reduces:
        return Mean() if name == "identity" else Cell(operator(name, channels, channels, 1))
    if name == "identity":
        return Reduction(op.Shrink(channels, 2 * channels), channels, 2 * channels)
    return Reduction(operator(name, channels, 2 * channels, 2), channels, 2 * channels)
