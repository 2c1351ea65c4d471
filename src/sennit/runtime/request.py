"""What a run is asked to do, and what it tells while it does it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sennit.recipe import Placement, Recipe
from sennit.runtime.share import REAL_PARTS, Parts

if TYPE_CHECKING:
    from sennit.runtime.hosts.meeting import Meeting

EngineName = Literal["pipeline", "plain"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `sennit train` was asked to do.

    Attributes:
        name: of the recipe, for the default folder.
        steps: stop after this many subnets (counted from 0); None for the recipe's.
    """

    recipe: Recipe
    placement: Placement = field(default_factory=Placement)
    engine: EngineName = "pipeline"
    offload: bool = False
    out: Path | None = None
    resume: bool = False
    steps: int | None = None
    name: str = "run"
    probes: tuple[Callable[[dict[str, Any]], None], ...] = ()
    parts: Parts = REAL_PARTS
    save: bool = True
    """False keeps no checkpoints: for timing alone."""
    meeting: Meeting | None = None
    """With the other hosts of the run, on host 0."""


@dataclass
class Progress:
    """What is told while training.

    Attributes:
        done: finished subnets; of: at the end.
        loss: of the last subnet.
        evaluation: mean and best of the last evaluation, if any.
        event: "subnet", "evaluation", "checkpoint" or "start".
    """

    event: str
    done: int
    of: int
    loss: float = math.nan
    evaluation: dict[str, Any] = field(default_factory=dict)
    note: str = ""
