"""`Bulks`: under `bulk:K`, which groups step at the end of a bulk, on which worker, with which sums.

    subnet   8   9  10  11            K = 4, group g is used by 8 and 10
    owner    worker of the first      the worker that runs the first step of g in subnet 8; all workers see the stream
    total    g_8 + g_10               in this order, as soon as the next one is there
    step     total / 4, version 10    once subnet 11 is known: nobody after 10 uses g

Every worker observes every subnet, so all name the same owner without a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Sum:
    """The gradients of one group in one bulk.

    Attributes:
        writers: subnets that use the group, in order.
        waiting: gradients that came before their turn.
        added: how many writers' gradients are in `total`.
        step: of the last of these, the step that reads the group first.
    """

    writers: list[int] = field(default_factory=list)
    waiting: dict[int, tuple[dict[str, Tensor], str]] = field(default_factory=dict)
    added: int = 0
    step: str = ""
    total: dict[str, Tensor] = field(default_factory=dict)


class Bulks:
    """Bulks that have not stepped yet, as one worker sees them.

    Args:
        size: K.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.owner: dict[int, dict[str, int]] = {}
        """Bulk to group to worker."""
        self.sums: dict[tuple[int, str], Sum] = {}

    def observe(self, seq_id: int, owner: Mapping[str, int]) -> dict[str, int]:
        """Take in a subnet's groups with the workers that would own them; returns the owners for the bulk."""
        bulk = seq_id // self.size
        known = self.owner.setdefault(bulk, {})
        for group, worker in owner.items():
            known.setdefault(group, worker)
            self.sums.setdefault((bulk, group), Sum()).writers.append(seq_id)
        return {group: known[group] for group in owner}

    def add(self, seq_id: int, group: str, grads: dict[str, Tensor], step: str) -> None:
        """Add one subnet's gradients; they must be tensors of their own."""
        held = self.sums[seq_id // self.size, group]
        held.waiting[seq_id] = (grads, step)
        while held.added < len(held.writers) and held.writers[held.added] in held.waiting:
            grads, held.step = held.waiting.pop(held.writers[held.added])
            for name, grad in grads.items():
                if name in held.total:
                    held.total[name].add_(grad)
                else:
                    held.total[name] = grad
            held.added += 1

    def complete(self, bulk: int, group: str) -> bool:
        """Whether the gradients of all known writers are added."""
        held = self.sums[bulk, group]
        return held.added == len(held.writers)

    def mean(self, bulk: int, group: str) -> tuple[dict[str, Tensor], int, str]:
        """The sum divided by K; the last writer and its step. Forgotten here."""
        held = self.sums.pop((bulk, group))
        for grad in held.total.values():
            grad.div_(self.size)
        return held.total, held.writers[-1], held.step

    def forget(self, bulk: int) -> None:
        """Everything of a bulk has been stepped."""
        for group in self.owner.pop(bulk):
            self.sums.pop((bulk, group), None)
