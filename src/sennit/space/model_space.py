"""`ModelSpace`: the class that users derive from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sennit.errors import ArchError
from sennit.space import choice as _choice
from sennit.space.choice import Arch
from sennit.space.structure import Structure, assign_labels

if TYPE_CHECKING:
    from sennit.program.recordings import Recordings
    from sennit.program.step import Program, Step


class _Labelled(type):
    """Labels every choice once the outermost constructor has returned."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        space = super().__call__(*args, **kwargs)
        assign_labels(space)
        return space


class ModelSpace(nn.Module, metaclass=_Labelled):
    """A network with choices left open. Write it like any module; call it with an arch.

        class Net(sn.ModelSpace):
            def __init__(self, width=64):
                super().__init__()
                self.blocks = nn.Sequential(*[sn.LayerChoice([Mlp(width), nn.Identity()]) for _ in range(8)])
                self.head = nn.Linear(width, 10)
            def forward(self, x): return self.head(self.blocks(x))

        y = Net()(x, arch={"blocks.0": 0, "blocks.1": 1, ...})

    A call records the arch as a program (`program`), once, and runs its steps on the space's own modules.
    Only what the arch selects is run, and only that gets gradients.
    """

    def init(self, name: str, module: nn.Module) -> bool:
        """Override to initialise a module yourself, under the seed of its path.

        Args:
            name: path of the module.
            module: with allocated but unset parameters and buffers of its own.

        Returns:
            True if this module is done; False leaves it to its `reset_parameters`.
        """
        return False

    @property
    def recordings(self) -> Recordings:
        from sennit.program.recordings import Recordings

        held = self.__dict__.get("_recordings")
        if held is None:
            held = Recordings(self)
            object.__setattr__(self, "_recordings", held)
        return held

    @property
    def structure(self) -> Structure:
        """The choices, their labels and conditions."""
        held = self.__dict__.get("_structure")
        if held is None:
            held = Structure(self)
            object.__setattr__(self, "_structure", held)
        return held

    def canonical(self, arch: Arch) -> dict[str, Any]:
        """The one dict that stands for this network; see `Structure.canonical`."""
        return self.structure.canonical(arch)

    def program(self, arch: Arch, *args: Any, **kwargs: Any) -> Program:
        """The program of `arch` for a call with these arguments (tensors; only their shapes matter)."""
        from sennit.program.recordings import spec_of

        return self.recordings.program(arch, spec_of((args, kwargs)))

    def __call__(self, *args: Any, arch: Arch | None = None, **kwargs: Any) -> Any:
        if _choice._active:  # being recorded: follow the code
            return super().__call__(*args, **kwargs)
        if len(args) == 1 and not kwargs and isinstance(args[0], tuple | list | dict):
            args, kwargs = as_call(args[0])
        if arch is None:
            if self.structure.sites:
                raise ArchError("this model has choices; call it as model(x, arch={label: value, ...})")
            arch = {}
        from sennit.program.recordings import spec_of

        program = self.recordings.program(arch, spec_of((args, kwargs)), trains=self.training)
        return run_space(self, program, args, kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in _CACHES}


_CACHES = ("_recordings", "_structure", "_binding")
"""Derived from the space: never copied or pickled with it."""


class Binding:
    """Finds a space's own modules and tensors by path and canonical name."""

    def __init__(self, space: nn.Module) -> None:
        from sennit.program.unit import Units
        from sennit.space.names import canonical_names, unique_tensors

        self.modules = dict(space.named_modules())
        self.tensors = unique_tensors(space)
        self.names = canonical_names(space)
        self.parameters = list(space.parameters())
        self.units = Units(self.modules)
        self._places: dict[str, list[tuple[nn.Module, str, str]]] = {}

    def places(self, path: str) -> list[tuple[nn.Module, str, str]]:
        """`(module, attribute, canonical name)` of every parameter inside the unit at `path`."""
        known = self._places.get(path)
        if known is None:
            known = self._places[path] = [
                (inner, attribute, self.names[id(parameter)])
                for inner in self.modules[path].modules()
                for attribute, parameter in inner._parameters.items()
                if parameter is not None
            ]
        return known


def as_call(x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of `forward` for an input: a tuple or list is splatted, a dict becomes keywords."""
    if isinstance(x, tuple | list):
        return tuple(x), {}
    if isinstance(x, dict):
        return (), dict(x)
    return (x,), {}


def run_space(space: ModelSpace, program: Program, args: Any, kwargs: Any) -> Any:
    """Run all steps of `program` on the modules of `space`, in one autograd graph."""
    from sennit.program.run import bind_inputs, output_of, run_step
    from sennit.supernet.context import current

    binding = space.__dict__.get("_binding")
    if binding is None:
        binding = Binding(space)
        object.__setattr__(space, "_binding", binding)
    values = bind_inputs(program, args, kwargs)
    device = next((v.device for v in values.values() if isinstance(v, Tensor)), torch.device("cpu"))
    context, training = current(), space.training
    tensor_of = binding.tensors.__getitem__
    as_they_are = not program.tied and not space.__dict__.get("_kept_buffers")
    step, unit = None, None
    for step, dead in zip(program.steps, program.dead, strict=True):
        unit = binding.units.at(step.target) if step.kind == "module" else None
        if as_they_are:
            run_step(step, values, unit, tensor_of, context, device, training)
        else:
            parameter = _parameter_of(binding, program, {})
            with _InPlace(space, binding, program, step, parameter) if unit is not None else nullcontext():
                run_step(step, values, unit, parameter, context, device, training)
        for n in dead:
            del values[n]
    if context is not None and step is not None and unit is not None and not unit.draws:
        context.enter(step.key, torch_only=True)  # a loop that draws after this call, too, finds what it always found
    return output_of(program, values)


def _parameter_of(binding: Binding, program: Program, entered: dict[str, Tensor]) -> Callable[[str], Tensor]:
    from sennit.supernet.edge import enter

    def parameter(name: str) -> Tensor:
        tensor = binding.tensors[name]
        if name not in program.tied or not isinstance(tensor, nn.Parameter):
            return tensor
        if name not in entered:
            entered[name] = enter(tensor)
        return entered[name]

    return parameter


class _InPlace:
    """For one call of a unit: the Edge of each tied parameter, and a scratch copy of each frozen buffer, stand
    where the unit looks for them."""

    def __init__(
        self, space: ModelSpace, binding: Binding, program: Program, step: Step, parameter: Callable[[str], Tensor]
    ) -> None:
        self.swaps: list[tuple[dict[str, Any], str, Tensor]] = []
        tied = program.tied.intersection(step.params) if program.tied else ()
        if tied:
            for module, attribute, name in binding.places(step.target):
                if name in tied:
                    self.swaps.append((module._parameters, attribute, parameter(name)))
        kept = space.__dict__.get("_kept_buffers")
        if kept and space.training and kept.intersection(step.written):
            for module in binding.modules[step.target].modules():
                for attribute, buffer in module._buffers.items():
                    if buffer is not None and binding.names[id(buffer)] in kept:
                        self.swaps.append((module._buffers, attribute, buffer.clone()))
        self.originals: list[Any] = []

    def __enter__(self) -> None:
        for table, attribute, tensor in self.swaps:
            self.originals.append(table[attribute])
            table[attribute] = tensor

    def __exit__(self, *error: object) -> None:
        for (table, attribute, _), original in zip(self.swaps, self.originals, strict=True):
            table[attribute] = original
