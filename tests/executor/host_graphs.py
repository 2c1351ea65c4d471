"""Graphs without a GPU: a replay makes the call again, on the same staging memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

from sennit.executor.capture import Graph


class HostGraph:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def replay(self) -> None:
        self.call()


class HostGraphs:
    """Captures on the CPU.

    Attributes:
        captured: how many calls.
    """

    def __init__(self, device: torch.device) -> None:
        self.captured = 0

    def seed(self, key: int) -> None:
        torch.default_generator.manual_seed(key)

    def capture(self, call: Callable[[], None]) -> Graph:
        call()
        self.captured += 1
        return HostGraph(call)
