"""`Delivery`: what messages from other workers bring, put where it belongs.

F  values ──▶ flight of the run that reads them          P  gradients of parameters ──▶ fold of the group
B  gradients of values ──▶ flight of the run that made   N  norms ──▶ clipping of the subnet
for a subnet that has not been let in ──▶ kept until it is
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from sennit.runtime.channel import Message
from sennit.runtime.fold import Use
from sennit.runtime.reasons import Reasons
from sennit.runtime.stepping import Stepping
from sennit.runtime.subnet import Subnet
from sennit.runtime.tasks import Tasks

Tensors = list[Tensor | None]


class Delivery:
    """Of one worker.

    Args:
        subnets: those let in.
    """

    def __init__(self, subnets: Mapping[int, Subnet], tasks: Tasks, ready: Reasons, stepping: Stepping) -> None:
        self.subnets, self.tasks, self.ready, self.stepping = subnets, tasks, ready, stepping
        self._early: dict[int, list[tuple[Message, Tensors]]] = {}

    def keep(self, message: Message, tensors: Tensors) -> None:
        """Its subnet has not been let in."""
        self._early.setdefault(message.seq_id, []).append((message, tensors))

    def kept(self, seq_id: int) -> Iterable[tuple[Message, Tensors]]:
        """What has come for a subnet that is let in now."""
        return self._early.pop(seq_id, ())

    def put(self, message: Message, tensors: Tensors) -> None:
        """Put what a message brings where it belongs."""
        y, j, run = message.seq_id, message.micro_batch, message.run
        if message.kind == "F":
            flight = self.tasks.flight(y, j, run)
            for (value, wanted), tensor in zip(message.items, tensors, strict=True):
                flight.values[value] = (tensor, wanted)
                self.ready.happened(("value", y, j, run, value), message)
            for value, shape in message.facts.items():
                flight.values[value] = (shape, False)
                self.ready.happened(("value", y, j, run, value), message)
        elif message.kind == "B":
            flight = self.tasks.flight(y, j, run)
            for ((value, reader), _), tensor in zip(message.items, tensors, strict=True):
                flight.grads.setdefault(value, {})[reader] = tensor
            for value in {value for (value, _), _ in message.items}:
                self.ready.happened(("grad", y, j, run, value, message.source), message)
        elif message.kind == "P":
            parts: dict[str, dict[Use, Tensor | None]] = {group: {} for group in message.facts["groups"]}
            for (use, _), tensor in zip(message.items, tensors, strict=True):
                parts[self.stepping.groups.of_name[use[0]].name][use] = tensor
            for group, part in parts.items():
                self.stepping.part(self.subnets[y], group, j, part)
        elif message.kind == "N":
            self.stepping.add_norms(self.subnets[y], message.facts)

    def brings_steps(self, message: Message) -> bool:
        """Whether gradients or norms from another worker may complete what a group's step waits for."""
        if message.kind == "N":
            return self.stepping.completes(self.subnets[message.seq_id], message.facts)
        return message.kind == "P"
