"""Keyed randomness: every draw is a function of what it is for, never of what was drawn before.

    key = mix(mix(mix(seed, "step"), seq_id), micro_batch, step)

Two workers, or one worker twice (recomputation, a retry), that enter the same step for the same subnet and
micro-batch seed the same generator with the same key. Sampling, data order, augmentation and initialisation
use keys of their own, so none of them shifts another. Nothing here needs torch; see `generators` for its state.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

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
