"""`freeze`: one network out of a space, as a module of its own.

A frozen network runs the recorded program of its arch on plain torch modules that stand under their paths in
the space, so its state dict has the names of the space's, and holds nothing that the program does not use. It
gives the bits that the space gives for this arch, and it is what is evaluated, exported and counted.

Modules and buffers are always copies, so that switching to training mode and re-estimating BatchNorm
statistics never touches the supernet. Parameters are copies or the supernet's own.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from sennit.program.copied import copied
from sennit.program.recordings import spec_of
from sennit.program.run import bind_inputs, output_of, store
from sennit.program.step import Program, Step
from sennit.program.template import ParamRef, leaves
from sennit.space.choice import Arch
from sennit.space.model_space import ModelSpace, as_call
from sennit.space.names import unique_tensors
from sennit.supernet.edge import ALIGNMENT, settled


class FrozenNetwork(nn.Module):
    """A program on modules of its own. Call it as the space is called, without an arch.

    Its own attributes begin with `_frozen`, so that they do not meet the names of the space.

    Args:
        program: what runs.
        precision: "fp32", "tf32" or "bf16"; the last enters autocast step by step, as training does.
        names: of the parameters of the space's `forward`, for whoever exports this.
    """

    def __init__(self, program: Program, precision: str = "fp32", names: Sequence[str] = ()) -> None:
        super().__init__()
        self._frozen_program = program
        self._frozen_precision = precision
        self._frozen_names = tuple(names)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        program = self._frozen_program
        values = bind_inputs(program, args, kwargs)
        device = next((v.device for v in values.values() if isinstance(v, Tensor)), torch.device("cpu"))
        for step, dead in zip(program.steps, program.dead, strict=True):
            if step.kind == "shape":
                values[step.writes[0]] = tuple(values[step.reads[0]].shape)
            else:
                self._frozen_step(step, values, device)
            for n in dead:
                del values[n]
        return output_of(program, values)

    def _frozen_step(self, step: Step, values: Any, device: torch.device) -> None:
        entered = {n: _entered(v) if isinstance(v := values[n], Tensor) else v for n in step.reads}
        args = step.fill_args(entered, self._frozen_tensor, self.training, device)
        kwargs = step.fill_kwargs(entered, self._frozen_tensor, self.training, device)
        function = self.get_submodule(step.target) if step.kind == "module" else step.target
        mixed = self._frozen_precision == "bf16"
        with (
            torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if mixed else nullcontext(),
            torch.no_grad() if step.no_grad else nullcontext(),
        ):
            result = function(*args, **kwargs)
        store(step.out, result, step, values)

    def _frozen_tensor(self, name: str) -> Tensor:
        path, _, attribute = name.rpartition(".")
        return getattr(self.get_submodule(path), attribute)


def freeze(
    space: ModelSpace, arch: Arch, example_x: Any, *, copy_parameters: bool = True, precision: str = "fp32"
) -> FrozenNetwork:
    """The network of `arch`, in the mode (train or eval) that `space` is in.

    Args:
        space: with trained weights; it is read only.
        arch: any dict that the space accepts.
        example_x: an input of the space: a tensor, or a tuple, list or dict of them. Only its shapes matter.
        copy_parameters: False lets the network hold the supernet's own parameters: no memory, but then
            neither train it nor move it to another device. (A tied one that is not contiguous is copied.)
        precision: see `FrozenNetwork`.

    Raises:
        ArchError: an arch that the space does not have.
        SpaceError: an arch that cannot be recorded.
    """
    args, kwargs = as_call(example_x)
    program = space.recordings.program(arch, spec_of((args, kwargs)), trains=False)
    network = FrozenNetwork(program, precision, _parameter_names(space))
    modules = dict(space.named_modules())
    tensors = unique_tensors(space)
    targets = dict.fromkeys(step.target for step in program.steps if step.kind == "module")
    arguments = leaves([(step.args, step.kwargs) for step in program.steps])
    named = dict.fromkeys(leaf.name for leaf in arguments if isinstance(leaf, ParamRef))
    entering = {id(tensors[name]) for name in program.tied}
    memo: dict[int, Any] = {}  # one memo for all, so that ties stay ties
    used = [p for path in targets for p in modules[path].parameters()]
    used += [tensors[name] for name in named]
    for tensor in used:
        if isinstance(tensor, nn.Parameter) and id(tensor) not in memo:
            memo[id(tensor)] = _parameter(tensor, copy_parameters, id(tensor) in entering)
    for path in targets:
        _place(network, path, copied(modules[path], memo))
    for name in named:
        _place_tensor(network, name, copy.deepcopy(tensors[name], memo))
    return network.train(space.training)


def _parameter_names(space: ModelSpace) -> list[str]:
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in inspect.signature(space.forward).parameters.values() if p.kind in plain]


def _parameter(parameter: nn.Parameter, copied: bool, enters: bool) -> nn.Parameter:
    """A parameter that several steps read enters each through an Edge: contiguous and aligned."""
    data = parameter.detach()
    if enters and settled(data) is not data:
        return nn.Parameter(settled(data), requires_grad=parameter.requires_grad)
    return nn.Parameter(data.clone(), requires_grad=parameter.requires_grad) if copied else parameter


def _holder(root: nn.Module, path: str) -> nn.Module:
    """The module at `path`, made of empty modules where there is none yet."""
    module = root
    for part in path.split(".") if path else ():
        if part not in module._modules:
            module.add_module(part, nn.Module())
        module = module.get_submodule(part)
    return module


def _place(root: nn.Module, path: str, module: nn.Module) -> None:
    above, _, name = path.rpartition(".")
    _holder(root, above).add_module(name, module)


def _place_tensor(root: nn.Module, name: str, tensor: Tensor) -> None:
    """Register a tensor that inlined code names, unless a unit brought it."""
    above, _, attribute = name.rpartition(".")
    holder = _holder(root, above)
    if attribute in holder._parameters or attribute in holder._buffers:
        return
    if isinstance(tensor, nn.Parameter):
        holder.register_parameter(attribute, tensor)
    else:
        holder.register_buffer(attribute, tensor)


def _entered(tensor: Tensor) -> Tensor:
    """`tensor` as a step may use it: in order and aligned, as an `Edge` makes it.

    While a program is exported there are no addresses; then the offset into the storage decides, which comes
    to the same, since storages themselves are aligned. Nor is a size known that may vary; where one is 1 for good,
    strides are made anew.
    """
    if not torch.compiler.is_exporting():
        return settled(tensor)
    if not tensor.is_contiguous():
        return tensor.contiguous()
    alone = any(type(size) is int and size == 1 for size in tensor.shape)
    if alone or tensor.storage_offset() * tensor.element_size() % ALIGNMENT.get(tensor.device.type, 64):
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor
