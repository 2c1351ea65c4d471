"""What commands need of the files of a run, and `damaged`: what they say if it is not there.

The files hold more (docs/files.md); other keys are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from sennit.errors import UserError
from sennit.strict import check_known

Count = Annotated[int, Meta(ge=0)]
Loss = Annotated[float, Meta(ge=-3.5e38, le=3.5e38)]
"""A float32 that is finite."""

RESTORE = "put it back as the run wrote it"


@dataclass
class _Placement:
    workers: Annotated[int, Meta(ge=1)]
    device: str
    replicas: Annotated[int, Meta(ge=1)] = 1
    budget: float = 0.0
    executor: str = "eager"
    activations: str = "recompute"


@dataclass
class _Fingerprint:
    python: str
    torch: str
    cpu: str
    gpus: list[str] = field(default_factory=list[str])


@dataclass
class RunFile:
    """`run.json`."""

    recipe: dict[str, Any]
    base: str
    placement: _Placement
    engine: str
    fingerprint: _Fingerprint
    steps: Count
    hosts: Annotated[int, Meta(ge=1)] = 1
    recipe_name: str = "run"
    comparable: bool = True
    sources: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class _Prospect:
    subnets: Count
    bubble: float
    bubble_at_bound: float
    binds: str
    levers: dict[str, float]
    with_messages: float | None = None
    messages: str = ""
    in_flight: Count | None = None


@dataclass
class _Slots:
    hit_rate: float | None
    fetched_bytes: float
    written_bytes: float
    stall_s: float


@dataclass
class _Graphs:
    captured: Count
    replayed_steps: Count
    eager_steps: Count
    kept_steps: Count = 0


@dataclass
class _Hosts:
    hosts: Count
    pushes: float = 0
    pushed_bytes: float = 0
    gathered_bytes: float = 0
    tensor_bytes: float = 0
    stall_s: float = 0


@dataclass
class _Call:
    """Figures of one call; `sennit.runtime.calls`."""

    steps: Count
    first: Count
    seconds: float
    workers: Annotated[int, Meta(ge=1)]
    subnets_per_s: float | None = None
    bubble: float | None = None
    replicas: Count = 1
    engine: str = ""
    slots: _Slots | None = None
    graphs: _Graphs | None = None
    hosts: _Hosts | None = None
    tasks_run_again: Count = 0
    loading_s: float = 0


@dataclass
class ResultFile:
    """`result.json`."""

    steps: Count
    first: Count = 0
    weights_sha256: str | None = None
    optimizer_sha256: str | None = None
    losses_sha256: str | None = None
    subnets_per_s: float | None = None
    bubble: float | None = None
    seconds: float | None = None
    gpus: Count | None = None
    prospect: _Prospect | None = None
    slots: _Slots | None = None
    graphs: _Graphs | None = None
    hosts: _Hosts | None = None
    tasks_run_again: Count = 0
    loading_s: float = 0
    earlier: list[_Call] = field(default_factory=list[_Call])


@dataclass
class SubnetLine:
    """A line of `losses.jsonl`: a subnet. NaN is written as null."""

    seq_id: Count
    arch: dict[str, Any]
    loss: Loss | None


@dataclass
class _Evaluation:
    metric: str
    mean: float | None
    best: float | None


@dataclass
class EvaluationLine:
    """A line of `losses.jsonl`: an evaluation."""

    seq_id: Count
    evaluation: _Evaluation


def damaged(path: Path | str, cls: type, plain: Mapping[str, Any], knob: str = RESTORE) -> None:
    """Refuse content that lacks what `cls` has.

    Args:
        path: the file, and the line.
        knob: what to do about it.

    Raises:
        UserError: a key is missing, or has a value of another type.
    """
    try:
        check_known(cls, plain)
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}; {knob}") from error


def loss_lines(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Lines of `losses.jsonl` about subnets, in order, and those about evaluations. What follows the last newline is
    torn, and not returned. A file that is not there has none.

    Raises:
        UserError: a line is neither, or a subnet is missing or comes twice; names the line.
    """
    knob = f"{RESTORE}; what came after the last checkpoint goes with --resume"
    subnets: list[dict[str, Any]] = []
    evaluations: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1] if path.is_file() else (), 1):
        where = f"{path}, line {number}"
        try:
            held = json.loads(line, parse_constant=_no_json)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where} is not JSON: {error}; {knob}") from error
        if not isinstance(held, dict) or not {"loss", "evaluation"} & held.keys():
            raise UserError(f"{where} is damaged: it has neither a loss nor an evaluation: {held!r:.80}; {knob}")
        if "loss" not in held:
            damaged(where, EvaluationLine, held, knob)
            evaluations.append(held)
            continue
        damaged(where, SubnetLine, held, knob)
        if held["seq_id"] != len(subnets):
            raise UserError(f"{where} is of subnet {held['seq_id']}, expected is {len(subnets)}; {knob}")
        subnets.append(held)
    return subnets, evaluations


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
