"""Archs whose programs together run every candidate at every place: what is checked, measured and planned with.

`Structure.covering` knows choices, not what a network reads: a candidate that feeds only an input which an
`InputChoice` leaves out is in the arch and yet in no step.

    a = LayerChoice([A0, A1])(x);  b = LayerChoice([B0, B1])(x);  InputChoice(2)([a, b])
    (A0, B0, first)   runs A0           the covering archs take the same option everywhere, so that
    (A1, B1, second)  runs B1           A1 and B0 stand in an arch but run in none: two more archs are added
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, islice, product
from typing import Any

from sennit.program.step import Program
from sennit.space.choice import Arch, Option
from sennit.space.structure import Condition, Structure, merged

TRIES = 256
"""Archs that are recorded at most in search of one in which a candidate runs."""

Place = tuple[str, Condition, Option]
"""An option of a label at one of its places."""


def covering_programs(structure: Structure, program_of: Callable[[dict[str, Any]], Program]) -> list[Program]:
    """Programs of `Structure.covering`, and of further archs for the candidates that run in none of these."""
    programs = [program_of(arch) for arch in structure.covering()]
    running = {place for program in programs for place in _running(structure, program.arch)}
    for place in _places(structure):
        if place in running:
            continue
        for options in islice(_with(structure, place), TRIES):
            program = program_of(structure.encode(structure._active(options)))
            runs = set(_running(structure, program.arch))
            if place in runs:
                programs.append(program)
                running |= runs
                break
    return programs


def _places(structure: Structure) -> Iterator[Place]:
    for label, site in structure.sites.items():
        for condition in site.conditions:
            for option in site.choice.options():
                yield label, condition, option


def _running(structure: Structure, arch: Arch) -> Iterator[Place]:
    """The places that have steps in the program of `arch`, which is as the recording left it."""
    options = {label: structure.sites[label].choice.parse(value) for label, value in arch.items()}
    for label, option in options.items():
        for condition in structure.sites[label].conditions:
            if all(options.get(above) in legal for above, legal in condition):
                yield label, condition, option


def _with(structure: Structure, place: Place) -> Iterator[Mapping[str, Option]]:
    """Options with `place` in them, over other choices of inputs: all alike, then one of them changed, then two."""
    label, condition, option = place
    fixed = merged((*condition, (label, (option,))))
    if fixed is None:
        return
    wanted = {above: legal[-1] for above, legal in fixed.items()}
    base = {name: site.choice.options()[0] for name, site in structure.sites.items()}
    inputs = {
        name: site.choice.options()
        for name, site in structure.sites.items()
        if isinstance(site.choice.options()[0], tuple) and name not in fixed
    }
    for k in reversed(range(max((len(o) for o in inputs.values()), default=0))):
        yield {**base, **{name: o[min(k, len(o) - 1)] for name, o in inputs.items()}, **wanted}
    for n in (1, 2):
        for names in combinations(inputs, n):
            for chosen in product(*(inputs[name] for name in names)):
                yield {**base, **dict(zip(names, chosen, strict=True)), **wanted}
