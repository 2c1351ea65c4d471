"""`Facts`: what is known of a run before it begins; `run.json`, `result.json` and checkpoints repeat it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sennit.runtime.fingerprint import fingerprint
from sennit.runtime.forked import in_child
from sennit.runtime.request import Request


@dataclass(frozen=True)
class Facts:
    """Of one call of `train`.

    Attributes:
        end: number of subnets to train.
        identity: of the recipe.
        recipe: as a dict.
        comparable: another run of the recipe must give the same bits.
    """

    request: Request
    end: int
    identity: str
    recipe: dict[str, Any]
    fingerprint: dict[str, Any]
    comparable: bool

    @property
    def virtual(self) -> bool:
        """Nothing is computed."""
        return self.request.placement.device == "virtual"

    @staticmethod
    def of(request: Request) -> Facts:
        """Find out; a meeting compares the hosts."""
        recipe, device = request.recipe, request.placement.device
        found = in_child(lambda: fingerprint(device))  # it starts CUDA
        comparable = device != "virtual" and not recipe.allow_nondeterministic
        if (meeting := request.meeting) is not None:
            comparable &= not meeting.differences(found)
        end = recipe.steps if request.steps is None else request.steps
        return Facts(request, end, recipe.identity(), recipe.to_dict(), found, comparable)

    def resume(self, path: Path) -> str:
        """What to type to go on: with the number of subnets that was asked for, where that is not the recipe's."""
        asked = "" if self.end == self.request.recipe.steps else f" --steps {self.end}"
        return f"--out {path} --resume{asked}"

    def run_json(self) -> dict[str, Any]:
        """What `run.json` holds."""
        request, built = self.request, self.request.recipe.built
        return {
            "recipe": self.recipe, "recipe_name": request.name, "base": request.recipe.base,
            "identity": self.identity, "placement": asdict(request.placement), "engine": request.engine,
            "offload": request.offload, "fingerprint": self.fingerprint,
            "comparable": self.comparable, "steps": self.end, "sources": built.sources,
            "hosts": 1 if request.meeting is None else request.meeting.count,
            "always_shared": sorted(built.always[0]), "always_shared_buffers": sorted(built.always[1]),
        }  # fmt: skip
