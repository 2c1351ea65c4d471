"""Kinds of candidates: which ones runs have met, and which ones were replayed from graphs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from sennit.program.step import Step
from sennit.supernet.build import Built


def kind_of(step: Step) -> str | None:
    """`encoder conv3x1_res_ln`: where a candidate stands and its name there; None for what belongs to no choice."""
    if not step.labels or step.kind != "module":
        return None
    return f"{step.target.partition('.')[0]} {step.target.rpartition('.')[2]}"


def kinds_of(built: Built) -> dict[str, str]:
    """Of each step of the space, by name, its kind."""
    steps = (step for program in built.covering for step in program.steps)
    return {step.name: kind for step in steps if (kind := kind_of(step)) is not None}


def kinds_met(built: Built, losses: Path) -> set[str]:
    """Kinds in the subnets of a run."""
    archs = [line["arch"] for line in map(json.loads, losses.read_text().splitlines()) if "loss" in line]
    return {kind for arch in archs for step in built.program(arch).steps if (kind := kind_of(step)) is not None}


class Noted:
    """An executor that writes down, at each cut, what it has replayed so far and under which kernels it ran.

    Args:
        folder: a file for each worker.
    """

    def __init__(self, inner: Any, folder: Path) -> None:
        self.inner, self.folder = inner, folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def counters(self) -> dict[str, float]:
        known: dict[Any, Any] = getattr(self.inner, "known", {})
        note = {
            "deterministic": torch.get_deterministic_debug_mode() == 2,
            "replayed": sorted({key[0] for key, graph in known.items() if graph is not None}),
            "eager": getattr(self.inner, "refused", {}),
        }
        (self.folder / f"{os.getpid()}.json").write_text(json.dumps(note))
        return self.inner.counters()


def noted(folder: Path, kinds: dict[str, str]) -> dict[str, Any]:
    """What the workers of a run have written down."""
    notes = [json.loads(path.read_text()) for path in sorted(folder.iterdir())]
    return {
        "deterministic": bool(notes) and all(note["deterministic"] for note in notes),
        "replayed": sorted({kinds[name] for note in notes for name in note["replayed"] if name in kinds}),
        "eager": {why: step for note in notes for why, step in note["eager"].items()},
    }


def total(lines: Iterable[dict[str, Any]], of: str, workload: str) -> set[str]:
    """Kinds of a workload over several rows: those in the list `of`."""
    return {kind for line in lines if line["row"]["workload"] == workload for kind in line.get(of, ())}
