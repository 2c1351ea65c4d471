"""Cutting: a program run in pieces, anywhere cut, gives the bits of the program run whole.

The pieces are run here by hand, with nothing but `run_step`: values travel as contiguous copies, each step
that reads one from an earlier piece gets a leaf of its own, and gradients are added over readers backwards.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from program_spaces import ENCODER_DECODER_ARCH, EncoderDecoder, RandomNet, Slots, Strides, tensors
from torch import Tensor, nn
from torch.func import functional_call

import sennit as sn
from sennit.program.cut import cut
from sennit.program.run import bind_inputs, output_of, run_step
from sennit.program.step import Program
from sennit.program.unit import Unit
from sennit.space.names import unique_tensors
from sennit.supernet.context import StepContext, step_context
from sennit.supernet.edge import enter
from sennit.supernet.hashes import hash_tensors

CONTEXT = StepContext.of(0, 3, 1, "fp32", torch.device("cpu"))


def loss_of(output: Any) -> Tensor:
    """Different weights for every number of the output, which enters through Edges as the loss step does."""
    total = torch.zeros((), dtype=torch.float64)
    for tensor in map(enter, tensors(output)):
        weight = torch.linspace(0.5, 1.5, tensor.numel(), dtype=torch.float64).view(tensor.shape)
        total = total + (tensor.double() * weight).sum()
    return total


def whole(space: sn.ModelSpace, arch: dict[str, Any], args: Any) -> dict[str, Tensor]:
    space = copy.deepcopy(space)
    with step_context(CONTEXT):
        loss = loss_of(space(*args, arch=arch))
    loss.backward()
    return results(space, loss)


def results(space: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    found = {f"value {n}": t.detach() for n, t in unique_tensors(space).items()}
    found |= {f"gradient {n}": p.grad for n, p in unique_tensors(space).items() if p.grad is not None}
    return {**found, "loss": loss.detach()}


class Bound(nn.Module):
    """A module with other parameters."""

    def __init__(self, module: nn.Module, bound: dict[str, Tensor]) -> None:
        super().__init__()
        self.held = (module, bound)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return functional_call(*self.held, args, kwargs)


class Piece:
    """Steps `first .. last - 1` of a program, with the graph that its forward left."""

    def __init__(self, program: Program, first: int, last: int) -> None:
        self.program, self.first, self.last = program, first, last
        self.made: dict[int, Any] = {}
        self.leaves: dict[tuple[int, int], Tensor] = {}
        self.used: dict[tuple[str, int], Tensor] = {}
        self.loss: Tensor | None = None

    def value(self, number: int, reader: int, travelled: dict[int, Any]) -> Any:
        if number in self.made:
            return self.made[number]
        value = travelled[number]
        if isinstance(value, Tensor) and value.requires_grad:
            leaf = self.leaves[number, reader] = value.detach().clone().requires_grad_()
            return leaf
        return value

    def forward(self, space: nn.Module, travelled: dict[int, Any]) -> None:
        modules, tensors_of = dict(space.named_modules()), unique_tensors(space)
        name_of = {id(t): n for n, t in tensors_of.items()}
        for step in self.program.steps[self.first : self.last]:

            def parameter(name: str, index: int = step.index) -> Tensor:
                tensor = tensors_of[name]
                if not isinstance(tensor, nn.Parameter):
                    return tensor
                if (name, index) not in self.used:
                    self.used[name, index] = tensor.detach().clone().requires_grad_()
                return self.used[name, index]

            unit: Unit | None = None
            if step.kind == "module":
                module = modules[step.target]
                bound = {path: parameter(name_of[id(p)]) for path, p in module.named_parameters(remove_duplicate=False)}
                unit = Unit(Bound(module, bound))
            values = {n: self.value(n, step.index, travelled) for n in step.reads}
            run_step(step, values, unit, parameter, CONTEXT, torch.device("cpu"), True)
            self.made.update({n: values[n] for n in step.writes})
        if self.last == len(self.program.steps):
            outputs = {n: self.value(n, self.last, travelled) for n in self.program.outputs}
            self.loss = loss_of(output_of(self.program, outputs))

    def travel(self) -> dict[int, Any]:
        """What later pieces see: copies, contiguous, that say whether they want a gradient."""
        out: dict[int, Any] = {}
        for n, value in self.made.items():
            if isinstance(value, Tensor):
                copied = value.detach().clone(memory_format=torch.contiguous_format)
                value = copied.requires_grad_(value.requires_grad)
            out[n] = value
        return out

    def backward(self, arrived: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        roots: list[Tensor] = []
        grads: list[Tensor | None] = []
        if self.loss is not None:
            roots, grads = [self.loss], [None]
        for n, value in self.made.items():
            total: Tensor | None = None
            for reader in sorted((r for v, r in arrived if v == n), reverse=True):
                grad = arrived[n, reader]
                total = grad.clone() if total is None else total + grad
            if total is not None:
                roots.append(value)
                grads.append(total)
        if roots:
            torch.autograd.backward(roots, grads)
        return {key: leaf.grad for key, leaf in self.leaves.items() if leaf.grad is not None}


def in_pieces(space: sn.ModelSpace, arch: dict[str, Any], args: Any, cuts: list[int]) -> dict[str, Tensor]:
    space = copy.deepcopy(space)
    program = space.program(arch, *args)
    bounds = sorted({0, *cuts, len(program.steps)})
    travelled: dict[int, Any] = dict(bind_inputs(program, args, {}))
    pieces = [Piece(program, first, last) for first, last in pairwise(bounds)]
    for piece in pieces:
        piece.forward(space, travelled)
        travelled.update(piece.travel())
    arrived: dict[tuple[int, int], Tensor] = {}
    for piece in reversed(pieces):
        arrived.update(piece.backward(arrived))
    for name, parameter in unique_tensors(space).items():
        used = {index: leaf for piece in pieces for (n, index), leaf in piece.used.items() if n == name}
        for index in sorted(used, reverse=True):
            if used[index].grad is not None:
                held = parameter.grad
                parameter.grad = used[index].grad.clone() if held is None else held + used[index].grad
    assert pieces[-1].loss is not None
    return results(space, pieces[-1].loss)


def check_all_cuts(space: sn.ModelSpace, arch: dict[str, Any], args: Any) -> None:
    n = len(space.program(arch, *args).steps)
    wanted = whole(space, arch, args)
    for cuts in [[], *[[i] for i in range(1, n)], list(range(1, n)), list(range(1, n, 2))]:
        found = in_pieces(space, arch, args, cuts)
        assert found.keys() == wanted.keys()
        wrong = [name for name in wanted if hash_tensors([("", found[name])]) != hash_tensors([("", wanted[name])])]
        assert wrong == [], cuts


def test_encoder_decoder_cut_anywhere() -> None:
    args = torch.randint(0, 11, (4, 7)), torch.randint(0, 11, (4, 5))
    check_all_cuts(EncoderDecoder(), ENCODER_DECODER_ARCH, args)


@pytest.mark.parametrize("choice", [0, 1])
def test_statistics_skips_and_strides_cut_anywhere(choice: int) -> None:
    check_all_cuts(Slots(), {"choice": choice}, (torch.randn(5, 4, 6),))
    check_all_cuts(Strides(), {"choice": choice}, (torch.randn(3, 4, 5, 5),))


@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_random_graphs_cut_anywhere(seed: int) -> None:
    torch.manual_seed(seed)
    check_all_cuts(RandomNet(seed), {"choice": 0}, (torch.randn(5, 6),))


def test_live_values_at_each_cut() -> None:
    args = torch.randint(0, 11, (4, 7)), torch.randint(0, 11, (4, 5))
    program = EncoderDecoder().program(ENCODER_DECODER_ARCH, *args)
    end = len(program.steps)
    for i in range(end - 1):
        made = {v for step in program.steps[: i + 1] for v in step.writes}
        read = {v for step in program.steps[i + 1 :] for v in step.reads} | set(program.outputs)
        assert set(program.live_after(i)) == made & read


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 2), min_size=40, max_size=40))
def test_runs_of_a_cut_program_say_what_travels(seed: int, parts: list[int]) -> None:
    program = RandomNet(seed).program({"choice": 0}, torch.randn(5, 6))
    given = parts[: len(program.steps)]
    runs = cut(program, given)
    assert [step.index for run in runs for step in run.steps] == list(range(len(program.steps)))
    assert all(a.part != b.part for a, b in pairwise(runs)) and runs[-1].has_loss
    assert all(given[step.index] == run.part for run in runs for step in run.steps)
    end = len(program.steps)
    run_of = {step.index: run.index for run in runs for step in run.steps} | {end: len(runs) - 1}
    readers = {v: list(program.consumers.get(v, [])) for v in program.producer}
    for v in program.outputs:
        readers[v].append(end)
    expected = {
        (v, run_of[r], r) for v, made in program.producer.items() for r in readers[v] if run_of[r] != run_of[made]
    }
    assert {(a.value, run.index, r) for run in runs for a in run.arrivals for r in a.readers} == expected
    assert {(v, to) for run in runs for v, tos in run.departures for to in tos} == {(v, to) for v, to, _ in expected}
    assert all(a.source == run_of[program.producer[a.value]] for run in runs for a in run.arrivals)
