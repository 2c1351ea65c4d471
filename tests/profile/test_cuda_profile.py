"""A profile of a GPU."""

from __future__ import annotations

import torch

from sennit.profile.profile import Profile
from sennit.runtime.profiling import measure
from tests.gpus import apart, needs_gpu
from tests.runtime.runs import recipe
from tests.runtime.test_sync_rules import CHAIN

pytestmark = needs_gpu


def measured() -> Profile:
    return measure(recipe(**CHAIN), torch.device("cuda", 0), each_s=0.0)


def test_the_kinds_are_those_of_a_cpu() -> None:
    found = apart(measured)
    here = measure(recipe(**CHAIN), torch.device("cpu"), each_s=0.0)
    assert found.steps == here.steps
    for there, kind in zip(found.kinds, here.kinds, strict=True):
        assert (there.name, there.out_bytes, there.parameter_bytes) == (kind.name, kind.out_bytes, kind.parameter_bytes)
        assert there.forward > 0
    assert {"host to device", "device to host", "both at once, each"} <= set(found.links)
