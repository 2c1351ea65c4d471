"""All hosts of a run are started with the same options: one that differs is refused where it was said."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sennit.errors import UserError
from sennit.runtime.request import Request


def options_of(request: Request) -> dict[str, Any]:
    """What every host must be told alike.

    `--out` and `--resume` are host 0's alone, which has the run's folder. A plan is read there, too, but its name is
    said everywhere.
    """
    steps = request.recipe.steps if request.steps is None else request.steps
    return {**asdict(request.placement), "steps": steps, "engine": request.engine, "offload": request.offload}


def refuse_other_options(theirs: dict[str, Any], request: Request) -> None:
    """Compare host 0's options with this host's.

    Raises:
        UserError: they differ; names the first, and both values.
    """
    for name, here in options_of(request).items():
        there = theirs[name]
        if here != there:
            option = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{_said(option, here)} here, {_said(option, there)} on host 0: start all hosts with the same options "
                "(but --out, --resume and --json)"
            )


def _said(option: str, value: Any) -> str:
    """`--split`, `no --plan`, `--workers 4`."""
    if value is None or value is False or value in ("", 0):
        return f"no {option}"
    return option if value is True else f"{option} {value:g}" if isinstance(value, float) else f"{option} {value}"
