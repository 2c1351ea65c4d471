"""Keyed initialisation: the same weights whatever is built first, wherever.

The space is built on device `meta`, then module by module gets memory and its own `reset_parameters`, under a
seed keyed by the module's path. Children come before parents, as in a constructor. Since seeds are keyed, processes may
share a large space between them (`space/draw_parts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sennit.errors import SpaceError, UserError, first_line
from sennit.frames import raised_within
from sennit.space.constructing import Constructing
from sennit.space.draw_parts import KNOWN, MANY, AtOnce, Draw, independent, parts_of, reset_of
from sennit.space.grafted import Settings, refuse_grafted
from sennit.space.inits import Inits
from sennit.space.lost import LOST, Losing
from sennit.space.names import canonical_names, unique_tensors
from sennit.strict_call import is_ours, refuse_arguments
from sennit.supernet.generators import generators_restored, seed_generators
from sennit.supernet.keys import key_for, name_key

UNCOVERED = """{kind} {name!r} of {owner} has no initial value: nothing sets it, neither a reset_parameters of its
module nor init of the space. The space is built without memory first, so values given in a constructor are lost, and
what is written through `.data` is not seen. Either set it in the module,
    def reset_parameters(self): ...  # such as nn.init.ones_(self.{attribute})
or in the space, which is asked for each layer by name, and for itself by '',
    def init(self, name, module):
        if name != {path!r}: return False
        ...  # all values of this layer
        return True"""

REPLACED = """{kind} {name!r} of {owner} was replaced while it got its initial value. Its memory was there before,
and is where every worker looks. Write into it:
    wrong:  self.{attribute} = ...; self.{attribute}.data = ...
    right:  with torch.no_grad(): self.{attribute}.copy_(...)"""

BUILD = """the space could not be built on device 'meta': {reason}
Constructors run without data there. Use Python numbers instead of tensor values,
    wrong:  rates = [r.item() for r in torch.linspace(0, 0.1, n)]
    right:  rates = [0.1 * i / (n - 1) for i in range(n)]"""

WITHIN = "{where} raised TypeError while the space was made with these space_args {arguments!r}: {reason}"

OUT_OF_RANGE = (
    "the space cannot be built with these space_args {arguments!r}: {reason}; change the one that it is about"
)

COMPUTED = (
    "{what} of {owner} at {path!r} is a tensor computed from parameters and kept in the module. It belongs to one "
    "process and one call: compute it in forward, and keep it in a local variable"
)

KEEPING = ("torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm")
"""Modules of torch whose hooks do so."""

HOOKED = (
    "parameter {name!r} has a hook on its gradient, which no engine would call: a layer's parameters are read from "
    "slots that come and go. Change the gradient inside the forward (a hook on an intermediate tensor, or an "
    "autograd.Function), or by the recipe's clip and optimizer"
)


def build_on_meta(factory: Callable[..., nn.Module], arguments: dict[str, Any]) -> nn.Module:
    """`factory(**arguments)` without memory for its tensors.

    Raises:
        SpaceError: the constructor needs tensor values or keeps some, or does not take these arguments.
    """
    refuse_arguments(factory, arguments, "space_args", SpaceError)
    try:
        with torch.device("meta"), Constructing() as writes:
            space = factory(**arguments)
    except UserError:
        raise
    except Exception as error:
        if is_ours(factory):  # the spaces that come with sennit run on meta; what they are given is at fault
            raise SpaceError(OUT_OF_RANGE.format(arguments=arguments, reason=first_line(error))) from error
        if isinstance(error, NotImplementedError | RuntimeError):
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            where = raised_within(error)
            raise SpaceError(BUILD.format(reason=f"{where}: {reason}" if where else reason)) from error
        if isinstance(error, TypeError):
            if where := raised_within(error):
                raise SpaceError(WITHIN.format(where=where, arguments=arguments, reason=error)) from error
            raise SpaceError(f"the space does not take these space_args {arguments!r}: {error}") from error
        raise
    if not isinstance(space, nn.Module):
        raise SpaceError(f"space must name a ModelSpace class, {factory!r} returned {space!r}")
    writes.note(space)
    refuse_grafted(space)
    for name, parameter in space.named_parameters():
        # they belong to one tensor, and what trains are other tensors: in slots, in staging, in other processes
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:  # type: ignore[attr-defined]
            raise SpaceError(HOOKED.format(name=name))
    for path, module in space.named_modules():
        kept = [
            repr(name) for name, held in vars(module).items() if isinstance(held, Tensor) and held.grad_fn is not None
        ]
        kept += [
            f"the weight by {m}"
            for hook in module._forward_pre_hooks.values()
            if (m := type(hook).__module__) in KEEPING
        ]
        if kept:
            raise SpaceError(COMPUTED.format(what=kept[0], owner=type(module).__name__, path=path))
    return space


def initialise(
    space: nn.Module, seed: int, allocate: Callable[[str, Tensor], Tensor] | None = None,
    at_once: AtOnce | None = None, processes: int = 1,
) -> nn.Module:  # fmt: skip
    """Give every parameter and buffer of `space` memory and its initial value, in place.

    Args:
        space: built by `build_on_meta`.
        seed: the recipe's.
        allocate: `(canonical name, meta tensor) -> memory` of that shape and dtype; default plain CPU memory.
        at_once: calls functions in processes that share what `allocate` gives; then up to `processes` draw at once.

    Raises:
        SpaceError: a parameter or buffer that nothing initialises, that is replaced by another, or that loses what a
            constructor gave it, by name; something beside them is changed.
    """
    names = canonical_names(space)
    tensors = [*unique_tensors(space).values()]
    rooms = [_room(names[id(tensor)], tensor, allocate) for tensor in tensors]
    # made one after the other they lie together, in the order in which an optimizer looks at all of them at each step
    memory = {id(t): _as(t, room) for t, room in zip(tensors, rooms, strict=True)}
    for *_, table in list(_tables(space)):
        for attribute, tensor in table.items():
            if tensor is not None:
                table[attribute] = memory[id(tensor)]
    there = list(_tables(space))
    held = [(dict(table), [_place(t) for t in table.values()]) for *_, table in there]
    own = any(not type(module).__module__.startswith(KNOWN) for module in space.modules())
    settings = Settings(space) if own else None
    losing = Losing(space, tensors, memory)
    untouched = _draw(space, seed, list(memory.values()), losing, at_once, processes)
    if settings is not None:
        settings.refuse_changed(space)
    final = {id(memory[original]): name for original, name in names.items() if original in memory}
    for (path, owner, kind, table), (before, places) in zip(there, held, strict=True):
        where = f"{type(owner).__name__} at {path!r}" if path else "the space itself"
        was = dict(zip(before, places, strict=True))
        for attribute in (*before, *(new for new in table if new not in before)):
            tensor, first = table.get(attribute), before.get(attribute)
            if tensor is not first or _place(tensor) != was.get(attribute):
                name = f"{path}.{attribute}" if path else attribute
                raise SpaceError(REPLACED.format(kind=kind, name=name, attribute=attribute, owner=where))
            if tensor is not None and id(tensor) in untouched:
                raise SpaceError(
                    UNCOVERED.format(kind=kind, name=final[id(tensor)], attribute=attribute, owner=where, path=path)
                )
            if tensor is not None and (given := losing.lost(tensor)) is not None:
                name = final[id(tensor)]
                raise SpaceError(
                    LOST.format(kind=kind, name=name, owner=where, where=given.where, path=path, attribute=attribute)
                )
    return space


def _tables(space: nn.Module) -> Iterator[tuple[str, nn.Module, str, dict[str, Any]]]:
    """Path, module, kind and table of the tensors that it holds."""
    for path, owner in space.named_modules():
        yield path, owner, "parameter", owner._parameters
        yield path, owner, "buffer", owner._buffers


def _place(tensor: Tensor | None) -> Any:
    """Where a tensor's numbers lie, and how: `.data = ...` gives the same tensor others."""
    return None if tensor is None else (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


def _draw(
    space: nn.Module, seed: int, memory: list[Tensor], losing: Losing, at_once: AtOnce | None, processes: int
) -> set[int]:  # fmt: skip
    """Draw all values, and return the ids of the tensors that nothing has written."""
    before, inits = [t._version for t in memory], Inits(space)
    draws: list[Draw] = []
    done: set[int] = set()
    for path, module in _children_first(space):
        if id(module) not in done:
            done.add(id(module))
            draws.append((path, module))

    def drawn(some: list[Draw]) -> list[int]:
        """The places in `memory` of what was written."""
        with generators_restored(), torch.no_grad():
            for path, module in some:
                seed_generators(key_for(seed, "init", name_key(path)))
                if inits.gives(path, module):
                    continue
                reset = reset_of(module)
                if reset is not None:
                    inits.around(path, module, partial(losing.around, reset))
        return [i for i, (tensor, held) in enumerate(zip(memory, before, strict=True)) if tensor._version != held]

    size = sum(tensor.nbytes for tensor in memory)
    if at_once is None or processes < 2 or size < MANY or not independent(space, draws):
        written = set(drawn(draws))
    else:
        told = at_once([partial(drawn, part) for part in parts_of(draws, processes)])
        written = {i for some in told for i in some}
        losing.drawn_elsewhere()
    return {id(tensor) for i, tensor in enumerate(memory) if i not in written}


def _room(name: str, tensor: Tensor, allocate: Callable[[str, Tensor], Tensor] | None) -> Tensor:
    if allocate is not None:
        return allocate(name, tensor)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


def _as(tensor: Tensor, room: Tensor) -> Tensor:
    return nn.Parameter(room, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else room


def _children_first(module: nn.Module, path: str = "") -> list[tuple[str, nn.Module]]:
    found: list[tuple[str, nn.Module]] = []
    for name, child in module.named_children():
        found += _children_first(child, f"{path}.{name}" if path else name)
    return [*found, (path, module)]
