"""`Batches`: inputs, targets and the loss of the subnets that a worker has in flight."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from sennit.data.loader import BatchSource, loader_death
from sennit.errors import RunError
from sennit.executor.loss_graph import LossCall
from sennit.program.recordings import spec_of
from sennit.program.template import map_tree
from sennit.recipe import Placement
from sennit.runtime.subnet import Subnet
from sennit.space.model_space import as_call
from sennit.supernet.build import LOSS_STEP, Built
from sennit.supernet.context import StepContext
from sennit.supernet.keys import mix
from sennit.supernet.loss import LOSSES, count_terms, told_terms

LOADING = "loading batches, s"
"""Name of a counter."""


class Batches:
    """Loads a subnet's batch when a step needs it, or before. Each worker that reads inputs or targets loads them
    itself."""

    def __init__(self, built: Built, placement: Placement, device: torch.device) -> None:
        self.built, self.device, self.wanted = built, device, placement.device != "virtual"
        self.source = BatchSource(built.batches, placement.loaders, placement.prefetch)
        self.held: dict[int, list[tuple[Any, Any]]] = {}
        self.left: set[int] = set()
        """Subnets whose batches could not be prepared: the task that needs one says why, in its turn."""
        self.loading_s = 0.0
        """For which this worker loaded batches itself or waited for those that do, since the last `counters()`."""

    def missing(self, subnets: Iterable[Subnet]) -> Subnet | None:
        """The first of these subnets whose tasks here will want a batch that has not been brought."""
        for subnet in subnets if self.wanted else ():
            y = subnet.seq_id
            if y not in self.held and y not in self.left and any(r.reads_input or r.has_loss for r, _ in subnet.own):
                return subnet
        return None

    def prepare(self, subnets: Iterable[Subnet]) -> bool:
        """Bring the batch of the first that misses one, if loader processes have it. Else the first of its tasks does,
        and the device waits for that.

        Returns:
            Whether there was one.
        """
        subnet = self.missing(subnets)
        if subnet is None or not self.source.there(subnet.seq_id):
            return False
        try:
            self.of(subnet)
        except Exception as error:
            if isinstance(error, RunError) or loader_death(error) is not None:
                raise
            self.left.add(subnet.seq_id)
        return True

    def of(self, subnet: Subnet) -> list[tuple[Any, Any]]:
        """The micro-batches `(x, y)` of a subnet, on the device."""
        known = self.held.get(subnet.seq_id)
        if known is None:
            known = self.built.micro_batches(self._loaded(subnet.seq_id))
            self.built.program(subnet.arch, spec_of(as_call(known[0][0])))  # a new shape must fit the program
            if self.device.type == "cuda":  # counted here, where nobody has to wait for it
                subnet.counts = told_terms(self.built.loss_function, [y for _, y in known])
                known = map_tree(self._brought, known)
            self.held[subnet.seq_id] = known
        return known

    def _loaded(self, seq_id: int) -> Any:
        began = time.perf_counter()
        batch = self.source.get(seq_id)
        self.loading_s += time.perf_counter() - began
        return batch

    def counters(self) -> dict[str, float]:
        """Since the last call, for the trace."""
        found, self.loading_s = {LOADING: self.loading_s}, 0.0
        return found

    def _brought(self, leaf: Any) -> Any:
        """A tensor on the device. From pinned memory, since the host would wait for a copy out of any other."""
        return leaf.pin_memory().to(self.device, non_blocking=True) if isinstance(leaf, Tensor) else leaf

    def loss(self, subnet: Subnet, micro_batch: int, output: Any) -> Tensor:
        """The micro-batch's share of the loss."""
        batch = self.of(subnet)
        if subnet.counts is None:
            subnet.counts = count_terms(self.built.loss_function, [y for _, y in batch], output)
        return self.built.loss_of(output, batch[micro_batch][1], subnet.counts, micro_batch)

    def loss_call(
        self, subnet: Subnet, micro_batch: int, call: Callable[[Subnet, int, Any], Tensor], context: StepContext
    ) -> LossCall:
        """The loss of a micro-batch for an executor; `call` computes it."""
        own = self.built.recipe.loss_name in LOSSES
        batch = self.of(subnet) if own else []
        if own and subnet.counts is None:
            subnet.counts = told_terms(self.built.loss_function, [y for _, y in batch])
        terms = sum(subnet.counts) if own and subnet.counts is not None else 0
        return LossCall(
            lambda output: call(subnet, micro_batch, output), self.built.loss_function if terms else None,
            batch[micro_batch][1] if own else None, terms, mix(context.key, LOSS_STEP),
        )  # fmt: skip

    def drop(self, seq_id: int) -> None:
        self.held.pop(seq_id, None)
        self.left.discard(seq_id)
        self.source.drop(seq_id)

    def close(self) -> None:
        self.source.close()
