"""Memory for the steps of a dry run, and what steps do to it that they may not: writes unseen, or too late."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sennit.errors import SpaceError, UserError
from sennit.program.refusals import READ_ELSEWHERE, WRITES
from sennit.program.step import Step
from sennit.supernet.bits import same_bits

UNSEEN = """{where}: step {name!r} ({call}) writes its buffer {buffer!r} in forward, and did not when it was recorded,
on tensors without data. What is written is versioned, so a recording must see it. Write with torch's own functions, and
let nothing but shapes and arguments decide whether (no `is_meta`, no `device`, no count of rows)."""

MOVES_BACK = """{where}: step {name!r} ({call}) writes its buffer {buffer!r} in backward, too.
A layer that is run again by its backward (torch.utils.checkpoint) moves its statistics twice, and when the second time
comes depends on who runs which step. Leave what writes buffers out of what is run again (a BatchNorm outside of
checkpoint())."""

Moves = dict[str, dict[bool, Step]]
"""Of each buffer, a step that has it and writes it, and one that has it and does not."""


def refuse_readers(moves: Moves) -> None:
    """A module that holds another one's norm looks, in a recording, as if it wrote its statistics. If it only reads
    them, its backward would see them as later forwards have left them.

    Raises:
        SpaceError: there is such a module.
    """
    for buffer, steps in moves.items():
        if len(steps) > 1:
            reader, writer = steps[False], steps[True]
            raise SpaceError(
                READ_ELSEWHERE.format(
                    where=reader.where or reader.name, call=reader.call, buffer=buffer, writer=writer.name
                )
            )


class Slots:
    """Memory for what steps read, and what it held before a step."""

    def __init__(self, fill: Callable[[str], Tensor]) -> None:
        self.fill = fill
        self.made: dict[str, Tensor] = {}
        self.before: dict[str, Tensor] = {}
        self.writes: dict[str, int] = {}
        """torch's count of writes in place, which `.data` evades; bytes tell of those."""
        self.between: dict[str, tuple[int, Tensor]] = {}
        """Of each buffer, that count and what it held between forward and backward."""

    def begin(self) -> None:
        self.before.clear()
        self.between.clear()

    def __call__(self, name: str) -> Tensor:
        if name not in self.made:
            self.made[name] = self.fill(name)
        tensor = self.made[name]
        if name not in self.before:
            self.before[name] = tensor.detach().clone()
            self.writes[name] = tensor._version
        return tensor

    def refuse_written(self, step: Step) -> None:
        """Raise if the step has changed a parameter, or a buffer that it does not write as far as is known."""
        for name, held in self.before.items():
            tensor = self.made[name]
            if name in step.written or (tensor._version == self.writes[name] and same_bits(tensor, held)):
                continue
            if isinstance(tensor, nn.Parameter):
                raise UserError(WRITES.format(where=step.where, name=step.name, call=step.call, parameter=name))
            raise UserError(UNSEEN.format(where=step.where, name=step.name, call=step.call, buffer=name))

    def after_forward(self) -> None:
        self.between = {
            name: (self.made[name]._version, self.made[name].clone())
            for name in self.before
            if not isinstance(self.made[name], nn.Parameter)
        }

    def refuse_moved_back(self, step: Step) -> None:
        """Raise if the step's backward has written a buffer."""
        for name, (writes, held) in self.between.items():
            if self.made[name]._version != writes or not same_bits(self.made[name], held):
                raise UserError(MOVES_BACK.format(where=step.where, name=step.name, call=step.call, buffer=name))

    def note_moves(self, step: Step, moves: Moves) -> None:
        """Which buffers the step has changed, and which it has and has not."""
        for name in step.written:
            if name in self.before:
                moves.setdefault(name, {}).setdefault(not same_bits(self.made[name], self.before[name]), step)

    def take_back(self) -> None:
        """Undo what the step wrote into buffers."""
        for name, held in self.before.items():
            self.made[name].data.copy_(held)


def filled(like: Tensor, device: torch.device) -> Tensor:
    """Memory with harmless values: small weights, buffers of ones."""
    made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)
    if not isinstance(like, nn.Parameter):
        return made.fill_(1)
    return nn.Parameter(made.normal_(0, 0.02) if made.is_floating_point() else made.zero_(), like.requires_grad)
