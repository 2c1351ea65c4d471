"""Samplers: which arch subnet `seq_id` is.

All but the learning ones are counter-based: the draw for a seq id is a function of the seed and the seq id, so
any worker can make it at any time. A learning sampler is fed with the results of earlier subnets; which ones is
part of the recipe (`feedback_lag = K`: exactly those of subnets <= y - K, in order).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sennit.errors import ArchError, RecipeError
from sennit.space.structure import Structure
from sennit.supernet.keys import below, key_for, name_key, numpy_generator


@dataclass(frozen=True)
class Result:
    """What a learning sampler is told about a subnet: its loss is the float32 fold over its micro-batches."""

    seq_id: int
    arch: dict[str, Any]
    loss: float


class Sampler(Protocol):
    """Draws canonical archs in order of seq id."""

    learning: bool

    def draw(self, seq_id: int, results: list[Result]) -> dict[str, Any]:
        """Arch of `seq_id`. `results`: those that became known since the last draw; always empty if not learning."""
        ...


class Uniform:
    """Every option of every choice with equal probability."""

    learning = False

    def __init__(self, structure: Structure, seed: int) -> None:
        self.structure, self.seed = structure, seed

    def draw(self, seq_id: int, results: list[Result]) -> dict[str, Any]:
        arch: dict[str, Any] = {}
        for label, site in self.structure.sites.items():
            options = site.choice.options()
            key = key_for(self.seed, "uniform", seq_id, name_key(label))
            arch[label] = site.choice.encode(options[below(key, len(options))])
        return self.structure.canonical(arch)


class Fair:
    """Strict fairness (FairNAS): in every round of n subnets each of a choice's n options is used once.

    Rounds are per choice: a choice with 4 options has rounds of 4. Subnets of one round share no candidate of
    that choice, so they do not wait for each other there.
    """

    learning = False

    def __init__(self, structure: Structure, seed: int) -> None:
        self.structure, self.seed = structure, seed
        self.orders: dict[tuple[str, int], list[int]] = {}

    def draw(self, seq_id: int, results: list[Result]) -> dict[str, Any]:
        arch: dict[str, Any] = {}
        for label, site in self.structure.sites.items():
            options = site.choice.options()
            order = self._order(label, seq_id // len(options), len(options))
            arch[label] = site.choice.encode(options[order[seq_id % len(options)]])
        return self.structure.canonical(arch)

    def _order(self, label: str, turn: int, n: int) -> list[int]:
        known = self.orders.get((label, turn))
        if known is None:
            key = key_for(self.seed, "fair", turn, name_key(label))
            known = [int(i) for i in numpy_generator(key).permutation(n)]
            self.orders = {k: v for k, v in self.orders.items() if k[0] != label or k[1] >= turn - 2}
            self.orders[label, turn] = known
        return known


class FromFile:
    """Archs from a file: a JSON list of archs, or one arch a line. Past the end it starts again.

    Raises:
        RecipeError: no such file, no archs, or an arch that the space does not have, with its place.
    """

    learning = False

    def __init__(self, structure: Structure, path: Path) -> None:
        try:
            text = path.read_text()
        except OSError as error:
            raise RecipeError(f"sampler: cannot read the arch file {path}: {error.strerror}") from error
        try:
            found = (
                json.loads(text) if text.lstrip().startswith("[") else [json.loads(s) for s in text.splitlines() if s]
            )
        except ValueError as error:
            raise RecipeError(f"sampler: {path} is neither a JSON list nor one JSON arch a line: {error}") from error
        if not found:
            raise RecipeError(f"sampler: {path} holds no archs")
        self.archs: list[dict[str, Any]] = []
        for i, arch in enumerate(found):
            try:
                self.archs.append(structure.given(arch))
            except ArchError as error:
                raise RecipeError(f"sampler: arch {i} of {path}: {error}") from error

    def draw(self, seq_id: int, results: list[Result]) -> dict[str, Any]:
        return dict(self.archs[seq_id % len(self.archs)])


class Learning:
    """A Python iterator of archs, fed with results.

    Args:
        factory: called with `(space, seed)`; returns an iterator of archs. A generator is fed by `send`:

            def strategy(space, seed):
                results = []                 # sennit.supernet.samplers.Result, in order of seq id
                while True:
                    new = yield {"blocks.0": 1, ...}
                    results += new

    It must be deterministic: a resumed run repeats it from the start with the recorded results.
    """

    learning = True

    def __init__(
        self, structure: Structure, space: Any, seed: int, factory: Callable[[Any, int], Any], name: str
    ) -> None:
        self.structure, self.name = structure, name
        try:
            inspect.signature(factory).bind(space, seed)
        except TypeError as error:
            raise RecipeError(f"sampler {name} is called as f(space, seed), which it does not take: {error}") from error
        made = factory(space, seed)
        if not isinstance(made, Iterator):
            raise RecipeError(f"sampler {name} must return an iterator of archs, got {made!r}")
        self.iterator = made
        self.next_id = 0

    def draw(self, seq_id: int, results: list[Result]) -> dict[str, Any]:
        assert seq_id == self.next_id, f"learning sampler asked for subnet {seq_id}, expected {self.next_id}"
        try:
            if isinstance(self.iterator, Generator) and self.next_id:
                arch = self.iterator.send(results)
            else:
                arch = next(self.iterator)
        except StopIteration:
            raise RecipeError(f"sampler {self.name} ended after {seq_id} archs; it must go on for all steps") from None
        self.next_id += 1
        try:
            return self.structure.given(arch)
        except ArchError as error:
            raise RecipeError(f"sampler {self.name}, subnet {seq_id}: {error}") from error


TWICE = 4
"""Archs that are drawn twice to see whether a sampler repeats itself."""


def refuse_unrepeatable(make: Callable[[], Sampler], lag: int) -> None:
    """Draw the first archs, which see no results, from two samplers.

    Raises:
        RecipeError: they differ.
    """
    one, two = make(), make()
    for y in range(min(TWICE, lag)):
        first, again = one.draw(y, []), two.draw(y, [])
        if first != again:
            raise RecipeError(
                f"the sampler draws {first} for subnet {y}, and {again} when it is called again. A recipe's archs must "
                "be the same each time: draw from random.Random(seed) or numpy.random.default_rng(seed), with the seed "
                "that it is called with, and keep nothing from one call to the next; or set "
                "allow_nondeterministic = true"
            )


class Feed:
    """Gives a learning sampler exactly the results it may see, in order, whatever order they arrive in.

    Args:
        sampler: any sampler.
        lag: K; the draw for y sees the results of subnets <= y - K.
    """

    def __init__(self, sampler: Sampler, lag: int) -> None:
        self.sampler, self.lag = sampler, lag
        self.waiting: dict[int, Result] = {}
        self.told = 0
        self.next_id = 0

    def report(self, result: Result) -> None:
        if self.sampler.learning and result.seq_id >= self.told:
            self.waiting[result.seq_id] = result

    def ready(self) -> bool:
        """Whether the next draw has all results it must see."""
        return not self.sampler.learning or all(
            i in self.waiting for i in range(self.told, self.next_id - self.lag + 1)
        )

    def draw(self) -> dict[str, Any]:
        """Arch of the next seq id."""
        assert self.ready()
        new: list[Result] = []
        if self.sampler.learning:
            while self.told <= self.next_id - self.lag:
                new.append(self.waiting.pop(self.told))
                self.told += 1
        arch = self.sampler.draw(self.next_id, new)
        self.next_id += 1
        return arch

    def replay(self, seq_id: int, results: list[Result]) -> None:
        """Bring the sampler to where its next draw is `seq_id`, given the results of all subnets before."""
        if not self.sampler.learning:
            self.next_id = self.told = seq_id
            return
        for result in results:
            self.report(result)
        while self.next_id < seq_id:
            self.draw()
