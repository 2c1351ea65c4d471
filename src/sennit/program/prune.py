"""Which values a template reads, and which steps nobody needs."""

from __future__ import annotations

from typing import Any

from sennit.program.step import Program, Step
from sennit.program.template import Ref, leaves, shapes_in


def refs_of(template: Any) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for leaf in leaves(template):
        if isinstance(leaf, Ref):
            found[leaf.value] = None
        else:
            for number in shapes_in(leaf):
                found[number] = None
    return tuple(found)


def without_dead_steps(program: Program) -> Program:
    """Drop steps whose results nobody uses, and from the arch the choices that only such steps depend on."""
    needed = set(program.outputs)
    alive: list[Step] = []
    for step in reversed(program.steps):
        if needed.intersection(step.writes):
            alive.append(step)
            needed.update(step.reads)
    if len(alive) == len(program.steps):
        return program
    alive.reverse()
    living = {label for step in alive for label in step.labels}
    dead = {label for step in program.steps for label in step.labels} - living
    arch = {label: value for label, value in program.arch.items() if label not in dead}
    for index, step in enumerate(alive):
        step.index = index
    return Program(arch, program.inputs, program.n_inputs, alive, program.output, program.outputs)
