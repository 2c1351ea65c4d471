"""`Passing`: new versions go straight from the GPU that stepped them to those that read them.

    stepper   step ─┬─ weights of all groups stepped at once, one piece ──▶ reader: copied into slots, read from there
                    └─ of groups that a reader asked for: to the host store, and published when they are there
    reader    no slot for a group, or given up ── asks for it ──▶ reads the host's

The bytes are the same. The host store has the last version of all at a cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
            versions = [(group, version) for group, version, _ in held]
            for worker in readers:
                message = Message("V", held[0][1], -1, -1, -1, [(group, False) for group, _ in versions])
                message.facts["versions"] = versions
                self.send(worker, message, [flat for *_, flat in held])  # copied before the next step writes the slots

    def arrived(self, message: Message, tensors: Sequence[Tensor | None]) -> None:
        """What another worker has stepped."""
        came = zip(message.facts["versions"], tensors, strict=True)
        self.store.take((group, version, flat) for (group, version), flat in came if flat is not None)
