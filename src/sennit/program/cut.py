"""Cutting a program into runs: stretches of steps that a worker executes in one piece.

    steps   0   1   2 │ 3   4 │ 5   6   loss
    part    0   0   0 │ 1   1 │ 2   2    2
            run 0     │ run 1 │ run 2

Who executes a run is the plan's business and may differ from micro-batch to micro-batch; the runs do not.

A value made in one run and read in a later one leaves the first and arrives at the second, straight from
producer to consumer. Gradients go the same way back, one for every step that read the value, because the sum
over readers must be formed in reverse program order (contract, rule 1). The loss counts as one more step at
the end, read by none and reading the program's outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sennit.program.step import Program, Step


@dataclass(frozen=True)
class Arrival:
    """A value that a run needs from an earlier run.

    Attributes:
        value: its number.
        source: index of the run that makes it.
        readers: indices of the steps of this run that read it, ascending; the loss is step `len(steps)`.
    """

    value: int
    source: int
    readers: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """Steps `first .. last` of a program.

    Attributes:
        index: position among the runs of the program.
        part: the number that all its steps were given.
        steps: the steps themselves, without the loss.
        has_loss: whether the loss follows these steps.
        arrivals: values from earlier runs, by number.
        departures: `(value, indices of the runs that read it)`, by number.
        reads_input: whether any step reads an input of the program.
    """

    index: int
    part: int
    steps: tuple[Step, ...]
    has_loss: bool
    arrivals: tuple[Arrival, ...]
    departures: tuple[tuple[int, tuple[int, ...]], ...]
    reads_input: bool


def cut(program: Program, parts: Sequence[int]) -> tuple[Run, ...]:
    """The runs of `program` when step i is of part `parts[i]`. The loss belongs to the run of the last step."""
    assert len(parts) == len(program.steps), "a part for every step"
    spans: list[tuple[int, int]] = []
    for i, part in enumerate(parts):
        if spans and parts[spans[-1][0]] == part:
            spans[-1] = (spans[-1][0], i)
        else:
            spans.append((i, i))
    run_of_step = [r for r, (first, last) in enumerate(spans) for _ in range(first, last + 1)]
    loss = len(program.steps)
    run_of_step.append(len(spans) - 1)
    readers: dict[int, list[int]] = {v: list(steps) for v, steps in program.consumers.items()}
    for v in program.outputs:
        readers.setdefault(v, []).append(loss)
    arrivals: list[list[Arrival]] = [[] for _ in spans]
    departures: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in spans]
    for value, made in sorted(program.producer.items()):
        source = run_of_step[made]
        by_run: dict[int, list[int]] = {}
        for reader in readers.get(value, ()):
            if run_of_step[reader] != source:
                by_run.setdefault(run_of_step[reader], []).append(reader)
        for run, steps in by_run.items():
            arrivals[run].append(Arrival(value, source, tuple(steps)))
        if by_run:
            departures[source].append((value, tuple(sorted(by_run))))
    runs: list[Run] = []
    for r, (first, last) in enumerate(spans):
        steps = tuple(program.steps[first : last + 1])
        final = r == len(spans) - 1
        inputs = any(v < program.n_inputs for s in steps for v in s.reads)
        inputs = inputs or (final and any(v < program.n_inputs for v in program.outputs))
        runs.append(Run(r, parts[first], steps, final, tuple(arrivals[r]), tuple(departures[r]), inputs))
    return tuple(runs)
