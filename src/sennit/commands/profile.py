"""`sennit profile`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.table import Table
from tyro.conf import Positional, arg

from sennit.commands.arguments import Json
from sennit.commands.output import Output
from sennit.errors import UserError

HELP = """Measures what the layers of a recipe's space cost: seconds of forward, backward and step, bytes, links.
Layers of one kind and shape are measured once. Nothing is trained.

    sennit profile recipes/digits.toml --out digits.profile.json
    sennit train recipes/digits.toml --workers 2 --plan digits.profile.json"""

MOST = 40


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Options of `sennit profile`."""

    recipe: Annotated[Positional[Path], arg(metavar="RECIPE")]
    """A recipe file, or the name of one in ./recipes."""
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: shown only)")] = None
    """Where the profile is written."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where layers are measured."""
    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Measure, write, show."""
        import torch

        from sennit.commands.train import recipe_file
        from sennit.recipe import load_recipe
        from sennit.runtime.forked import in_child
        from sennit.runtime.profiling import measure
        from sennit.runtime.usercode import blaming

        if self.out is not None and self.out.exists():
            raise UserError(f"{self.out} is there already; give --out another name, or remove it")
        if self.device == "cuda" and not in_child(torch.cuda.device_count):
            raise UserError("--device cuda needs a GPU, torch sees none. Use --device cpu; see `sennit doctor`")
        recipe = load_recipe(recipe_file(self.recipe))
        device = torch.device(self.device)
        with blaming(UserError, "while layers were measured"):
            out.say("recording what each candidate does")
            recipe.built.groups  # noqa: B018 - records every candidate
            out.say("measuring each kind of layer")
            found = in_child(lambda: measure(recipe, device))
        if self.out is not None:
            found.write(self.out)
        table = Table(box=None, pad_edge=False)
        for name in ("kind", "layers", "forward", "backward", "input", "weight", "step", "held", "parameters"):
            table.add_column(name, justify="left" if name == "kind" else "right", no_wrap=True)
        count = [0] * len(found.kinds)
        for number in found.steps.values():
            count[number] += 1
        for kind, layers in list(zip(found.kinds, count, strict=True))[:MOST]:
            times = (kind.forward, kind.backward, kind.input, kind.weight, kind.step)
            sizes = (kind.held_bytes, kind.parameter_bytes)
            shown = [f"{1e3 * t:.3f} ms" for t in times] + [f"{n / 2**20:.3f} MiB" for n in sizes]
            table.add_row(kind.name, str(layers), *shown)
        more = [f"... {len(found.kinds) - MOST} more kinds"] if len(found.kinds) > MOST else []
        links = [f"{name}: {rate / 1e9:.1f} GB/s" for name, rate in found.links.items()]
        written = [f"written to {self.out}"] if self.out is not None else []
        content = {**asdict(found), "out": None if self.out is None else str(self.out)}
        out.result(content, table, *more, *links, *written)
        return 0
