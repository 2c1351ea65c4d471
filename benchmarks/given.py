"""What benchmarks are given on the command line, refused by `argparse` before anything is measured."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from sennit.errors import UserError


def whole(least: int = 1) -> Callable[[str], int]:
    """A type: whole numbers from `least` on."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, got {text!r}")
        return number

    return read


def positive(text: str) -> float:
    """A type: finite numbers above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return number


def writable(text: str) -> Path:
    """A type: a file that can be written when all is measured."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}; make it, or name another file")
    return path


def kept(text: str) -> dict[str, Any]:
    """A type: a file that a benchmark has written, with its rows."""
    try:
        held = json.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"cannot read {text}: {error}") from error
    if not (isinstance(held, dict) and isinstance(held.get("rows"), list)):
        raise argparse.ArgumentTypeError(f"{text} is no result of this benchmark: it has no rows")
    return held


def device(text: str) -> str:
    """A type: a device that is here."""
    if text not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"must be cpu or cuda, got {text!r}")
    if text == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError("torch sees no GPU; use cpu")
    return text


def showing(table: Callable[[list[dict[str, Any]]], list[str]]) -> type[argparse.Action]:
    """An action: prints the table of kept results and ends the program, whatever else it would need."""

    class Show(argparse.Action):
        def __call__(
            self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
        ) -> None:
            print("\n".join(table(values)))
            parser.exit()

    return Show


@contextlib.contextmanager
def refusing(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Bad input that sennit finds is shown as the parser shows its own."""
    try:
        yield
    except UserError as error:
        parser.error(str(error))
