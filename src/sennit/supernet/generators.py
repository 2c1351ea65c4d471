"""The global generators of torch, Python and numpy: seeded with a key, and left as they were found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed_generators(key: int, device: torch.device | None = None, *, torch_only: bool = False) -> None:
    """Seed torch (CPU, and `device` if it is a GPU), Python and numpy with `key`.

    Args:
        torch_only: leave Python's and numpy's alone, since nobody will draw from them before they are seeded next.
    """
    torch.default_generator.manual_seed(key)
    if device is not None and device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(key)
    if torch_only:
        return
    random.seed(key)
    np.random.seed(key & 0xFFFFFFFF)


def generator_states(device: torch.device) -> tuple[Any, ...]:
    """States of all of them, to be compared: who draws leaves another."""
    kind, *rest = np.random.get_state()
    drawn = (torch.get_rng_state().numpy().tobytes(), random.getstate(), kind, np.asarray(rest[0]).tobytes(), *rest[1:])
    return (*drawn, torch.cuda.get_rng_state(device).numpy().tobytes()) if device.type == "cuda" else drawn


@contextmanager
def generators_restored() -> Iterator[None]:
    """Leave torch's CPU, Python's and numpy's generators as they were found."""
    states: tuple[Any, Any, Any] = (torch.get_rng_state(), random.getstate(), np.random.get_state())
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])


@contextmanager
def seeded(key: int) -> Iterator[None]:
    """Within this context torch, Python and numpy draw from `key`; outside nothing has changed."""
    with generators_restored():
        seed_generators(key)
        yield
