"""Keyed randomness."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from sennit.supernet.context import StepContext, current, step_context
from sennit.supernet.generators import generators_restored, seed_generators, seeded
from sennit.supernet.keys import below, key_for, mix, name_key, numpy_generator


def reference_mix(key: int, part: int) -> int:
    """splitmix64 (Steele et al. 2014) on key xor part, in numpy's arithmetic instead of masks."""
    with np.errstate(over="ignore"):
        z = np.uint64(key) ^ np.uint64(part % (1 << 64))
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return int(z ^ (z >> np.uint64(31)))


def test_mix_is_splitmix() -> None:
    assert mix(0, 0) == 0xE220A8397B1DCDAF  # first output of splitmix64 from state 0
    for key, part in ((0, 1), (7, -1), ((1 << 64) - 1, 1 << 63), (123456789, 987654321)):
        assert mix(key, part) == reference_mix(key, part)
    assert mix(5, 1, 2, 3) == mix(mix(mix(5, 1), 2), 3)


def test_keys_do_not_collide() -> None:
    keys = {key_for(s, "step", y, j) for s in range(5) for y in range(100) for j in range(8)}
    assert len(keys) == 5 * 100 * 8
    assert len({key_for(0, "step", 1, 2), key_for(0, "step", 2, 1), key_for(0, "data", 1, 2)}) == 3
    assert all(0 <= key < 1 << 64 for key in keys)


def test_name_key_is_sha256() -> None:
    assert name_key("") == int.from_bytes(bytes.fromhex("e3b0c44298fc1c14"), "little")


def test_every_bit_of_a_key_is_fair() -> None:
    ones = np.zeros(64)
    for i in range(2000):
        ones += [(mix(1, i) >> b) & 1 for b in range(64)]
    assert (abs(ones - 1000) < 5 * np.sqrt(500)).all()


def test_below_is_in_range_and_even() -> None:
    drawn = np.bincount([below(mix(3, i), 7) for i in range(7000)], minlength=8)
    assert drawn[7] == 0 and (abs(drawn[:7] - 1000) < 150).all()
    assert below((1 << 64) - 1, 7) == 6 and below(0, 7) == 0


def draws() -> tuple[float, float, float, int]:
    return (
        float(torch.rand(())),
        random.random(),
        float(np.random.rand()),
        int(numpy_generator(5).integers(1 << 30)),
    )


def test_seeded_draws_do_not_depend_on_the_past_and_leave_no_trace() -> None:
    with seeded(key_for(0, "x", 1)):
        first = draws()
    torch.rand(5), random.random()
    before = torch.get_rng_state(), random.getstate()
    with seeded(key_for(0, "x", 1)):
        assert draws() == first
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    with seeded(key_for(0, "x", 2)):
        assert draws()[:3] != first[:3]


def test_generators_are_restored_after_an_error() -> None:
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    with pytest.raises(KeyError), generators_restored():
        seed_generators(9)
        raise KeyError
    assert torch.equal(torch.rand(3), wanted)


def test_a_step_seeds_by_subnet_micro_batch_and_name() -> None:
    def drawn(seq_id: int, micro: int, name: str) -> float:
        context = StepContext.of(0, seq_id, micro, "fp32", torch.device("cpu"))
        with generators_restored():
            context.enter(name_key(name))
            return float(torch.rand(()))

    base = drawn(3, 1, "blocks.0")
    assert base == drawn(3, 1, "blocks.0")
    assert len({base, drawn(4, 1, "blocks.0"), drawn(3, 2, "blocks.0"), drawn(3, 1, "blocks.1")}) == 4


def test_contexts_nest_and_end() -> None:
    outer, inner = (StepContext.of(0, i, 0, "fp32", torch.device("cpu")) for i in range(2))
    with step_context(outer):
        with pytest.raises(KeyError), step_context(inner):
            assert current() is inner
            raise KeyError
        assert current() is outer
    assert current() is None
