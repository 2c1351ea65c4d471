"""`GraphContext`: what a run of steps keeps between forward and backward, where some of them are replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from sennit.executor.eager import EagerExecutor, Gradients, RunContext
from sennit.executor.played import Played
from sennit.program.cut import Run
from sennit.program.step import Program, Step


@dataclass
class GraphContext:
    """What the backward of a run needs. Tasks look at `roots`, `loss` and `joints`, as of a `RunContext`.

    Attributes:
        wanted: whether a gradient goes back to a value.
        roots: values whose gradient is wanted, of those that leave the run.
        loss_leaves: outputs as the loss read them, if it was computed eagerly.
        loss_gradient: of the output, if the loss was replayed.
        joints: what `backward_input` has left for `backward_weight`.
        done: of each step that computes, how it ran, in order.
        lent: storages that are instances' own, and change when these are played again.
        give: takes gradients of parameters step by step, as soon as what makes them has been launched; None: they are
            given all together, when all has been.
    """

    program: Program
    run: Run
    wanted: dict[int, bool] = field(default_factory=dict[int, bool])
    roots: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    loss: Tensor | None = None
    loss_leaves: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    loss_gradient: Tensor | None = None
    joints: list[tuple[Step, Played]] = field(default_factory=list[tuple[Step, Played]])
    done: list[tuple[Step, Played | RunContext]] = field(default_factory=list[tuple[Step, Played | RunContext]])
    lent: set[int] = field(default_factory=set[int])
    give: Callable[[Step, Mapping[tuple[str, int], Tensor | None]], None] | None = None

    def drop(self) -> None:
        """Nothing of this run is needed any more: instances are free again."""
        self.joints.clear()
        self.give_back()

    def give_back(self) -> None:
        """All but what is left for later is done."""
        later = {id(played) for _, played in self.joints}
        for _, how in self.done:
            if isinstance(how, Played) and id(how) not in later:
                how.give_back()

    def to_keep(self, value: Any) -> Any:
        """`value`, copied if it lies in memory that is lent: for whoever uses it longer than this run."""
        if self.lent and isinstance(value, Tensor) and value.untyped_storage().data_ptr() in self.lent:
            return value.clone()
        return value


def computed_again(
    eager: EagerExecutor, ctx: GraphContext, step: Step, played: Played, names: Sequence[str],
    given: Sequence[Tensor | None],
) -> Gradients:  # fmt: skip
    """The backward of a replayed step of which some output was not used. Autograd would not start from it, so the sums
    may be others than those of a replay."""
    own: dict[int, Any] = dict(zip(step.reads, played.reads, strict=True))
    slot = dict(zip(names, played.again(), strict=True))
    alone = eager.alone(ctx.program, step, slot.__getitem__, own, ctx.wanted, played.context)
    roots = [n for n, w in zip(step.writes, played.graph.out_wanted, strict=True) if w]
    parts = {n: [grad] for n, grad in zip(roots, given, strict=True) if grad is not None}
    return eager.backward(alone, parts)
