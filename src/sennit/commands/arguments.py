"""From the words of a command line to the dataclass of a command."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Protocol, Union

import tyro
from tyro.conf import FlagCreatePairsOff, arg, subcommand

from sennit.commands.failure import Failure
from sennit.commands.output import Output

Json = Annotated[bool, arg(help_behavior_hint="")]
"""Type of `--json`."""

SETTINGS = (FlagCreatePairsOff,)

COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("Train", "train a recipe, or repeat a recorded run under watch"),
    "verify": ("Verify", "run again under other placements, and compare every hash"),
    "search": ("Search", "find the best network of a trained supernet"),
    "export": ("Export", "write a network as a folder that plain PyTorch loads"),
    "report": ("Report", "show what a run did"),
    "simulate": ("Simulate", "bubble and bound of a schedule on a space, without running it"),
    "profile": ("Profile", "measure what the layers of a recipe's space cost"),
    "space": ("Space", "show what a recipe's space contains, without training"),
    "data": ("Data", "fetch and list data sets"),
    "doctor": ("Doctor", "can this machine run sennit, and how"),
}
"""Command to its class in the module of that name, and one line about it."""

OVERVIEW = """Trains supernets as pipelines, with the same bits on any number of workers.

    sennit train recipes/digits.toml --workers 2 --out runs/first
    sennit verify runs/first
    sennit search runs/first
    sennit export runs/first --to best

Exit codes: 0 ok, 1 failed or hashes differ, 2 bad input, 130 interrupted."""


class Command(Protocol):
    """What a command's dataclass has."""

    def run(self, out: Output) -> int:
        """Do it. Returns the exit code."""
        ...


def read_arguments(words: list[str], out: Output) -> Command:
    """The command that `words` ask for.

    Raises:
        SystemExit: after `--help` (0) or a usage error (2), which has been shown.
    """
    if words and words[0] in COMMANDS:
        name = words[0]
        module = import_module(f"sennit.commands.{name}")
        kind = getattr(module, COMMANDS[name][0])
        return _parse(kind, words[1:], f"sennit {name}", module.HELP, out)
    if words and words[0] == "--version":
        import sennit

        out.result({"version": sennit.__version__}, f"sennit {sennit.__version__}")
        raise SystemExit(0)
    if words and not words[0].startswith("-"):
        words = words[:1]  # `--help` behind a command that does not exist would show that of all
    shown: Any = Union[  # noqa: UP007 - made at run time
        tuple(Annotated[_Nothing, subcommand(name, description=line)] for name, (_, line) in COMMANDS.items())
    ]
    return _parse(shown, words, "sennit", OVERVIEW, out)


def _parse(kind: Any, words: list[str], program: str, description: str, out: Output) -> Any:
    shown = io.StringIO()
    try:
        with contextlib.redirect_stderr(shown) if out.json else contextlib.nullcontext():
            return tyro.cli(kind, args=words, prog=program, description=description, config=SETTINGS)
    except SystemExit as error:
        if out.json and error.code:
            inside = [line.strip("│ ") for line in shown.getvalue().splitlines() if line.startswith("│")]
            text = " ".join(line for line in inside if re.search(r"\w", line))
            out.error(Failure(2, "input", text.partition("For full helptext")[0].strip()))
        raise


@dataclass(frozen=True)
class _Nothing:
    """Stands for each command in the overview."""
