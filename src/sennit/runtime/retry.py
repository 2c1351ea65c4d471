"""`Retry`: a task that finds its device full runs again, once there is more room.

    task ──▶ device full ──▶ what it has changed is put back, what can leave the device leaves ──▶ task

A task changes nothing for others before it has computed: values and gradients leave at its end. What it changes for
itself are buffers that a forward writes, and the graph that a backward takes apart. The first are copied before each
forward; the second is built again by running the forward again, on copies of the buffers as they were. Draws are keyed
by step, so it gives what it gave. A task that met a full device and did not fail may have other bits: it ends the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from sennit.program.run import Values
from sennit.runtime.full import is_full, refused_if_swallowed

T = TypeVar("T")

ATTEMPTS = 3


@dataclass
class Kept:
    """What a forward read, until its backward is done.

    Attributes:
        slot: tensors of the layers, by name.
        arrivals: value number to (tensor or shape, whether its gradient is wanted).
        inputs: of the program.
        buffers: copies of what the forward writes, as it was before.
    """

    slot: Callable[[str], Tensor]
    arrivals: dict[int, tuple[Any, bool]]
    inputs: Values
    buffers: dict[str, Tensor]

    def put_back(self) -> None:
        """Undo what a forward that has failed wrote."""
        for name, before in self.buffers.items():
            self.slot(name).data.copy_(before)  # past autograd, as batch norm writes them: other graphs hold them too

    def scratch(self) -> Callable[[str], Tensor]:
        """As `slot`, with buffers as they were, which may be written."""
        copies = {name: before.clone() for name, before in self.buffers.items()}
        return lambda name: copies[name] if name in copies else self.slot(name)


class Retry:
    """Of one worker.

    Args:
        make_room: let leave the device what can.
        device: the one that may be full.
    """

    def __init__(self, make_room: Callable[[], None], device: torch.device) -> None:
        self.make_room, self.device = make_room, device
        self.again = 0
        """How many tasks have run again."""

    def __call__(self, call: Callable[[], T], undo: Callable[[], None]) -> T:
        """The result of `call`.

        Args:
            undo: make it as if `call` had not been tried.

        Raises:
            RuntimeError: of a full device, when it has been tried often enough; any other at once.
            RunError: the device was full and `call` went on in another way.
        """
        for left in reversed(range(ATTEMPTS)):
            try:
                return self.once(call, undo)
            except RuntimeError as error:
                if not left or not is_full(error):
                    raise
            # outside of the handler, which holds the failed call's tensors
            self.again += 1
            undo()
            self.make_room()
        raise AssertionError

    def found(self, call: Callable[[], T]) -> T:
        """The result of a call that computes nothing, but may need memory for what will be computed on.

        Raises:
            RuntimeError: of a device that is full also when what can leave it has left; any other at once.
        """
        try:
            return call()
        except RuntimeError as error:
            if not is_full(error):
                raise
        self.again += 1
        self.make_room()
        return call()

    def once(self, call: Callable[[], T], undo: Callable[[], None]) -> T:
        """The result of `call`, never tried again."""
        with refused_if_swallowed(self.device):
            return call()
