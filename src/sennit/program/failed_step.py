"""What is said of a step that fails while it is recorded: on what, after what, and which candidates do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sennit.program.refusals import NO_DATA
from sennit.program.spec import Spec
from sennit.space.choice import Option


def failed_step(
    name: str, inputs: Sequence[Tensor], where: str, error: Exception, last: str, arch: Mapping[str, Any],
    returned: Mapping[str, Mapping[Option, str]],
) -> str:  # fmt: skip
    """At most 12 lines.

    Args:
        name: of the step.
        inputs: tensors that it was given.
        where: file:line of the call.
        last: what ran before it.
        returned: shapes that each option of a choice has returned, by label.
    """
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "meta" in reason and any(word in reason.lower() for word in ("item", "data", "boolean", "numpy")):
        return NO_DATA.format(where=where, call=name)
    lines = [
        f"{where}: step {name!r} failed on {', '.join(str(Spec.of(t)) for t in inputs) or 'no tensors'}: {reason}",
        f"  it got its input from {last}; arch: {arch}",
    ]
    for label, options in returned.items():
        if len(set(options.values())) > 1:
            shown = "; ".join(f"{option!r} returns {shapes}" for option, shapes in list(options.items())[:6])
            lines.append(f"  candidates of {label!r} return different shapes: {shown}")
    if any(t.dtype == torch.float64 for t in inputs) and "double" in reason.lower():
        lines.append(
            "  its input is float64, as numpy makes numbers, and layers are float32: let the data set give float32, by "
            "x.float() or x.astype(numpy.float32)"
        )
    else:
        lines.append("  every candidate must take what its place is given and return what the next step takes")
    return "\n".join(lines[:12])
