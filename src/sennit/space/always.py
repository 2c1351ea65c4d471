"""Which groups every valid arch reads (contract, rule 5).

Such groups make consecutive subnets dependent, so the recipe says how to treat them. A group is always shared
if it is read in each arch of a family that leaves out whatever can be left out: every option of every choice,
varied one at a time from two bases, the whole space if it is small, and keyed random archs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sennit.program.groups import Groups
from sennit.program.step import Program
from sennit.space.choice import Option
from sennit.space.structure import Structure
from sennit.supernet.samplers import Uniform

SMALL = 64
"""Spaces of at most this many networks are looked at whole."""

RANDOM = 16


def probing_archs(structure: Structure) -> Iterator[dict[str, Any]]:
    """Archs which together leave out every group that some arch leaves out."""
    if (size := structure.size()) is not None and size <= SMALL:
        yield from structure.enumerate()
        return
    ends = (0, -1)
    for end in ends:
        base: dict[str, Option] = {label: s.choice.options()[end] for label, s in structure.sites.items()}
        yield structure.encode(structure._active(base))
    yield from structure.covering()
    inputs = [s for s in structure.sites.values() if isinstance(s.choice.options()[0], tuple)]
    base = {label: s.choice.options()[0] for label, s in structure.sites.items()}
    for site in inputs:
        for option in site.choice.options():
            yield structure.encode(structure._active({**base, site.label: option}))
    sampler = Uniform(structure, 0)
    yield from (sampler.draw(i, []) for i in range(RANDOM))


def always_shared(
    structure: Structure, groups: Groups, program_of: Callable[[dict[str, Any]], Program]
) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the parameter groups and of the buffer groups that belong to every arch."""
    read: frozenset[str] | None = None
    moved: frozenset[str] | None = None
    for arch in probing_archs(structure):
        r, m = groups.of_program(program_of(arch))
        read = r if read is None else read & r
        moved = m if moved is None else moved & m
        if not read and not moved:
            break
    return read or frozenset(), moved or frozenset()
