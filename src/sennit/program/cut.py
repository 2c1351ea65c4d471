"""Cutting a program into runs: maximal stretches of steps on one worker.

    steps   0   1   2 │ 3   4 │ 5   6   loss
    worker  0   0   0 │ 1   1 │ 0   0    0
            run 0     │ run 1 │ run 2

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
    """Steps `first .. last` of a program on one worker.

    Attributes:
        index: position among the runs of the program.
        steps: the steps themselves, without the loss.
        has_loss: whether the loss follows these steps.
        arrivals: values from earlier runs, by number.
        departures: `(value, indices of the runs that read it)`, by number.
        reads_input: whether any step reads an input of the program.
    """

    index: int
    worker: int
    steps: tuple[Step, ...]
    has_loss: bool
    arrivals: tuple[Arrival, ...]
    departures: tuple[tuple[int, tuple[int, ...]], ...]
    reads_input: bool


def cut(program: Program, workers: Sequence[int], parts: Sequence[int] | None = None) -> tuple[Run, ...]:
    """The runs of `program` when step i is on `workers[i]`. The loss is on the last step's worker.

    Args:
        parts: steps of different parts are in different runs, even on one worker.
    """
    assert len(workers) == len(program.steps), "a worker for every step"
    spans: list[tuple[int, int]] = []
    keys = list(workers) if parts is None else list(zip(workers, parts, strict=True))
    for i, key in enumerate(keys):
        if spans and keys[spans[-1][0]] == key:
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
        runs.append(Run(r, workers[first], steps, final, tuple(arrivals[r]), tuple(departures[r]), inputs))
    return tuple(runs)
