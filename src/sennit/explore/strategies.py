"""Strategies: which network to evaluate next.

A strategy of your own has one method. If it draws only from `history.draws(seed)` and looks only at
`history`, a search with it can be resumed at any point; state of its own is rebuilt on resume by asking it
again.

    class Climb:
        def __init__(self, structure, seed=0):
            self.structure, self.seed = structure, seed

        def ask(self, history):
            draws = history.draws(self.seed)
            if not history.trials:
                return random_arch(self.structure, draws)
            return mutated_arch(self.structure, history.best.arch, draws, probability=0.0)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from sennit.errors import UserError
from sennit.explore.archs import mutated_arch, random_arch
from sennit.explore.history import History
from sennit.space.structure import Structure
from sennit.supernet.resolve import is_file_name, resolve

FAR = 100
"""When so many children in a row were refused, evolution draws at random: the neighbourhood is used up."""


@runtime_checkable
class Strategy(Protocol):
    """Proposes archs, one at a time."""

    def ask(self, history: History) -> dict[str, Any]:
        """The next arch. Called again, with `history.attempt` one higher, if that arch is refused."""
        ...


@dataclass(frozen=True)
class Random:
    """Every option of every choice with equal probability.

    Attributes:
        structure: of the space.
        seed: of the draws.
    """

    structure: Structure = dataclasses.field(repr=False)
    seed: int = 0

    def ask(self, history: History) -> dict[str, Any]:
        return random_arch(self.structure, history.draws(self.seed))


@dataclass(frozen=True)
class Evolution:
    """Regularised evolution: the population is the youngest networks, so that everything dies of age.

    Source: Real, Aggarwal, Huang, Le, "Regularized Evolution for Image Classifier Architecture Search",
    AAAI 2019, algorithm 1. Different on purpose: a child that was evaluated before is drawn again.

    Attributes:
        structure: of the space.
        seed: of the draws.
        population: P; the first P networks are random.
        sample: S; so many are drawn from the population, with replacement, and the best of them is the
            parent.
        mutation: probability for each choice of the parent to change; at least one changes. 0: exactly one,
            as in the paper.
    """

    structure: Structure = dataclasses.field(repr=False)
    seed: int = 0
    population: int = 32
    sample: int = 8
    mutation: float = 0.1

    def __post_init__(self) -> None:
        if self.population < 1 or self.sample < 1 or not 0 <= self.mutation <= 1:
            raise UserError(
                f"evolution: population >= 1, sample >= 1 and 0 <= mutation <= 1 must hold, got "
                f"{self.population}, {self.sample}, {self.mutation}"
            )

    def ask(self, history: History) -> dict[str, Any]:
        draws = history.draws(self.seed)
        if history.number < self.population or history.attempt >= FAR:
            return random_arch(self.structure, draws)
        living = history.trials[-self.population :]
        sample = [living[draws.below(len(living), "sample", i)] for i in range(self.sample)]
        parent = min(sample, key=history.rank)
        return mutated_arch(self.structure, parent.arch, draws, self.mutation)


STRATEGIES: dict[str, Any] = {"random": Random, "evolution": Evolution}


def make_strategy(name: str, structure: Structure, seed: int, base: str = ".", **arguments: Any) -> Strategy:
    """A strategy by name, or `file.py:Name` (called with the structure, `seed=` and the arguments).

    Args:
        base: folder that a file name is relative to.

    Raises:
        UserError: an unknown name, an argument it does not take, or an object without `ask`.
    """
    if name not in STRATEGIES and not is_file_name(name):
        raise UserError(f"strategy = {name!r} is neither built in ({', '.join(STRATEGIES)}) nor written 'file.py:Name'")
    factory = STRATEGIES[name] if name in STRATEGIES else resolve(name, base, "strategy", STRATEGIES)
    try:
        strategy = factory(structure, seed=seed, **arguments)
    except TypeError as error:
        raise UserError(f"strategy {name!r} does not take these arguments {arguments!r}: {error}") from error
    if not isinstance(strategy, Strategy):
        raise UserError(f"strategy {name!r} must have a method ask(history) -> arch, got {strategy!r}")
    return strategy


def describe(strategy: Strategy) -> dict[str, Any]:
    """Name and arguments, to know a search by. Of a strategy that is no dataclass, the class only."""
    known: dict[str, Any] = {"name": type(strategy).__name__}
    if dataclasses.is_dataclass(strategy):
        for f in dataclasses.fields(strategy):
            if f.repr:
                known[f.name] = getattr(strategy, f.name)
    return known
