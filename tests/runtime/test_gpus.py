"""The bits of two GPUs are those of the plain loop on one, under every order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_chimera import TIED
from tests.runtime.test_engines import violations

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")

CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "bulk": (
        {"sync": "bulk:4", "micro_batches": 2},
        [{"schedule": name} for name in ("gpipe", "1f1b", "interleaved", "zero-bubble", "zbv", "chimera")],
    ),
    "causal": (
        {"micro_batches": 4},
        [{"schedule": "csp", "chunks": 3, "split": True}, {"schedule": "naspipe"}, {"schedule": "chimera"}],
    ),
    "delayed": ({"micro_batches": 2, "shared": "delayed:2"}, [{"schedule": "chimera", "in_flight": 3}]),
}


@pytest.mark.parametrize("case", CASES)
def test_every_order_gives_the_bits_of_the_plain_loop(case: str, tmp_path: Path) -> None:
    changes, placed = CASES[case]
    made = recipe(**{**TIED, **changes})
    plain = hashes(run(made, tmp_path / "plain", engine="plain", device="cuda"))
    for i, placement in enumerate(placed):
        if placement["schedule"] == "interleaved":
            placement = {**placement, "chunks": 2}
        assert hashes(run(made, tmp_path / f"{i}", workers=2, device="cuda", **placement)) == plain, placement
        assert not violations(tmp_path / f"{i}"), placement
