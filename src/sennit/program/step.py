"""`Step` and `Program`: one arch as a straight line of calls that can be cut anywhere.

    x ──▶ stem ──▶ blocks.0.2 ──▶ blocks.1.0 ──▶ add#0 ──▶ head ──▶ output
           %1        %2             %3             %4        %5
                      └──────────── skip ──────────┘

Values are numbered in order of definition; program inputs come first. A cut after step i is crossed by the
values defined up to i and used after it. Inputs never cross: whoever needs one loads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from sennit.program.template import Ref, compile_template
from sennit.supernet.edge import ALONE, APART, FIRST, SECOND
from sennit.supernet.keys import name_key


@dataclass
class Step:
    """One call: a unit module, a torch function of inlined code, or the shape of a value.

    Attributes:
        index: position in the program.
        name: unique in the program and the same in every arch that has this step; part of the random key.
        kind: "module", "call" or "shape".
        target: module path, or the function itself.
        args, kwargs: templates.
        reads: numbers of the values read, each once, in order of first use.
        writes: numbers of the values produced.
        out: template of the result, with `Ref` where it holds a produced value.
        params: names of trainable-or-not parameters read (canonical: one name per storage).
        buffers: names of the buffers read.
        written: those of `buffers` that the forward writes in training mode.
        block: the unit of partitioning this step belongs to.
        labels: choices on whose selection this step depends, outermost first.
        no_grad: the step was called with gradients switched off.
        where: "file:line" of the call in the user's code.
        unforeseen: buffers that the forward writes in training mode, too, and of which no covering arch has shown it.
    """

    index: int
    name: str
    kind: Literal["module", "call", "shape"]
    target: Any
    args: Any
    kwargs: Any
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    out: Any
    params: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    block: str = ""
    labels: tuple[str, ...] = ()
    no_grad: bool = False
    where: str = ""
    unforeseen: tuple[str, ...] = ()
    entries: tuple[tuple[int, int], ...] = field(default=(), init=False, repr=False, compare=False)
    """Each value read, and how this step uses it (`enter`); filled in by the program."""
    uses: tuple[int, ...] = field(default=(), init=False, repr=False, compare=False)
    """The second of each pair of `entries`."""
    steady: bool = field(default=False, init=False, repr=False, compare=False)
    """A module called with values alone, which gives one value, no output of the program: its gradient comes from
    steps, settled. Filled in by the program."""
    groups: tuple[tuple[str, ...], tuple[str, ...]] | None = field(default=None, init=False, repr=False, compare=False)
    """Names of the groups read and written; filled in by `Groups.of_step`."""

    def __post_init__(self) -> None:
        self.entries = tuple([(v, APART) for v in self.reads])

    @cached_property
    def fill_args(self) -> Callable[..., Any]:
        return compile_template(self.args)

    @cached_property
    def fill_kwargs(self) -> Callable[..., Any]:
        return compile_template(self.kwargs)

    @cached_property
    def key(self) -> int:
        """`name_key` of the name."""
        return name_key(self.name)

    @cached_property
    def direct(self) -> bool:
        """Whether the values read are the arguments, in this order: f(a, b)."""
        return not self.kwargs and type(self.args) is tuple and self.args == tuple(map(Ref, self.reads))

    @property
    def call(self) -> str:
        return self.target if self.kind == "module" else getattr(self.target, "__name__", str(self.target))


@dataclass
class Program:
    """The recorded program of one canonical arch.

    Attributes:
        arch: canonical, JSON-safe.
        inputs: template of the call's `(args, kwargs)`; its tensors are values `0 .. n_inputs - 1`.
        steps: in the order in which plain PyTorch would run them.
        output: template of the result.
        outputs: numbers of the values in `output`, in order of first appearance.
    """

    arch: dict[str, Any]
    inputs: Any
    n_inputs: int
    steps: list[Step]
    output: Any
    outputs: tuple[int, ...]

    def __post_init__(self) -> None:
        self.producer: dict[int, int] = {v: step.index for step in self.steps for v in step.writes}
        self.consumers: dict[int, list[int]] = {}
        for step in self.steps:
            for v in step.reads:
                self.consumers.setdefault(v, []).append(step.index)
        self.note_entries()
        self.blocks: list[str] = list(dict.fromkeys(step.block for step in self.steps))
        self.places: list[tuple[str, str]] = [(step.name, step.block) for step in self.steps]
        uses: dict[str, list[int]] = {}
        for step in self.steps:
            for name in step.params:
                uses.setdefault(name, []).append(step.index)
        self.uses = uses
        self.tied: frozenset[str] = frozenset(name for name, steps in uses.items() if len(steps) > 1)
        """Parameters read by several steps: each use enters its step through an Edge of its own."""

    def note_entries(self) -> None:
        """Tell each step how it uses the values that it reads: what a step made and nothing else beside, alone, or as
        one of two; and whether gradients arrive settled at what it makes."""
        users = Counter(v for step in self.steps if step.kind != "shape" for v in step.reads)
        users.update(self.outputs)
        single = {v for step in self.steps if len(step.writes) == 1 for v in step.writes}
        seen: set[int] = set()

        def use(v: int) -> int:
            if v not in single:
                return APART
            if users[v] == 1:
                return ALONE
            if users[v] > 2:
                return APART
            found = SECOND if v in seen else FIRST
            seen.add(v)
            return found

        for step in self.steps:
            step.entries = tuple([(v, use(v) if step.kind != "shape" else APART) for v in step.reads])
            step.uses = tuple([use for _, use in step.entries])
            one = len(step.writes) == 1 and step.writes[0] not in self.outputs
            step.steady = one and step.kind == "module" and step.direct and not step.no_grad

    @cached_property
    def dead(self) -> list[tuple[int, ...]]:
        """For each step, values that it is the last to read and that are no output."""
        last = {n: step.index for step in self.steps for n in step.reads}
        return [tuple(n for n in s.reads if last[n] == s.index and n not in self.outputs) for s in self.steps]

    def live_after(self, index: int) -> tuple[int, ...]:
        """Values that cross a cut between step `index` and the next; program outputs are read by the end."""
        end = len(self.steps)
        return tuple(
            v
            for v, made in self.producer.items()
            if made <= index
            and (any(c > index for c in self.consumers.get(v, ())) or (v in self.outputs and index < end))
        )

    def drawing(self) -> str:
        """The program as text, one step a line."""
        lines = [f"inputs {' '.join(f'%{v}' for v in range(self.n_inputs))}"]
        for step in self.steps:
            made = " ".join(f"%{v}" for v in step.writes)
            lines.append(f"{made} = {step.name}({', '.join(f'%{v}' for v in step.reads)})")
        lines.append(f"return {' '.join(f'%{v}' for v in self.outputs)}")
        return "\n".join(lines)
