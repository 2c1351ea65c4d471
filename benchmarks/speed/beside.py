"""`beside`: prediction and limit of every row, from what the rows on one device have shown. Several processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.speed.costs import ALIKE, HostCost, Prices, Shares, host_cost
from benchmarks.speed.exchange import exchange_of
from benchmarks.speed.hosts import Told, launches_of, shown
from benchmarks.speed.limit import limit, through_stages
from benchmarks.speed.once import made
from benchmarks.speed.predict import PricedLoad, critical_path, launched, load_of, predicted, work
from benchmarks.speed.rows import BASE, HALVES, LAYERS, STAGES, Row
from benchmarks.speed.window import Window

from sennit.errors import UserError
from sennit.recipe import Recipe
from sennit.simulate.launched import Launches


@dataclass(frozen=True)
class Seen:
    """What rows on one device have shown.

    Attributes:
        prices: by M and executor.
        rows: as measured, by key.
        links: bytes a second, as a profile names them.
        message_s: for a message: of the host, or between two devices if there are.
        shapes: of batches, by M and subnet.
        hosts: whether what they do takes time.
    """

    recipe: Recipe
    window: Window
    device: str
    prices: Mapping[tuple[int, str], Prices]
    rows: Mapping[str, Mapping[str, Any]]
    links: Mapping[str, float]
    message_s: float
    shapes: Mapping[int, Mapping[int, str]]
    hosts: bool = True

    def prices_for(self, row: Row) -> Prices | None:
        """Of its layers. For the plain loop those of any executor do: they say what a subnet takes beside another."""
        found = self.prices.get((row.micro_batches, row.executor))
        others = (held for (m, _), held in self.prices.items() if m == row.micro_batches and row.name == BASE)
        return next(others, None) if found is None else found

    def host(self, row: Row) -> HostCost:
        """What the host adds."""
        if not self.hosts:
            return HostCost(0.0, 0.0)
        found = (self.rows.get(Row(name, row.micro_batches, executor=row.executor).key) for name in (LAYERS, STAGES))
        return host_cost(*((r["tasks"], r["idle_s"]) for r in found if r is not None and "tasks" in r))

    def in_longer_tasks(self, row: Row) -> Shares:
        """What layers of a row take, by what they take as tasks of their own: in longer tasks a device waits less for
        launches."""
        if row.placed.get("release") == "layer" and self.told(row, LAYERS) is None:
            return ALIKE
        ways = (Row(name, row.micro_batches, executor=row.executor).key for name in (LAYERS, STAGES, HALVES))
        alone, joined, halves = (Shares(*self.rows.get(key, {}).get("shares_s", [0.0] * 5)) for key in ways)
        forward, backward, step = (j / a if a and j else 1.0 for a, j in zip(alone[:3], joined[:3], strict=True))
        if not (alone.backward and halves.input and halves.weight):
            return Shares(forward, backward, step, backward / 2, backward / 2)
        return Shares(forward, backward, step, halves.input / alone.backward, halves.weight / alone.backward)

    def told(self, row: Row, name: str) -> Told | None:
        """What one of the rows on one device has told of its host."""
        return shown(self.rows.get(Row(name, row.micro_batches, executor=row.executor).key, {}))

    def launches(self, row: Row, load: PricedLoad) -> Launches | None:
        """What hosts take to launch, on GPUs."""
        alone = self.told(row, LAYERS) if self.hosts else None
        if alone is None:
            return None
        return launches_of(alone, self.told(row, STAGES), *launched(load), self.told(row, HALVES))

    def looked(self, row: Row) -> Mapping[str, float] | None:
        """Kernels of a row, or of the same layers on one device."""
        names = (row.key, *(Row(n, row.micro_batches, executor=row.executor).key for n in (STAGES, LAYERS)))
        found = (self.rows.get(name, {}).get("looked", {}) for name in names)
        return next((looked for looked in found if looked.get("kernel_ms")), None)


SEEN: list[Seen] = []


def beside(seen: Seen, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """By key."""
    SEEN[:] = [seen]  # inherited, with what has been recorded
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("fork")) as pool:
        return dict(zip((row.key for row in rows), pool.map(_one, rows), strict=True))


def _one(row: Row) -> dict[str, Any]:
    (seen,) = SEEN
    recipe, window = made(seen.recipe, row), seen.window
    prices, shapes = seen.prices_for(row), seen.shapes[row.micro_batches]
    assert prices is not None
    one = Row(LAYERS, row.micro_batches, placed={"release": "layer"})
    shares = seen.in_longer_tasks(row)
    alone = load_of(made(seen.recipe, one), one.placement(seen.device), prices, shapes, window.steps, shares)
    timed, looked = work(alone, range(window.begin, window.end)), seen.looked(row)
    kernel_s, times = timed, 1.0  # without a GPU: what tasks take
    if looked is not None:
        times = looked["kernel_ms"] / 1e3 / work(alone, window.looked_at)
        kernel_s = times * timed
    said: float | str | None = None
    path = stages = 0.0
    if row.name != BASE:
        try:
            exchange = exchange_of(seen.device, seen.links, seen.message_s)
            load = load_of(recipe, row.placement(seen.device), prices, shapes, window.steps, shares, exchange)
        except UserError as error:
            return {"predicted_ms": str(error).splitlines()[0]}
        if "budget" not in row.placed:
            said = predicted(load, window, seen.host(row), seen.message_s, seen.launches(row, alone))
        fine = replace(row.placement(seen.device), release="layer", schedule="csp") if recipe.sync == "csp" else None
        if fine is not None:
            layers = load_of(recipe, fine, prices, shapes, window.steps, shares.by(times))
            path, stages = critical_path(layers), _stages(layers, window)
    there, back = _bytes(seen.rows.get(row.key, {}), window)
    links = tuple(seen.links.get(name, seen.links["host to host"]) for name in ("host to device", "device to host"))
    bound = limit(1e3 * kernel_s, row.workers, there, back, (links[0], links[1]), path, stages)
    return {
        "predicted_ms": said, "kernel_ms": 1e3 * kernel_s, "task_ms": 1e3 * timed, "limit_ms": bound.ms,
        "binds": bound.binds, "limit": asdict(bound),
    }  # fmt: skip


def _stages(layers: PricedLoad, window: Window) -> float:
    """Milliseconds per subnet, for any partition into as many stages; 0 if subnets do not take turns, or stages have
    several workers."""
    recipe, placement = layers.recipe, layers.placement
    if recipe.sharing.kind != "strict" or placement.replicas > 1 or placement.split:
        return 0.0
    shared, m, n = recipe.built.always[0], recipe.micro_batches, placement.workers * placement.chunks
    timed = [p for y, p in enumerate(layers.subnets()) if window.begin <= y < window.end]
    return 1e3 * sum(through_stages(pieces, shared, m, n) for pieces in timed) / len(timed)


def _bytes(row: Mapping[str, Any], window: Window) -> tuple[float, float]:
    """Per subnet, to devices and back: as counted by the slots of a budget, else as the profiler saw it."""
    if (slots := row.get("slots")) is not None:
        return slots["fetched_bytes"] / window.steps, slots["written_bytes"] / window.steps
    looked = row.get("looked") or {}
    return looked.get("there_bytes", 0.0), looked.get("back_bytes", 0.0)


def predictable(recipe: Recipe, rows: Iterable[Row]) -> Iterator[Row]:
    """Those whose swaps the simulation would have to know are left out, and those that the recipe refuses."""
    for row in rows:
        if "budget" not in row.placed:
            with suppress(UserError):
                made(recipe, row)
                yield row
