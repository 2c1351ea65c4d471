"""`Batches`: inputs, targets and the loss of the subnets that a worker has in flight."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sennit.data.loader import BatchSource
from sennit.program.recordings import spec_of
from sennit.program.template import map_tree
from sennit.recipe import Placement
from sennit.runtime.subnet import Subnet
from sennit.space.model_space import as_call
from sennit.supernet.build import Built
from sennit.supernet.loss import count_terms


class Batches:
    """Loads a subnet's batch when a step needs it. Each worker that reads inputs or targets loads them itself."""

    def __init__(self, built: Built, placement: Placement, device: torch.device) -> None:
        self.built, self.device = built, device
        self.source = BatchSource(built.batches, placement.loaders, placement.prefetch)
        self.held: dict[int, list[tuple[Any, Any]]] = {}

    def of(self, subnet: Subnet) -> list[tuple[Any, Any]]:
        """The micro-batches `(x, y)` of a subnet, on the device."""
        known = self.held.get(subnet.seq_id)
        if known is None:
            known = self.built.micro_batches(self.source.get(subnet.seq_id))
            self.built.program(subnet.arch, spec_of(as_call(known[0][0])))  # a new shape must fit the program
            if self.device.type != "cpu":
                known = map_tree(lambda t: t.to(self.device, non_blocking=True) if isinstance(t, Tensor) else t, known)
            self.held[subnet.seq_id] = known
        return known

    def loss(self, subnet: Subnet, micro_batch: int, output: Any) -> Tensor:
        """The micro-batch's share of the loss."""
        batch = self.of(subnet)
        if subnet.counts is None:
            subnet.counts = count_terms(self.built.loss_function, [y for _, y in batch], output)
        return self.built.loss_of(output, batch[micro_batch][1], subnet.counts, micro_batch)

    def drop(self, seq_id: int) -> None:
        self.held.pop(seq_id, None)
        self.source.drop(seq_id)

    def close(self) -> None:
        self.source.close()
