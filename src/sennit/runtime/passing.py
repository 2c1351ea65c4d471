"""`Passing`: new versions go straight from the GPU that stepped them to those that read them.

    stepper   step ─┬─ weights of all groups stepped at once, one piece ──▶ reader: copied into slots, read from there
                    └─ to the host store, and published when they are there ──▶ a reader that has given up its slot

The bytes are the same. The host store has every version in the end, so a reader may have no slot for a group, or give
it up: what is passed on is left out then, and it reads the host's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from sennit.memory.stepped import Made
from sennit.runtime.channel import Message
from sennit.runtime.share import DeviceStore, Share


def passes(readers: Mapping[str, frozenset[int]]) -> bool:
    """Whether there is anybody to pass something on to."""
    return any(len(workers) > 1 for workers in readers.values())


class Passing:
    """Of one worker.

    Args:
        send: to another worker.
    """

    def __init__(
        self, rank: int, share: Share, store: DeviceStore, send: Callable[[int, Message, list[Tensor | None]], None]
    ) -> None:  # fmt: skip
        self.store, self.send = store, send
        self.readers = {group: tuple(sorted(workers - {rank})) for group, workers in share.readers.items()}
        store.pass_on(self.stepped, share.start)

    def stepped(self, made: Sequence[Made]) -> None:
        """These have been stepped here, in this order."""
        by_readers: dict[tuple[int, ...], list[Made]] = {}
        for group, version, flat in made:
            by_readers.setdefault(self.readers.get(group, ()), []).append((group, version, flat))
        for readers, held in by_readers.items():
            if not readers:
                continue
            piece = torch.cat([flat for *_, flat in held])  # the next step writes the slots
            versions = [(group, version, flat.nbytes) for group, version, flat in held]
            for worker in readers:
                message = Message("V", held[0][1], -1, -1, -1, [("weights", False)], {"versions": versions})
                self.send(worker, message, [piece])

    def arrived(self, message: Message, tensors: Sequence[Tensor | None]) -> None:
        """What another worker has stepped."""
        (piece,) = tensors
        assert piece is not None
        versions = message.facts["versions"]
        parts = piece.split([nbytes // piece.itemsize for *_, nbytes in versions])
        self.store.take((g, version, part) for (g, version, _), part in zip(versions, parts, strict=True))
