"""`sennit`: finds the command, reads its arguments, runs it, and turns errors into messages and exit codes.

    0 ok · 1 the run failed, or hashes differ · 2 bad input · 130 interrupted

Arguments are read before torch is imported, so `--help` and a wrong flag take a moment, not two seconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

from sennit.commands.arguments import read_arguments
from sennit.commands.failure import failure_of
from sennit.commands.output import Output
from sennit.interrupts import Interrupts


def main(arguments: Sequence[str] | None = None, results: TextIO | None = None) -> int:
    """Run one command. Returns the exit code; an error that is ours is raised on, for its traceback.

    Args:
        arguments: without the program's name; those of the process if left out.
        results: where JSON goes; stdout if left out.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    out = Output(json="--json" in given, results=results)
    Interrupts().listen()
    try:
        return read_arguments(given, out).run(out)
    except SystemExit as error:  # --help, or a usage error that has been shown
        return int(error.code or 0)
    except BrokenPipeError:  # the reader of our output is gone, as in `sennit report RUN | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except BaseException as error:
        failure = failure_of(error)
        out.error(failure)
        if failure.kind == "bug":
            raise
        return failure.exit


def open_streams() -> None:
    """Streams that were closed lead nowhere (`sennit train RECIPE >&-`): else a file or a pipe would get their numbers,
    and what is meant for people with it."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            assert opened == number
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def entry() -> None:
    """The program `sennit`: runs `main`, and ends without taking the interpreter apart, which takes torch seconds."""
    open_streams()
    results: TextIO | None = None
    if "--json" in sys.argv:  # what user code prints must not get in between
        results = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
    try:
        code = main(results=results)
        sys.stdout.flush()
        sys.stderr.flush()
    except KeyboardInterrupt:  # once more, between the lines
        code = 130
    os._exit(code)
