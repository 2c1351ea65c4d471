"""`Row`: one way to train a recipe, a line of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.speed.table import BASE

from sennit.recipe import Placement, Recipe

KEPT = "kept"
"""The executor `graphs` with `--activations keep`."""

LAYERS, STAGES, HALVES = "layers", "stages", "stages split"
"""The pipeline on one device: every layer a task of its own, which tells what each takes; or all in one task; or that
with gradients of weights as tasks of their own."""


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        name: of the way.
        executor: `eager`, `graphs` or `kept`.
        recipe: lines that differ from the recipe: `sync`, `shared`.
        placed: options of `Placement`.
    """

    name: str
    micro_batches: int
    workers: int = 1
    executor: str = "eager"
    engine: str = "pipeline"
    recipe: dict[str, str] = field(default_factory=dict[str, str])
    placed: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def shared(self) -> str:
        return self.recipe.get("shared", "strict")

    @property
    def key(self) -> str:
        """Which row this is."""
        shared = "" if self.shared == "strict" else f", {self.shared}"
        return f"{self.name}{shared}, {self.executor}, M = {self.micro_batches}, {self.workers}"

    def placement(self, device: str) -> Placement:
        kept = {"executor": "graphs", "activations": "keep"} if self.executor == KEPT else {"executor": self.executor}
        return Placement(workers=self.workers, device=device, **kept, **self.placed)

    def of(self, recipe: Recipe) -> Recipe:
        """The recipe of this row, with what others have recorded of the same one."""
        return replace(recipe, micro_batches=self.micro_batches, **self.recipe)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Causal:
    """A way of causal order.

    Attributes:
        chunks: stretches per worker.
        release: what runs and releases its versions in one piece.
        split: gradients of weights are tasks of their own.
    """

    chunks: int
    release: str = "stage"
    split: bool = False

    @staticmethod
    def of(text: str) -> Causal:
        """`2`, `6:layer`, `1:split`."""
        chunks, *how = text.split(":")
        if not chunks.isdecimal() or not set(how) <= {"stage", "layer", "split"}:
            raise SystemExit(f"--chunks {text}: a number, and behind colons layer or split: 2, 6:layer, 1:layer:split")
        return Causal(int(chunks), "layer" if "layer" in how else "stage", "split" in how)

    @property
    def name(self) -> str:
        release = "" if self.release == "stage" else f" by {self.release}"
        return f"CSP {self.chunks}{release}{' split' if self.split else ''}"


@dataclass(frozen=True)
class Ways:
    """What is asked for.

    Attributes:
        micro_batches: M of the rows.
        executors: `eager`, `graphs`, `kept`.
        chunks: ways of causal order.
        budget: GiB of a device, of rows that swap.
        choice_only: `shared`, such that only choices make subnets wait.
        blocks: how many there are.
        loaders: processes that prepare data and programs beside each worker.
    """

    micro_batches: tuple[int, ...]
    executors: tuple[str, ...]
    chunks: tuple[Causal, ...]
    in_flight: int
    budget: float
    choice_only: str
    blocks: int
    loaders: int = 0

    def on_one(self) -> Iterator[Row]:
        """On one device. What is asked for last is run last, should time run out."""
        yield from (Row(BASE, m, engine="plain") for m in self.micro_batches)
        for executor in reversed(self.executors):
            for m in reversed(self.micro_batches):
                yield Row(LAYERS, m, executor=executor, placed={"release": "layer", "loaders": self.loaders})
                yield Row(STAGES, m, executor=executor, placed={"loaders": self.loaders})
                if any(way.split for way in self.chunks):
                    split = {"schedule": "csp", "split": True, "loaders": self.loaders}
                    yield Row(HALVES, m, executor=executor, placed=split)
        if self.budget:
            m, executor = self.micro_batches[-1], self.executors[-1]
            placed = {"budget": self.budget, "loaders": self.loaders}
            yield Row(f"{STAGES}, budget", m, executor=executor, placed=placed)

    def causal(self, workers: int) -> Iterator[Row]:
        """Causal order."""
        for executor in reversed(self.executors):
            for m in reversed(self.micro_batches):
                for shared in ("strict", self.choice_only):
                    for way in self.chunks:
                        placed = {
                            "schedule": "csp", "release": way.release, "split": way.split, "in_flight": self.in_flight,
                            "loaders": self.loaders, "chunks": max(1, min(way.chunks, self.blocks // workers)),
                        }  # fmt: skip
                        yield Row(way.name, m, workers, executor, recipe={"shared": shared}, placed=placed)
                        # as many replicas as workers, in one stretch, are the row DDP
                        few = m < workers or (m == workers and way.chunks > 1)
                        if m > 1 and few and not workers % m and way.release == "stage":
                            chunks = max(1, min(way.chunks, self.blocks * m // workers))
                            several = {**placed, "replicas": m, "chunks": chunks}
                            yield Row(
                                f"{way.name} x {m}", m, workers, executor, recipe={"shared": shared}, placed=several
                            )

    def others(self, workers: int) -> Iterator[Row]:
        """What causal order is compared with. The last is the one that GPUs have not run yet."""
        m, executor = self.micro_batches[-1], self.executors[-1]
        bulk, listed = {"sync": "bulk-per-worker"}, {"schedule": "gpipe", "loaders": self.loaders}
        yield Row("BSP (GPipe)", m, workers, executor, recipe=bulk, placed=listed)
        dream = {"schedule": "pipedream", "loaders": self.loaders}
        yield Row("ASP (PipeDream)", m, workers, executor, recipe={"sync": "asp:stash"}, placed=dream)
        if self.budget:
            swapping = {**listed, "budget": self.budget}
            yield Row("VPipe-like swapping", m, workers, executor, recipe=bulk, placed=swapping)
        if not m % workers:
            yield Row("DDP", m, workers, executor, placed={"replicas": workers, "loaders": self.loaders})

    def on(self, workers: int) -> list[Row]:
        """All rows on so many devices, references first."""
        if workers == 1:
            return [*self.on_one()]
        causal = [*self.causal(workers)]
        references = [Row(BASE, m, engine="plain", recipe={"shared": self.choice_only}) for m in self.micro_batches]
        return [*references, *causal, *self.others(workers)]
