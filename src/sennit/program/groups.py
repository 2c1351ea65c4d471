"""Groups: what is read, written and versioned as one (contract, rule 2).

A group is a set of storages that the same units hold. Most often it is all parameters of one unit. A tied
parameter is a group of its own, because a unit that reads it may be far from the one that writes the rest. The
buffers that a unit's forward writes (BatchNorm statistics) are a second group of that unit, since they move in
forward, not in backward. Buffers that are never written belong to no group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import nn

from sennit.errors import SpaceError
from sennit.program.refusals import READ_ELSEWHERE
from sennit.program.step import Program, Step
from sennit.space.inline import loose_tensors, units
from sennit.space.names import all_tensors, canonical_names


@dataclass(frozen=True)
class Group:
    """Storages with one version.

    Attributes:
        name: path of the unit, or of the tensor; buffers have `#buffers` appended.
        kind: "parameters" or "buffers".
        names: canonical names, sorted.
    """

    name: str
    kind: Literal["parameters", "buffers"]
    names: tuple[str, ...]


class Groups:
    """The groups of a space; the same for every arch.

    Args:
        root: the space (with or without memory).
        written: canonical names of buffers that some forward writes.
    """

    def __init__(self, root: nn.Module, written: Iterable[str]) -> None:
        names = canonical_names(root)
        parameters = {names[id(t)] for _, t in all_tensors(root) if isinstance(t, nn.Parameter)}
        trainable = {names[id(t)] for _, t in all_tensors(root) if isinstance(t, nn.Parameter) and t.requires_grad}
        holders: dict[str, list[str]] = {}
        for path, unit in units(root).items():
            for tensor in [*unit.parameters(), *unit.buffers()]:
                holders.setdefault(names[id(tensor)], []).append(path)
        for path, module, attribute in loose_tensors(root):
            tensor = module._parameters.get(attribute)
            if tensor is None:
                tensor = module._buffers[attribute]
            assert tensor is not None
            holders.setdefault(names[id(tensor)], []).append(path)
        together: dict[tuple[str, ...], list[str]] = {}
        for name, paths in holders.items():
            together.setdefault(tuple(dict.fromkeys(paths)), []).append(name)
        moving = set(written)
        self.of_name: dict[str, Group] = {}
        self.all: list[Group] = []
        for paths, held in together.items():
            base = paths[0] if len(paths) == 1 else min(held)
            for kind, members, suffix in (
                ("parameters", [n for n in held if n in trainable], ""),
                ("buffers", [n for n in held if n in moving and n not in parameters], "#buffers"),
            ):
                if members:
                    group = Group(base + suffix, kind, tuple(sorted(members)))  # type: ignore[arg-type]
                    self.all.append(group)
                    self.of_name.update(dict.fromkeys(members, group))
        self.all.sort(key=lambda group: group.name)
        self.by_name = {group.name: group for group in self.all}

    def of_step(self, step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the parameter groups that `step` reads, and of the buffer groups that it writes."""
        known = step.groups
        if known is None:
            read = dict.fromkeys(self.of_name[n].name for n in step.params if n in self.of_name)
            moved = dict.fromkeys(self.of_name[n].name for n in step.written if n in self.of_name)
            known = step.groups = (tuple(read), tuple(moved))
        return known

    def of_program(self, program: Program) -> tuple[frozenset[str], frozenset[str]]:
        """All parameter groups read and all buffer groups written by a program."""
        read: set[str] = set()
        moved: set[str] = set()
        for step in program.steps:
            r, w = self.of_step(step)
            read.update(r)
            moved.update(w)
        return frozenset(read), frozenset(moved)


def refuse_reads_elsewhere(programs: Iterable[Program], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Forwards write buffers in the order of subnets and micro-batches; what only reads one has no place in it.

    Args:
        known: of each buffer that is written, a step that does; those of `programs` if None.

    Returns:
        The same.

    Raises:
        SpaceError: a step reads a buffer that another step writes, and does not write it itself.
    """
    steps = [step for program in programs for step in program.steps]
    writers = known if known is not None else {n: step.name for step in reversed(steps) for n in step.written}
    for step in steps:
        for name in step.buffers:
            if name in writers and name not in step.written:
                raise SpaceError(
                    READ_ELSEWHERE.format(
                        where=step.where or step.name, call=step.call, buffer=name, writer=writers[name]
                    )
                )
    return dict(writers)
