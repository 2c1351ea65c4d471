"""`Cluster`: what workers stand on: links between them, a link to host memory, memory, and what a task costs the host.

    host_s = 20e-6                  every task starts this much later than its worker could
    memory_bytes = 16e9             for activations in flight, per worker; a list gives each worker its own

    [[links]]                       the first entry that holds both workers counts
    between = [0, 1, 2, 3]
    bandwidth = 12e9                bytes a second
    latency = 5e-6                  seconds
    medium = "duplex"

    [[links]]                       without `between`: all others
    bandwidth = 1e9
    medium = "shared"

    [swap]                          the link of each worker to the host, over which layers come and go
    bandwidth = 25e9

    medium    duplex   each pair has a channel for each direction
              half     each pair has one channel, used in turns
              shared   one channel for all workers of the entry (a switch of PCIe lanes, an old Ethernet)

A channel carries one message at a time, in the order in which they were made: a message of b bytes holds it for
b / bandwidth seconds and is there `latency` seconds later. Worker and channel do not disturb each other.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from sennit.errors import RecipeError, UserError, why
from sennit.strict import convert_strictly

Medium = Literal["duplex", "half", "shared"]

LONGEST_S = 1e9
"""Seconds of one message or start, thirty years: sums of them stay finite."""


def refuse_long(name: str, seconds: float) -> None:
    """Times are at least 0, and finite.

    Raises:
        RecipeError: others; `name` is what was typed.
    """
    if not 0 <= seconds <= LONGEST_S:
        raise RecipeError(f"{name} must be at least 0 and at most {LONGEST_S:g} seconds, got {seconds:g}")


def refuse_nothing(name: str, size: float) -> None:
    """Bandwidths and memories are above 0; infinite ones have no limit.

    Raises:
        RecipeError: others; `name` is what was typed.
    """
    if not size > 0:
        raise RecipeError(f"{name} must be above 0 (inf: no limit), got {size:g}")


@dataclass(frozen=True, kw_only=True)
class Link:
    """How some workers reach each other.

    Attributes:
        bandwidth: bytes a second.
        latency: seconds.
        medium: which messages share a channel.
        between: the workers; none means all.
    """

    bandwidth: float = math.inf
    latency: float = 0.0
    medium: Medium = "duplex"
    between: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        refuse_nothing("bandwidth", self.bandwidth)
        refuse_long("latency", self.latency)

    def holds(self, a: int, b: int) -> bool:
        return not self.between or (a in self.between and b in self.between)

    def seconds(self, size: float) -> float:
        """For `size` bytes, if the channel is free."""
        return size / self.bandwidth + self.latency


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What workers stand on. Everything left out costs nothing and has no limit.

    Attributes:
        links: between workers.
        swap: of each worker to the memory of the host.
        memory_bytes: of each worker, for activations between forward and backward.
        host_s: seconds that starting a task takes.
    """

    links: tuple[Link, ...] = ()
    swap: Link | None = None
    memory_bytes: float | tuple[float, ...] | None = None
    host_s: float = 0.0

    def __post_init__(self) -> None:
        refuse_long("host_s", self.host_s)
        given = () if self.memory_bytes is None else self.memory_bytes
        for limit in given if isinstance(given, tuple) else (given,):
            refuse_nothing("memory_bytes", limit)

    def link(self, a: int, b: int) -> int:
        """Index of the link over which worker a reaches worker b.

        Raises:
            UserError: there is none.
        """
        for i, link in enumerate(self.links):
            if link.holds(a, b):
                return i
        raise UserError(f"no link of the cluster holds workers {a} and {b}; add [[links]] without `between` for others")

    def seconds(self, a: int, b: int, size: float) -> float:
        """For a message of `size` bytes over free channels."""
        if a == b or not self.links:
            return 0.0
        return self.links[self.link(a, b)].seconds(size)

    def refuse_others(self, workers: int) -> None:
        """All workers that it names must be there.

        Raises:
            UserError: a link between others, or memory of another number of workers.
        """
        for i, link in enumerate(self.links):
            if others := [worker for worker in link.between if not 0 <= worker < workers]:
                raise UserError(
                    f"link {i + 1} of the cluster: between = {list(link.between)} names worker {others[0]}; the "
                    f"{workers} workers are 0 to {workers - 1}. Take it out, or raise --workers"
                )
        self.limits(workers)

    @cached_property
    def unlimited(self) -> bool:
        """Whether no worker's memory has a limit."""
        return self.memory_bytes is None

    def limits(self, workers: int) -> list[float]:
        """Memory of each worker.

        Raises:
            UserError: a list of another length.
        """
        held = math.inf if self.memory_bytes is None else self.memory_bytes
        if not isinstance(held, tuple):
            return [held] * workers
        if len(held) != workers:
            raise UserError(f"memory_bytes names {len(held)} workers, there are {workers}; give one number for all")
        return list(held)


def read_cluster(path: Path) -> Cluster:
    """A cluster from a TOML file.

    Raises:
        UserError: unreadable, an unknown key, a wrong type or a value that cannot be.
    """
    try:
        plain = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the cluster {path}: {why(error)}") from error
    listed = plain.pop("links", [])
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in cast("list[Any]", listed)):
        raise RecipeError(f"{path}: links must be tables, each under [[links]]; got {listed!r:.80}")
    entries = cast("list[dict[str, Any]]", listed)
    links = [convert_strictly(Link, entry, f"{path}, link {i + 1}") for i, entry in enumerate(entries)]
    return replace(convert_strictly(Cluster, plain, str(path)), links=tuple(links))
