"""`Profile`: what every step of a space costs on one kind of device, measured, in a file.

    {"format": "sennit.profile/1", "device": "cpu", "micro_batch": 16, "fingerprint": {...},
     "kinds": [{"name": "Mlp", "forward": .0004, "backward": .0007, "input": .0004, "weight": .0004, "step": .0002,
                "out_bytes": 4096, "held_bytes": 12288, "parameter_bytes": 66048, "state_bytes": 132096}, ...],
     "steps": {"blocks.0.mlp": 0, "blocks.1.mlp": 0, ...},        step to number of its kind
     "links": {"host to device": 5.3e10, ...}}

Seconds and bytes are of one micro-batch of `micro_batch` samples.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from sennit.errors import UserError, why
from sennit.program.step import Step
from sennit.simulate.cluster import LONGEST_S
from sennit.simulate.load import Cost
from sennit.strict import convert_strictly

FORMAT = "sennit.profile/1"

MOST_BYTES = 10**18
"""Of one layer: more than any machine has."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Seconds and bytes of steps of one kind.

    Attributes:
        name: class of the layer, or name of the function.
        forward, backward: F and the whole B.
        input, weight: I and W, the two parts of a split backward.
        step: the optimizer's.
        out_bytes: of what it gives to later steps.
        held_bytes: of what it keeps from F to B, its parameters left out.
        parameter_bytes, state_bytes: of its parameters and their optimizer state.
    """

    name: str
    forward: float
    backward: float
    input: float
    weight: float
    step: float = 0.0
    out_bytes: int = 0
    held_bytes: int = 0
    parameter_bytes: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Of one space, at one batch size, on one kind of device.

    Attributes:
        device: `cpu` or `cuda`.
        micro_batch: samples.
        fingerprint: of the machine that measured.
        steps: name of a step to the index of its kind.
        links: name to bytes a second.
    """

    device: str
    micro_batch: int
    kinds: list[Kind]
    steps: dict[str, int]
    fingerprint: dict[str, Any] = field(default_factory=dict[str, Any])
    links: dict[str, float] = field(default_factory=dict[str, float])

    def kind(self, step: str) -> Kind | None:
        """Of a step; None if it was not measured (a shape, which costs nothing)."""
        number = self.steps.get(step)
        return None if number is None else self.kinds[number]

    def check(self, path: Path, used: Iterable[str]) -> None:
        """See that all steps of a space are known.

        Raises:
            UserError: some are not.
        """
        names = set(used)
        if missing := sorted(names - set(self.steps)):
            raise UserError(
                f"the profile {path} does not know {len(missing)} of {len(names)} steps of this space, such as "
                f"{missing[0]}; measure it again with `sennit profile`"
            )

    def of_steps(self, steps: Iterable[Step]) -> Cost:
        """Of steps that are run in one piece."""
        return self.of(step.name for step in steps)

    def of(self, steps: Iterable[str]) -> Cost:
        """Of steps of these names."""
        held = [kind for step in steps if (kind := self.kind(step)) is not None]
        return Cost(
            sum(k.forward for k in held), sum(k.backward for k in held), sum(k.input for k in held),
            sum(k.weight for k in held),
        )  # fmt: skip

    def write(self, path: Path) -> None:
        """As a file.

        Raises:
            UserError: it cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write the profile {path}: {why(error)}") from error


def is_profile(path: Path) -> bool:
    """Whether a file says that it is one."""
    try:
        held: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(held, dict) and cast("dict[str, Any]", held).get("format") == FORMAT


def read_profile(path: Path) -> Profile:
    """Read a file.

    Raises:
        UserError: unreadable, another format, a key that is unknown or missing, a number that is none.
    """
    try:
        held: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read the profile {path}: {why(error)}") from error
    table = dict(cast("Mapping[str, Any]", held)) if isinstance(held, dict) else {}
    if table.pop("format", None) != FORMAT:
        raise UserError(f'{path} is no profile (JSON with "format": "{FORMAT}"); make one with `sennit profile`')
    profile = convert_strictly(Profile, table, str(path))
    if profile.micro_batch < 1:
        raise UserError(f"{path}: micro_batch must be at least 1 sample, got {profile.micro_batch}")
    for i, kind in enumerate(profile.kinds):
        for name, number in asdict(kind).items():
            most, unit = (MOST_BYTES, "bytes") if name.endswith("bytes") else (LONGEST_S, "seconds")
            if name != "name" and not 0 <= number <= most:
                raise UserError(
                    f"{path}: kinds[{i}].{name} must be at least 0 and at most {most:g} {unit}, got {number!r:.40}"
                )
    for step, number in profile.steps.items():
        if not 0 <= number < len(profile.kinds):
            raise UserError(f"{path}: step {step!r} is of kind {number}, and there are {len(profile.kinds)}")
    return profile
