"""`may_draw`: modules that certainly draw no random numbers need no seed before them.

To seed a generator is to fill its state, for nothing if nobody draws. Each step that draws is seeded by a key of its
own, so what the others leave in the generators is seen by nobody.
"""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor, nn
from torch.nn.modules import module as _module

from sennit.supernet.draws import draws_with_torch, hooked

Class = TypeVar("Class", bound=type[nn.Module])

_DRAWLESS: set[type[nn.Module]] = {
    nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.Identity, nn.Flatten, nn.Unflatten,
    nn.Linear, nn.Bilinear, nn.Embedding,
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.GLU,
    nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.Sigmoid, nn.LogSigmoid, nn.Tanh, nn.Softplus, nn.Softsign,
    nn.Softmax, nn.LogSoftmax,
    nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
    nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d, nn.PixelShuffle, nn.PixelUnshuffle, nn.Upsample,
}  # fmt: skip
"""Classes whose own code draws nothing, in any mode and with any settings. No dropout: its share may change."""


def drawless(cls: Class) -> Class:
    """Says of a class of ours that its own code draws nothing. What it holds is looked at by itself, and so are classes
    derived from it."""
    _DRAWLESS.add(cls)
    return cls


def may_draw(module: nn.Module) -> bool:
    """Whether anything that `module` runs could draw, as far as is known."""
    if not draws_with_torch(module) or hooked_everywhere():
        return True
    return not all(map(_is_drawless, module.modules()))


def hooked_everywhere() -> bool:
    """Whether hooks run at the calls of all modules."""
    return bool(_module._has_any_global_hook())


def _is_drawless(module: nn.Module) -> bool:
    """By its class; and nothing has been put into it that would run in place of its own code, or along with it."""
    if type(module) not in _DRAWLESS or hooked(module) or any(map(callable, vars(module).values())):
        return False
    held = [*module._parameters.values(), *module._buffers.values()]
    return all(tensor is None or type(tensor) in (Tensor, nn.Parameter) for tensor in held)
