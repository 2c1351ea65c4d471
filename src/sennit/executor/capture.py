"""Capturing: a call is run once, and what it launched can be launched again by one call from the host."""

from __future__ import annotations

import gc
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch


class NotCapturable(Exception):
    """A call that cannot be replayed; says why."""


class Graph(Protocol):
    """Something captured."""

    def replay(self) -> None:
        """Do again what the call did, with what is in its memory now."""
        ...


@dataclass(frozen=True)
class Chain:
    """Calls that were captured together.

    Attributes:
        nbytes: of the memory that is theirs alone.
    """

    graphs: tuple[Graph, ...]
    nbytes: int


class Capturing(Protocol):
    """How a device captures."""

    def seed(self, key: int) -> None:
        """Seed the generator from which captured kernels draw."""
        ...

    def capture(self, call: Callable[[], None]) -> Graph:
        """Run `call` and keep what it launches.

        Raises:
            NotCapturable: it looks at results on the host, or draws there.
        """
        ...

    def chain(self, calls: Sequence[Callable[[], None]], warm: bool = False) -> Chain:
        """Run calls one after the other and keep what each launches, in memory of their own: what one has made is there
        for the next, whatever else is replayed between.

        Args:
            warm: the same calls have been captured before, on other memory.

        Raises:
            NotCapturable: as above.
        """
        ...

    def room(self) -> int:
        """Bytes that are free on the device."""
        ...


class CudaGraphs:
    """CUDA graphs on one GPU. Those captured alone are all in one pool of memory: they are replayed one after the
    other, on one stream, and what they give lies outside the pool. A chain has a pool of its own.
    """

    WARM = 1
    """Runs before a capture: libraries choose kernels and load them at the first, and get memory for this stream."""

    def __init__(self, device: torch.device) -> None:
        torch.cuda.init()  # generators are there only then
        self.device = device
        self.generator = torch.cuda.default_generators[device.index or 0]
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()

    def seed(self, key: int) -> None:
        self.generator.manual_seed(key)

    def capture(self, call: Callable[[], None]) -> Graph:
        return self._captured([call], self.pool)[0]

    def chain(self, calls: Sequence[Callable[[], None]], warm: bool = False) -> Chain:
        reserved = 0

        def begin() -> None:
            nonlocal reserved
            reserved = torch.cuda.memory_reserved(self.device)

        graphs = self._captured(calls, torch.cuda.graph_pool_handle(), begin, 0 if warm else self.WARM)
        return Chain(tuple(graphs), max(torch.cuda.memory_reserved(self.device) - reserved, 0))

    def room(self) -> int:
        # not what torch holds unused: in pools of graphs that looks the same, and is not to be had
        return torch.cuda.mem_get_info(self.device)[0]

    def _captured(
        self, calls: Sequence[Callable[[], None]], pool: Any, begin: Callable[[], None] = lambda: None,
        runs: int = WARM,
    ) -> list[Graph]:  # fmt: skip
        """Warm up all calls, then capture one after the other.

        Args:
            begin: called between the two.
            runs: to warm up.
        """
        computing = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(computing)
        graphs: list[Graph] = []
        with torch.cuda.stream(self.stream), _garbage_waits():
            with no_host_draws(), _no_waiting():
                for _ in range(runs):
                    for call in calls:
                        call()
            self.stream.synchronize()  # not the whole device, which copies what others have sent
            begin()
            for call in calls:
                self.generator.manual_seed(0)
                graph = torch.cuda.CUDAGraph()
                # other threads of this process may ask the device meanwhile
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    call()
                finally:
                    with warnings.catch_warnings():
                        # a layer that gives what it was given launches nothing
                        warnings.filterwarnings("ignore", "The CUDA Graph is empty")
                        graph.capture_end()
                graphs.append(graph)
        computing.wait_stream(self.stream)
        return graphs


@contextmanager
def _garbage_waits() -> Iterator[None]:
    """Python does not look for garbage by itself: a graph that is freed while its thread captures another one spoils
    that ("operation failed due to a previous error during capture")."""
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looks:
            gc.enable()


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Calls that wait for the device, to look at a result or to read pageable memory, cannot be captured."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype feature")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        raise NotCapturable("it waits for the device") from error
    finally:
        torch.cuda.set_sync_debug_mode(before)


@contextmanager
def no_host_draws() -> Iterator[None]:
    """What is drawn on the host would be drawn once and replayed for ever."""

    def states() -> Sequence[Any]:
        drawn: Any = np.random.get_state()
        return torch.get_rng_state().numpy().tobytes(), random.getstate(), drawn[1].tobytes(), drawn[2:]

    before = states()
    yield
    if states() != before:
        raise NotCapturable("it draws random numbers on the host")
