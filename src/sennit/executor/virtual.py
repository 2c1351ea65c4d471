"""`VirtualExecutor`: waits where a device would compute, so that many workers can be run on a few cores.

Values and gradients are single numbers; who sends what to whom, and when, is real.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sennit.executor.eager import Gradients, Received, RunContext
from sennit.executor.split import Joint
from sennit.profile.costs import Costs
from sennit.program.cut import Run
from sennit.program.run import Values
from sennit.program.step import Program, Step
from sennit.supernet.context import StepContext

SPIN_S = 0.0002
"""The last part of a wait, seconds, which is not slept through: a sleep ends later than it was asked to."""


@dataclass(kw_only=True)
class Waited(RunContext):
    """What the backward needs to know: how long it takes."""

    run: Run


class VirtualExecutor:
    """Executes runs by waiting. The methods are those of `EagerExecutor`."""

    def __init__(self, waits: Costs) -> None:
        self.waits = waits

    def forward(
        self, program: Program, run: Run, slot: Callable[[str], Tensor], arrivals: Received, inputs: Values,
        context: StepContext, loss: Callable[[Any], Tensor] | None, on_step: Callable[[Step], None],
    ) -> tuple[dict[int, Any], Waited]:  # fmt: skip
        self._wait(run, "forward")
        made = {value: torch.zeros(()) for value, _ in run.departures}
        return made, Waited(run=run, roots=made, loss=torch.zeros(()) if loss is not None else None)

    def backward(self, ctx: Waited, grads: Mapping[int, list[Tensor]]) -> Gradients:
        self._wait(ctx.run, "whole")
        return self._values(ctx)

    def backward_input(self, ctx: Waited, grads: Mapping[int, list[Tensor]]) -> Gradients:
        self._wait(ctx.run, "input")
        ctx.joints = [Joint([])]
        return self._values(ctx)

    def backward_weight(self, ctx: Waited) -> dict[tuple[str, int], Tensor | None]:
        self._wait(ctx.run, "weight")
        return {}

    def relieve(self) -> None:
        pass

    def counters(self) -> dict[str, float]:
        return {}

    def _values(self, ctx: Waited) -> Gradients:
        keys = [(arrival.value, reader) for arrival in ctx.run.arrivals for reader in arrival.readers]
        return Gradients({key: torch.zeros(()) for key in keys}, {})

    def _wait(self, run: Run, part: str) -> None:
        seconds = getattr(self.waits.of_steps(run.steps), part)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if left > SPIN_S:
                time.sleep(left - SPIN_S)
