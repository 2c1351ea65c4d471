"""Short runs of the `sink` recipe under any engine and placement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sennit.recipe import Placement, Recipe
from sennit.runtime.request import Request
from sennit.runtime.train import train

HERE = Path(__file__).parent
HASHES = ("weights_sha256", "optimizer_sha256", "losses_sha256")


def recipe(**changes: Any) -> Recipe:
    """The sink's recipe with other settings."""
    base = Recipe(
        space="sink.py:Sink", data="sink.py:Data", loss_name="sink.py:loss", batch_size=7, steps=16, micro_batches=3,
        lr=0.01, clip="global:1.0", optimizer={"name": "adam"}, base=str(HERE), feedback_lag=4,
    )  # fmt: skip
    return replace(base, **changes)


def run(
    made: Recipe, out: Path, engine: str = "pipeline", steps: int | None = None, resume: bool = False, **placement: Any
) -> dict[str, Any]:
    """Train in `out` and return the result."""
    more = {key: placement.pop(key) for key in ("parts", "probes") if key in placement}
    return train(
        Request(
            recipe=made,
            placement=Placement(**placement),
            engine=engine,
            out=out,
            steps=steps,
            resume=resume,
            **more,  # type: ignore[arg-type]
        )
    )


def hashes(result: dict[str, Any]) -> tuple[str, ...]:
    return tuple(result[key] for key in HASHES)
