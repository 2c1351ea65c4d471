"""A run that has been: what replay, verify and report compare with."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sennit.errors import UserError

if TYPE_CHECKING:
    from sennit.recipe import Placement, Recipe

HASHES = ("weights_sha256", "optimizer_sha256", "losses_sha256")


@dataclass(frozen=True)
class Recorded:
    """A run folder as it stands.

    Attributes:
        path: the folder.
        run, result: what is in `run.json` and `result.json`; no result if the run did not end well.
        lines: the subnets' lines of `losses.jsonl`, in order.
        evaluations: its other lines.
    """

    path: Path
    run: dict[str, Any]
    result: dict[str, Any] | None
    lines: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]

    @staticmethod
    def open(path: Path) -> Recorded:
        """Read a run folder.

        Raises:
            UserError: it is none, or one of its files is damaged.
        """
        from sennit.commands.recorded_files import ResultFile, RunFile, damaged, loss_lines
        from sennit.runtime.runfolder import RunFolder

        folder = RunFolder.open(path)
        run, result = folder.read_run(), folder.read_result()
        damaged(folder.path / "run.json", RunFile, run)
        if result is not None:
            damaged(folder.path / "result.json", ResultFile, result, "remove it to see the rest of the run")
        lines, evaluations = loss_lines(folder.losses)
        return Recorded(
            folder.path, run, result, lines, [{**line["evaluation"], "seq_id": line["seq_id"]} for line in evaluations]
        )

    def recipe(self) -> Recipe:
        """The recipe of the run."""
        from sennit.recipe import Recipe

        return Recipe.from_dict(self.run["recipe"], self.run["base"], str(self.path / "run.json"))

    def placement(self) -> Placement:
        """The placement of the run's last call."""
        from sennit.recipe import Placement
        from sennit.strict import convert_strictly

        known = {f.name for f in fields(Placement)}
        held = {key: value for key, value in self.run["placement"].items() if key in known}
        return convert_strictly(Placement, held, f"{self.path / 'run.json'}, placement")

    @property
    def name(self) -> str:
        return str(self.run.get("recipe_name", "run"))

    @property
    def virtual(self) -> bool:
        """Whether it ran on virtual devices, which train nothing."""
        return self.run["placement"].get("device") == "virtual"

    @property
    def losses(self) -> list[float]:
        return [float("nan") if line["loss"] is None else line["loss"] for line in self.lines]

    def steps(self, asked: int | None, knob: str = "--steps") -> int:
        """How many subnets to repeat: as many as asked for, or all.

        Raises:
            UserError: none are recorded, or fewer than asked for.
        """
        if self.virtual:
            raise UserError(f"{self.path} ran on virtual devices, which train nothing: there is nothing to compare")
        recorded = len(self.lines)
        if not recorded:
            raise UserError(f"{self.path} has no finished subnet; go on with it first: sennit train ... --resume")
        if asked is not None and not 1 <= asked <= recorded:
            raise UserError(f"{knob} must be between 1 and {recorded}, which {self.path} has recorded, got {asked}")
        return recorded if asked is None else asked

    def result_at(self, steps: int) -> dict[str, Any] | None:
        """The result, if it is that of just so many subnets."""
        return self.result if self.result is not None and self.result.get("steps") == steps else None

    def losses_sha256(self, steps: int) -> str:
        """Hash of the first losses."""
        from sennit.supernet.hashes import losses_hash

        return losses_hash(self.losses[:steps])

    def incomparable(self, fingerprint: dict[str, Any]) -> list[str]:
        """Why hashes made here need not be those of the run; empty if they must be."""
        from sennit.runtime.fingerprint import different

        reasons = [] if self.run.get("comparable", True) else ["its recipe says allow_nondeterministic = true"]
        with suppress(OSError, SyntaxError):  # whoever uses that file says so
            changed = self.recipe().built.changed_sources(self.run.get("sources", {}))
            reasons += [f"the code of {what} has changed since" for what in changed]
        return reasons + different(self.run["fingerprint"], fingerprint)

    def first_difference(self, lines: list[dict[str, Any]]) -> str | None:
        """The first of these subnets that is not as recorded, in words."""
        for here, there in zip(lines, self.lines, strict=False):
            if here["arch"] != there["arch"]:
                return f"subnet {here['seq_id']} has arch {here['arch']}, recorded is {there['arch']}"
            if here["loss"] != there["loss"]:
                return f"the loss of subnet {here['seq_id']} is {here['loss']!r}, recorded is {there['loss']!r}"
        return None
