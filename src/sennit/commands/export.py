"""`sennit export`."""

from __future__ import annotations

import json as jsonlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from sennit.commands.arguments import Json
from sennit.commands.output import Output, figure
from sennit.commands.progress import Meter
from sennit.errors import RunError, UserError

if TYPE_CHECKING:
    from sennit.runtime.load import LoadedRun

HELP = """Writes one network of a trained supernet as a folder that plain PyTorch loads without sennit, and
checks that it computes and measures the same, bit for bit.

    sennit export runs/first --to best
    sennit export runs/first --arch mine.json --to mine --retrain 2000"""


@dataclass(frozen=True, kw_only=True)
class Export:
    """Options of `sennit export`."""

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of a trained run."""
    to: Annotated[Path, arg(metavar="FOLDER")]
    """The folder to make."""
    arch: Annotated[str, arg(metavar="best|FILE")] = "best"
    """best: of the last search in RUN. Or a JSON file: an arch, or an object with the key "arch"."""
    retrain: Annotated[int | None, arg(metavar="STEPS", help_behavior_hint="(default: inherit)")] = None
    """Train this network alone from fresh weights, for so many steps."""
    seed: Annotated[int | None, arg(metavar="S", help_behavior_hint="(default: the recipe's)")] = None
    """With --retrain: of weights, data order and random draws."""
    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Find the arch, train it if asked to, write it."""
        from sennit.explore.evaluate import Evaluation
        from sennit.explore.export import export
        from sennit.recipe import use_recipe
        from sennit.runtime.load import load_run
        from sennit.runtime.usercode import blaming

        if self.to.exists():
            raise UserError(f"--to {self.to} exists already; name another folder")
        if self.seed is not None and self.retrain is None:
            raise UserError(f"--seed {self.seed} belongs to --retrain STEPS; inherited weights have no seed")
        run = load_run(self.folder)
        use_recipe(run.recipe)
        device = run.run["placement"]["device"]
        with blaming(RunError, "while exporting"):
            arch, evaluation, metrics, source = self._found(run)
            rule = Evaluation(**evaluation)
            if self.retrain is None:
                made = export(run.recipe, run.model(), arch, self.to, evaluation=rule, metrics=metrics, device=device)
            else:
                recipe, model = self._retrained(run, arch, device, out)
                made = export(recipe, model, arch, self.to, evaluation=rule, weights="retrained", device=device)
        kind = "inherited" if self.retrain is None else "retrained"
        content = {"folder": str(made.folder), "arch": arch, "weights": kind, "metrics": made.metrics}
        figures = ", ".join(f"{name} {value:.6g}" for name, value in made.metrics.items())
        trained = "the supernet's weights" if self.retrain is None else f"{self.retrain} steps alone on 'train'"
        lines = [f"arch from {source}: {jsonlib.dumps(arch)}"]
        lines += [f"{trained}; measured on the split {rule.split!r}"]
        lines += [f"{made.folder}: {figures} ({kind} weights; the exported program gives the same bits)"]
        lines += [f"note: {made.note}"] if made.note else []
        out.result({**content, "note": made.note}, *lines, *_how_to_load(made.folder))
        return 0

    def _found(self, run: LoadedRun) -> tuple[dict[str, Any], dict[str, Any], dict[str, float] | None, str]:
        """The arch, what to evaluate it on, and what the search has measured."""
        if self.arch == "best":
            from sennit.commands.search import best_of

            trial, identity, folder = best_of(run)
            return trial.arch, identity["evaluation"], trial.metrics, f"{folder} (its best)"
        try:
            held = jsonlib.loads(Path(self.arch).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"--arch {self.arch}: cannot be read as a JSON file ({error}); or write --arch best"
            ) from error
        arch = held["arch"] if isinstance(held, dict) and isinstance(held.get("arch"), dict) else held
        return run.recipe.built.recordings.structure.canonical(arch), {}, None, self.arch

    def _retrained(self, run: LoadedRun, arch: dict[str, Any], device: str, out: Output) -> tuple[Any, Any]:
        from sennit.explore.retrain import retrain

        assert self.retrain is not None
        seed, steps = run.recipe.seed if self.seed is None else self.seed, self.retrain
        with Meter(out, "retrain", "steps") as meter:
            done = retrain(
                run.recipe, arch, seed=seed, steps=steps, device=device,
                on_step=lambda step, loss: meter.update(step + 1, steps, f"loss {figure(loss)}"),
            )  # fmt: skip
        return done.recipe, done.model


def _how_to_load(folder: Path) -> list[str]:
    from sennit.explore.export import ARCH, PROGRAM

    held = jsonlib.loads((folder / ARCH).read_text(encoding="utf-8"))
    from_here = (line.replace(f'"{PROGRAM}"', f'"{folder / PROGRAM}"') for line in held["load"])
    return ["to load it:", *(f"    {line}" for line in from_here)]
