"""`LossGraph`: a loss of one output at one shape, captured: sum of its terms and gradient of the output by one replay.

    output, target ─▶ staging    1 / terms of the batch ─▶ staging    replay    staging ─▶ sum; gradient

Only losses that come with sennit: they are functions of output and target and nothing else. One of a user's may count
its calls, or read a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sennit.executor.capture import Capturing, Graph, NotCapturable
from sennit.executor.staging import Staging
from sennit.memory.parcel import copy, numbers
from sennit.supernet.bits import same_bits
from sennit.supernet.edge import enter
from sennit.supernet.loss import LossFunction


@dataclass(frozen=True)
class LossCall:
    """The loss of a micro-batch, as a call on what the network gives.

    Attributes:
        call: computes its share in the batch's loss.
        function: gives the sum of the terms, if that depends on output and target alone; else None.
        target: of the micro-batch.
        terms: of the whole batch.
        key: of its draws.
    """

    call: Callable[[Any], Tensor]
    function: LossFunction | None
    target: Any
    terms: int
    key: int

    def __call__(self, output: Any) -> Tensor:
        return self.call(output)


class LossGraph:
    """Captured at one shape.

    Args:
        wanted: whether the gradient of the output is.
    """

    def __init__(
        self, device: Capturing, staging: Staging, function: LossFunction, output: Tensor, target: Tensor, wanted: bool
    ) -> None:
        self.device, self.staging, self.function, self.wanted = device, staging, function, wanted
        self.read = [staging.tensor("loss output", output), staging.tensor("loss target", target)]
        self._filled = [numbers(t) for t in self.read]
        self.sum: Tensor | None = None
        copy(self._filled, [numbers(output), numbers(target)])
        self.graph: Graph = device.capture(self._captured)

    def _captured(self) -> None:
        output, target = (t.detach() for t in self.read)
        if self.wanted:
            output.requires_grad_()
        total = self.function(enter(output), enter(target))[0]
        if self.sum is None:
            self.sum = self.staging.tensor("loss", total)
            self.given = self.staging.tensor("loss given", total)
            self.gradient = self.staging.tensor("loss gradient", output)
        self.sum.copy_(total.detach())
        if self.wanted:
            self.gradient.copy_(torch.autograd.grad([total], [output], [self.given])[0])

    def play(self, output: Tensor, loss: LossCall) -> tuple[Tensor, Tensor | None]:
        """The micro-batch's share of the loss, and the gradient of the output."""
        assert self.sum is not None
        terms = max(loss.terms, 1)
        copy(self._filled, [numbers(output), numbers(loss.target)])
        self.given.fill_(1.0).div_(terms)
        self.device.seed(loss.key)
        self.graph.replay()
        return self.sum / terms, self.gradient.clone() if self.wanted else None


class LossGraphs:
    """Those of a worker, by shapes of output and target.

    Args:
        after: how often shapes must be seen before they are captured.
        refused: why something stays eager; added to.
    """

    def __init__(self, device: Capturing, staging: Staging, after: int, refused: dict[str, str]) -> None:
        self.device, self.staging, self.after, self.refused = device, staging, after, refused
        self.graphs: dict[Hashable, LossGraph | None] = {}
        """None for what stays eager."""
        self.seen: Counter[Hashable] = Counter()

    def of(self, output: Tensor, wanted: bool, loss: LossCall) -> LossGraph | None:
        """The loss's graph at these shapes, captured if it is time; None: compute it."""
        function, target = loss.function, loss.target
        if function is None or not isinstance(target, Tensor):
            return None
        key = (output.shape, output.dtype, wanted, target.shape, target.dtype)
        if key not in self.graphs:
            self.seen[key] += 1
            if self.seen[key] <= self.after:
                return None
            self.graphs[key] = None
            try:
                graph = LossGraph(self.device, self.staging, function, output, target, wanted)
            except NotCapturable as reason:
                self.refused.setdefault(str(reason), "loss")
                return None
            leaf = output.detach().requires_grad_(wanted)
            eager = loss(leaf)
            back = torch.autograd.grad([eager], [leaf], [torch.ones_like(eager)])[0] if wanted else None
            if same_bits(graph.play(output, loss), (eager.detach(), back)):
                self.graphs[key] = graph
            else:
                self.refused.setdefault("a replay gives other bits", "loss")
        return self.graphs[key]
