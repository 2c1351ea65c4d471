"""The bits of two GPUs are those of the plain loop on one, under every order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sennit.runtime.forked import in_child
from tests.gpus import apart, needs_two_gpus
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_chimera import TIED
from tests.runtime.test_engines import violations
from tests.runtime.test_replicas import NORMLESS

pytestmark = needs_two_gpus

CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "bulk": (
        {"sync": "bulk:4", "micro_batches": 2},
        [
            {"schedule": "interleaved", "chunks": 2},
            *({"schedule": name} for name in ("gpipe", "1f1b", "zero-bubble", "zbv", "chimera")),
        ],
    ),
    "causal": (
        {"micro_batches": 4},
        [{"schedule": "csp", "chunks": 3, "split": True}, {"schedule": "naspipe"}, {"schedule": "chimera"}],
    ),
    "delayed": ({"micro_batches": 2, "shared": "delayed:2"}, [{"schedule": "chimera", "in_flight": 3}]),
    "replicas": (
        {**NORMLESS, "micro_batches": 2, "clip": "layer:0.5", "steps": 40},
        [{"replicas": 2}, {"replicas": 2, "chunks": 3}, {"replicas": 2, "executor": "graphs", "activations": "keep"}],
    ),
    "replicas, batch norm": ({"micro_batches": 4}, [{"replicas": 2}, {"replicas": 2, "budget": 1.0}]),
}


@pytest.mark.parametrize("case", CASES)
def test_every_order_gives_the_bits_of_the_plain_loop(case: str, tmp_path: Path) -> None:
    assert apart(differing, case, tmp_path, "cuda") == []


def differing(case: str, folder: Path, device: str) -> list[str]:
    """What of a case is not as it should be."""
    changes, placed = CASES[case]
    made = recipe(**{**TIED, **changes})
    plain = in_child(lambda: hashes(run(made, folder / "plain", engine="plain", device=device)))
    found: list[str] = []
    for i, placement in enumerate(placed):
        two = hashes(run(made, folder / f"{i}", workers=2, device=device, **placement))
        found += [f"{placement}: other bits"] * (two != plain)
        found += [f"{placement}: {broken}" for broken in violations(folder / f"{i}")]
    return found
