"""`Flight`: what one run of steps of a micro-batch has received and keeps, until it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from sennit.executor.eager import RunContext
from sennit.executor.graph_context import GraphContext
from sennit.runtime.fold import Use
from sennit.runtime.retry import Kept
from sennit.runtime.told import Told


@dataclass
class Flight:
    """Mailboxes of one (subnet, micro-batch, run).

    Attributes:
        values: value number to (tensor or shape, whether its gradient is wanted).
        grads: value number to gradient per reading step.
        context: kept between forward and backward.
        kept: what the forward read, should it have to run again.
        loss: until it is reported; the backward sends nothing before.
        given: gradients that I started from, by value, kept for W.
        found: gradients of parameters that I has, kept for W.
    """

    values: dict[int, tuple[Any, bool]] = field(default_factory=dict)
    grads: dict[int, dict[int, Tensor | None]] = field(default_factory=dict)
    context: RunContext | GraphContext | None = None
    kept: Kept | None = None
    loss: Told | None = None
    given: dict[int, list[Tensor]] | None = None
    found: dict[Use, Tensor | None] | None = None

    def drop(self) -> None:
        """Forget the graph."""
        if isinstance(self.context, GraphContext):
            self.context.drop()
        self.context = None
