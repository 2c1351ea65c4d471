"""What a unit's forward does to the tensors that the space holds: what it writes into, and what it replaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._python_dispatch import TorchDispatchMode

from sennit.errors import SpaceError
from sennit.program.refusals import FOREIGN_WRITE, REBOUND, WRITES
from sennit.program.template import leaves

STATISTICS = ("running_mean", "running_var")
"""Arguments that kernels of norms write although their signature does not say so."""
IN_TRAINING = ("training", "train", "use_input_stats")
"""Arguments of such kernels that say whether they do."""


class Writes(TorchDispatchMode):
    """Which tensors the calls inside write. They are known by their memory, so that `.data`, a view and `out=` count,
    too.

    Args:
        homes: what a tensor is called, by `home` of it.
    """

    def __init__(self, homes: Mapping[int, Any]) -> None:
        super().__init__()
        self.homes = homes
        self.found: dict[Any, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        written, statistics, training = _arguments(func)
        if statistics and any(_given(i, name, args, kwargs) for i, name in training):
            written = (*written, *statistics)
        for i, name in written:
            for tensor in leaves(_given(i, name, args, kwargs)):
                called = self.homes.get(home(tensor)) if isinstance(tensor, Tensor) else None
                if called is not None:
                    self.found[called] = None
        return func(*args, **kwargs)


Arguments = tuple[tuple[int, str], ...]
"""Positions and names."""


@cache
def _arguments(func: Any) -> tuple[Arguments, Arguments, Arguments]:
    """Of an operator: what it writes, the statistics that it may write, and what says whether it does."""
    held = [(i, a.name, a.alias_info is not None and a.alias_info.is_write) for i, a in enumerate(_schema(func))]
    training = tuple((i, name) for i, name, _ in held if name in IN_TRAINING)
    statistics = tuple((i, name) for i, name, _ in held if name in STATISTICS and training)
    return tuple((i, name) for i, name, writes in held if writes and (i, name) not in statistics), statistics, training


def _schema(func: Any) -> Iterable[Any]:
    return getattr(getattr(func, "_schema", None), "arguments", ())


def _given(position: int, name: str, args: Any, kwargs: Any) -> Any:
    return args[position] if position < len(args) else kwargs.get(name)


def home(tensor: Tensor) -> int:
    """The tensor's memory, or 0 if there is none to name."""
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # a sparse one, or one of a transform
        return 0


class Held:
    """The parameters and buffers of a module before its forward runs.

    Args:
        names: canonical names by `id` of the tensor.
    """

    def __init__(self, module: nn.Module, names: Mapping[int, str]) -> None:
        self.names = names
        self.owners = [
            (prefix, owner, dict(owner._parameters), dict(owner._buffers)) for prefix, owner in module.named_modules()
        ]
        self.data = {
            id(t): (t, t.data, t._version)
            for _, _, *tables in self.owners
            for table in tables
            for t in table.values()
            if t is not None
        }

    def put_back(self) -> list[tuple[str, bool]]:
        """Undo assignments. Returns names, within the module, of what was replaced, and whether it is a parameter:
        attributes that hold another tensor, tensors with other memory."""
        replaced: list[tuple[str, bool]] = []
        for prefix, owner, *tables in self.owners:
            for now, was in zip((owner._parameters, owner._buffers), tables, strict=True):
                parameters = now is owner._parameters
                for name in {**was, **now}:
                    tensor = was.get(name)
                    other = now.get(name) is not tensor
                    if tensor is not None and home(tensor) != home(data := self.data[id(tensor)][1]):
                        tensor.data = data
                        other = True
                    if other:
                        replaced.append((f"{prefix}.{name}" if prefix else name, parameters))
                    if now.get(name) is not tensor:
                        now[name] = tensor  # type: ignore[assignment]
                for name in now.keys() - was.keys():
                    del now[name]
        return replaced

    def moved(
        self, path: str, where: str, replaced: Iterable[tuple[str, bool]], seen: Iterable[str], all_buffers: bool
    ) -> tuple[str, ...]:  # fmt: skip
        """Names of the buffers that the forward wrote.

        Args:
            path, where: of the module, and of its call.
            replaced: from `put_back`.
            seen: names that `Writes` has found.
            all_buffers: count every buffer as written.

        Raises:
            SpaceError: it wrote, or replaced, what it may not.
        """
        for name, parameter in replaced:
            if parameter:
                raise SpaceError(WRITES.format(where=where, name=path, call=path, parameter=f"{path}.{name}"))
            raise SpaceError(REBOUND.format(path=f"{where}: step {path!r}", name=name))
        found = [*seen, *(self.names[key] for key, (t, _, version) in self.data.items() if t._version != version)]
        held = {self.names[key]: t for key, (t, _, _) in self.data.items()}
        for name in found:
            if name not in held:
                raise SpaceError(FOREIGN_WRITE.format(where=where, name=path, tensor=name))
            if isinstance(held[name], nn.Parameter):
                raise SpaceError(WRITES.format(where=where, name=path, call=path, parameter=name))
        buffers: dict[str, None] = {}
        for _, owner, _, kept in self.owners:
            own = [self.names[id(b)] for b in kept.values() if b is not None]
            # without data some kernels skip the write, so one written buffer speaks for its owner's others
            statistics = isinstance(owner, _NormBase) and owner.track_running_stats
            if all_buffers or statistics or not set(own).isdisjoint(found):
                buffers.update(dict.fromkeys(own))
        return tuple(buffers)


def homes_of(tensors: Iterable[Tensor], names: Mapping[int, str]) -> dict[int, str]:
    """Canonical names by memory."""
    return {place: names[id(t)] for t in tensors if (place := home(t))}
