"""`sennit space`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten
from typing import Annotated

from rich.table import Table
from tyro.conf import Positional, arg

from sennit.commands.arguments import Json
from sennit.commands.output import Output
from sennit.errors import UserError

HELP = """Shows what the space of a recipe contains: size, parameters, choices, what every network shares.
Each candidate is dry-run for shapes, nothing is trained.

    sennit space recipes/digits.toml"""

MOST_CHOICES = 20
OPTIONS_WIDTH = 72


@dataclass(frozen=True, kw_only=True)
class Space:
    """Options of `sennit space`."""

    recipe: Annotated[Positional[Path], arg(metavar="RECIPE")]
    """A recipe file, or the name of one in ./recipes."""
    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Build, record, report."""
        from sennit.commands.train import recipe_file
        from sennit.recipe import load_recipe
        from sennit.runtime.usercode import blaming
        from sennit.space.report import space_report

        path = recipe_file(self.recipe)
        recipe = load_recipe(path)
        out.say(f"checking {path}: each candidate is recorded")
        with blaming(UserError, "while the space was recorded"):
            report = space_report(recipe.built)
        sites = recipe.built.recordings.structure.sites
        table = Table(box=None, pad_edge=False)
        for column in ("choice", "options", ""):
            table.add_column(column, justify="right" if column == "options" else "left", no_wrap=True)
        for label, site in list(sites.items())[:MOST_CHOICES]:
            table.add_row(label, str(len(site.choice.options())), shorten(site.choice.legal(), OPTIONS_WIDTH))
        more = [f"... {len(sites) - MOST_CHOICES} more choices"] if len(sites) > MOST_CHOICES else []
        choices = {label: [site.choice.encode(o) for o in site.choice.options()] for label, site in sites.items()}
        out.result({**asdict(report), "choices": choices}, *report.lines(), table, *more)
        return 0
