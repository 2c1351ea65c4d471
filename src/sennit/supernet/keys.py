"""Keyed randomness: every draw is a function of what it is for, never of what was drawn before.

    key = mix(mix(mix(seed, "step"), seq_id), micro_batch, step)

Two workers, or one worker twice (recomputation, a retry), that enter the same step for the same subnet and
micro-batch seed the same generator with the same key. Sampling, data order, augmentation and initialisation
use keys of their own, so none of them shifts another.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch

_MASK = (1 << 64) - 1


@lru_cache(maxsize=1 << 16)
def name_key(name: str) -> int:
    """64 bits of SHA-256 of a name; not Python's `hash`, which differs between processes."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def mix(key: int, *parts: int) -> int:
    """Fold integers into a 64-bit key (the finaliser of splitmix64 after each).

    Args:
        key: start, 0 <= key < 2**64.
        parts: integers of any sign; each changes every bit with probability one half.
    """
    for part in parts:
        z = (key ^ (part & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
        key = z ^ (z >> 31)
    return key


def key_for(seed: int, purpose: str, *parts: int) -> int:
    """Key of a draw: recipe seed, what the draw is for, and its coordinates."""
    return mix(name_key(purpose), seed, *parts)


def below(key: int, n: int) -> int:
    """A number in `0 .. n-1` from a key. The bias is below n / 2**64."""
    return (key * n) >> 64


def numpy_generator(key: int) -> np.random.Generator:
    """A counter-based generator (Philox) that starts at `key`."""
    return np.random.Generator(np.random.Philox(key=key))


def seed_generators(key: int, device: torch.device | None = None) -> None:
    """Seed torch (CPU, and `device` if it is a GPU), Python and numpy with `key`."""
    torch.default_generator.manual_seed(key)
    if device is not None and device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(key)
    random.seed(key)
    np.random.seed(key & 0xFFFFFFFF)


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
