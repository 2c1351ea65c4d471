"""Where a command writes: results to stdout, everything meant for a person who waits to stderr."""

from __future__ import annotations

import json as jsonlib
import math
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from sennit.commands.failure import Failure

PIPED_WIDTH = 118
"""Columns of a table that no terminal shows."""


class People(Console):
    """stderr. Progress is for who waits: nothing ends because nobody reads it any more."""

    def on_broken_pipe(self) -> None:
        """The reader is gone, as `head` is; what others write there goes nowhere either."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


class Output:
    """The two streams of a command.

    Args:
        json: results are one JSON object, errors too.
        results: where that object goes; stdout if left out.

    Attributes:
        people: stderr.
    """

    def __init__(self, json: bool, results: TextIO | None = None) -> None:
        self.json, self._json_to = json, results
        self.people = _console(stderr=True)
        self._results = _console(stderr=False)

    def say(self, text: str) -> None:
        """A line or more to whoever waits."""
        self.people.print(Text(text), soft_wrap=True)

    def result(self, content: Mapping[str, Any], *shown: RenderableType) -> None:
        """What the command has found: `content` as JSON, or `shown`."""
        if self.json:
            to = self._json_to or sys.stdout
            to.write(jsonlib.dumps(_safe(content)) + "\n")
            to.flush()
            return
        for part in shown:
            if isinstance(part, str):
                self._results.print(Text(part), soft_wrap=True)
            else:
                self._results.print(part)

    def error(self, failure: Failure) -> None:
        """Say what went wrong; a bug is said by its traceback."""
        if self.json:
            self.result({"error": failure.message, "kind": failure.kind, "exit": failure.exit})
        if failure.kind != "bug":
            mark = "" if failure.kind == "interrupted" else "error: "
            self.people.print(Text(mark, style="bold red") + Text(failure.short()), soft_wrap=True)


def _console(*, stderr: bool) -> Console:
    console = (People if stderr else Console)(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console


def _safe(tree: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(tree, float) and not math.isfinite(tree):
        return None
    if isinstance(tree, Mapping):
        return {str(key): _safe(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_safe(value) for value in tree]
    return tree


def figure(value: float) -> str:
    """A number for people: four digits, or all digits before the point: `0.9756`, `47,020`, `1.5e+09`."""
    if isinstance(value, int) or 1e4 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.4g}"
