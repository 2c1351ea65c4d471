"""What is measured on a network, and which way is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from sennit.errors import UserError
from sennit.program.template import map_tree
from sennit.space.model_space import as_call
from sennit.supernet.loss import (
    PADDING,
    LossFunction,
    cross_entropy,
    smoothed_token_cross_entropy,
    token_cross_entropy,
)

Mode = Literal["min", "max"]

MODES: dict[str, Mode] = {
    "loss": "min",
    "accuracy": "max",
    "parameters": "min",
    "flops": "min",
    "bleu": "max",
}
"""Direction of the metrics that sennit knows. A data set with a `score` may add `modes = {"wer": "min"}`."""

Accuracy = Callable[[Any, Any], tuple[Any, Any]]
"""`(output, target)` of one batch to (how many are right, of how many)."""


@dataclass(frozen=True)
class Objective:
    """The metric that a search improves.

    Attributes:
        name: key in the metrics of a network.
        mode: "max" or "min".
    """

    name: str
    mode: Mode

    @staticmethod
    def parse(text: str, modes: Mapping[str, Mode]) -> Objective:
        """`accuracy`, or `max:name` and `min:name` for a metric whose direction is not known.

        Raises:
            UserError: a name without a known direction.
        """
        mode, colon, name = text.partition(":")
        if colon and mode in ("min", "max") and name:
            return Objective(name, mode)  # type: ignore[arg-type]
        if colon or text not in modes:
            raise UserError(
                f"objective = {text!r}: write 'max:NAME' or 'min:NAME', or one of "
                f"{', '.join(sorted(modes))}, whose direction is known"
            )
        return Objective(text, modes[text])

    def value(self, metrics: Mapping[str, Any]) -> float:
        """The metric as number.

        Raises:
            UserError: the network has no such metric.
        """
        if self.name not in metrics:
            raise UserError(f"objective {self.name!r} was not measured; there are {', '.join(sorted(metrics))}")
        return float(metrics[self.name])

    def rank(self, metrics: Mapping[str, Any]) -> float:
        """Smaller is better; NaN is worst."""
        value = self.value(metrics)
        return math.inf if math.isnan(value) else -value if self.mode == "max" else value


def accuracy_of(function: LossFunction) -> Accuracy | None:
    """How right answers are counted: an attribute `accuracy` of the loss function, or a built-in one."""
    own = getattr(function, "accuracy", None)
    if own is not None:
        return own
    if function is cross_entropy:
        return _right_rows
    if function in (token_cross_entropy, smoothed_token_cross_entropy):
        return _right_tokens
    return None


def _right_rows(output: Tensor, target: Tensor) -> tuple[int, int]:
    return int((output.argmax(dim=-1) == target).sum()), target.numel()


def _right_tokens(output: Tensor, target: Tensor) -> tuple[int, int]:
    kept = target != PADDING
    return int(((output.argmax(dim=-1) == target) & kept).sum()), int(kept.sum())


def count_parameters(network: nn.Module) -> int:
    """Numbers in all parameters, a tied one once."""
    return sum(p.numel() for p in network.parameters())


def count_flops(network: nn.Module, x: Any) -> int:
    """Floating-point operations of one forward of `x`, counted by running it (2 per multiply-add).

    Matrix products, convolutions and attention count; element-wise operations do not.

    Args:
        network: in eval mode.
        x: an input of one sample, on the device of the network.
    """
    args, kwargs = as_call(x)
    # torch's counter knows the attention kernels of GPUs, not that of the CPU
    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    counter = FlopCounterMode(display=False, custom_mapping={on_cpu: _attention_flops})
    with torch.no_grad(), counter:
        network(*args, **kwargs)
    return int(counter.get_total_flops())


def _attention_flops(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """From the shapes of the three."""
    return sdpa_flop_count(query, key, value)


def one_sample(x: Any) -> Any:
    """The first row of every tensor of a batch's input."""
    return map_tree(lambda t: t[:1] if isinstance(t, Tensor) and t.dim() else t, x)
