"""Programs that together run every candidate."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import sennit as sn
from sennit.program.covering import covering_programs
from sennit.program.recordings import Recordings, spec_of


class Branches(sn.ModelSpace):
    """Some branches, of which an `InputChoice` takes some: the same option everywhere misses candidates."""

    def __init__(self, branches: int = 2, candidates: int = 2, chosen: int = 1) -> None:
        super().__init__()
        made = [sn.LayerChoice([nn.Linear(4, 4) for _ in range(candidates)]) for _ in range(branches)]
        self.branches = nn.ModuleList(made)
        self.pick = sn.InputChoice(branches, chosen)

    def forward(self, x: Tensor) -> Tensor:
        return self.pick([branch(x) for branch in self.branches])


class Cell(sn.ModelSpace):
    """Each node takes one earlier node; what no node takes is not run."""

    def __init__(self, nodes: int = 3) -> None:
        super().__init__()
        self.picks = nn.ModuleList([sn.InputChoice(i + 1) for i in range(nodes)])
        self.ops = nn.ModuleList([sn.LayerChoice([nn.Linear(4, 4), nn.Tanh()]) for _ in range(nodes)])

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for pick, op in zip(self.picks, self.ops, strict=True):
            values.append(op(pick(values)))
        return values[-1]


def run_steps(space: nn.Module) -> set[str]:
    recordings = Recordings(space)
    inputs = spec_of(((torch.zeros(3, 4),), {}))
    programs = covering_programs(recordings.structure, lambda arch: recordings.program(arch, inputs))
    return {str(step.target) for program in programs for step in program.steps if step.kind == "module"}


def units(space: nn.Module) -> set[str]:
    return {path for path, module in space.named_modules() if type(module) in (nn.Linear, nn.Tanh)}


def test_the_drawing_two_more_archs() -> None:
    space = Branches()
    archs: list[Any] = space.structure.covering()
    assert [(a["branches.0"], a["branches.1"], a["pick"]) for a in archs] == [(0, 0, [0]), (1, 1, [1])]
    assert run_steps(space) == units(space)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 2))
def test_every_candidate_of_every_branch_runs(branches: int, candidates: int, chosen: int) -> None:
    space = Branches(branches, candidates, min(chosen, branches))
    assert run_steps(space) == units(space)


def test_every_candidate_of_a_cell_runs() -> None:
    space = Cell(4)
    assert run_steps(space) == units(space)


def test_a_candidate_that_nothing_reads_is_left_out() -> None:
    class Unread(sn.ModelSpace):
        def __init__(self) -> None:
            super().__init__()
            self.used = sn.LayerChoice([nn.Linear(4, 4), nn.Tanh()])
            self.unread = sn.LayerChoice([nn.Linear(4, 4), nn.Tanh()])

        def forward(self, x: Tensor) -> Tensor:
            self.unread(x)
            return self.used(x)

    assert run_steps(Unread()) == {"used.0", "used.1"}
