"""What a replayed layer leaves for its backward, and what that gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from sennit.program.step import Step
from sennit.supernet.context import StepContext
from sennit.supernet.keys import mix, name_key

if TYPE_CHECKING:
    from sennit.executor.layer_call import LayerCall


@dataclass
class Played:
    """What the backward of a replayed layer needs.

    Attributes:
        reads: what it read; sizes as tuples.
        tensors: those of `reads` that are tensors, as numbers.
        held: bytes of each parcel, where they lie.
        buffers: bytes of the parcels that the forward wrote, as they were before, by number of the parcel.
        context: of its draws.
        outs: what it gave.
        turn: which forward of its graph this was, if the graph keeps something of it.
    """

    graph: LayerCall
    step: Step
    reads: list[Any]
    tensors: list[Tensor]
    held: list[Tensor]
    buffers: dict[int, Tensor]
    context: StepContext
    outs: Sequence[Tensor] = ()
    turn: int = 0

    @property
    def key(self) -> int:
        return mix(self.context.key, name_key(self.step.name))

    def again(self) -> list[Tensor]:
        """Copies of the tensors that the layer held in its forward."""
        return self.graph.unpacked([self.buffers.get(k, flat).clone() for k, flat in enumerate(self.held)])

    def give_back(self) -> None:
        """Nothing of this forward is needed any more. May be said twice."""
        self.graph.give_back(self)


@dataclass
class Found:
    """What a backward gives.

    Attributes:
        inputs: gradient of each tensor read; None where none is wanted or there is none.
        parameters: number of the tensor to its gradient; those of a parcel lie in one piece, in its layout.
    """

    inputs: list[Tensor | None]
    parameters: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
