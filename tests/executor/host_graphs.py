"""Graphs without a GPU: what a call launches is written down below autograd, and launched again on the same memory.

    capture    each operation of torch runs; it and its tensors are kept
    replay     the same operations, on the same tensors, and nothing of the call's Python

So a replay knows nothing but what lay in these tensors, as on a GPU (a number that was looked at stays what it was).
What a pool would give to others is spoilt: all that a capture has made, since capturing computes nothing there, and
after each replay what nobody held when the capture ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from sennit.executor.capture import Chain, Graph

NAN = 0xFF
"""Each byte of it, for floats of any size."""


def _alias(tensor: Tensor) -> Tensor:
    """The same memory, apart from autograd's view of it."""
    made = torch.empty(0, dtype=tensor.dtype)
    return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _spoil(tensor: Tensor) -> None:
    whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    whole.fill_(NAN)


@dataclass
class Work:
    """One operation, and where its results go."""

    call: Callable[..., Any]
    args: Any
    kwargs: Any
    targets: list[tuple[int, Tensor]]

    def again(self) -> None:
        made = self.call(*self.args, **self.kwargs)
        results = made if isinstance(made, tuple | list) else (made,)
        for n, target in self.targets:
            target.copy_(results[n])


class Recording(TorchDispatchMode):
    """Writes down what is launched.

    Attributes:
        made: memory that calls got, by its address in torch.
        aliases: all that this recording holds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.work: list[Work] = []
        self.made: dict[int, Tensor] = {}
        self.aliases: list[Tensor] = []

    def hold(self, tensor: Tensor) -> Tensor:
        self.aliases.append(_alias(tensor))
        return self.aliases[-1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        given = args, dict(kwargs or {})
        there: set[int] = set()
        tree_map_only(Tensor, lambda t: there.add(_memory(t)), given)
        held = tree_map_only(Tensor, self.hold, given)
        found = func(*args, **(kwargs or {}))
        results = found if isinstance(found, tuple | list) else (found,)
        fresh = [(n, t) for n, t in enumerate(results) if isinstance(t, Tensor) and _memory(t) not in there]
        for _, t in fresh:
            self.made.setdefault(_memory(t), self.hold(t))
        writes = any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)
        empty = func.overloadpacket._qualified_op_name.split("::")[1].startswith(("empty", "new_empty", "set_"))
        if (fresh or writes) and not empty:
            self.work.append(Work(func, *held, [(n, self.hold(t)) for n, t in fresh]))
        return found

    def dead(self) -> list[Tensor]:
        """What was made and is held by nobody else."""
        ours = Counter(map(_memory, self.aliases))
        counted = {
            memory: (t.untyped_storage(), t) for memory, t in self.made.items()
        }  # the storage object is one more
        used: Any = torch._C._storage_Use_Count  # type: ignore[attr-defined]
        return [t for memory, (storage, t) in counted.items() if used(storage._cdata) <= ours[memory] + 1]


@dataclass
class HostGraph:
    """What was captured.

    Attributes:
        spoilt: memory that others may have as soon as this has run.
    """

    work: list[Work]
    spoilt: list[Tensor]

    def replay(self) -> None:
        with torch.no_grad():
            for item in self.work:
                item.again()
            for tensor in self.spoilt:
                _spoil(tensor)


class HostGraphs:
    """Captures on the CPU.

    Attributes:
        captured, chained: how many calls, and how many chains.
        free: bytes that the device says it has.
    """

    def __init__(self, device: torch.device) -> None:
        self.captured = self.chained = 0
        self.free = 1 << 40

    def seed(self, key: int) -> None:
        torch.default_generator.manual_seed(key)

    def room(self) -> int:
        return self.free

    def capture(self, call: Callable[[], None]) -> Graph:
        self.captured += 1
        return self._recorded([call]).graphs[0]

    def chain(self, calls: Sequence[Callable[[], None]], warm: bool = False) -> Chain:
        self.chained += 1
        return self._recorded(calls, warm)

    def _recorded(self, calls: Sequence[Callable[[], None]], warm: bool = False) -> Chain:
        if not warm:
            for call in calls:
                call()
        recording = Recording()
        graphs: list[HostGraph] = []
        for call in calls:
            recording.work = []
            with recording:
                call()
            graphs.append(HostGraph(recording.work, recording.dead()))
        for tensor in recording.made.values():
            _spoil(tensor)
        return Chain(tuple(graphs), sum(t.untyped_storage().nbytes() for t in recording.made.values()))
