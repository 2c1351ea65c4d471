"""The process in which a probe runs: `python -m sennit.commands.probe_host FILE FUNCTION PIPE`.

    sennit train --replay            this process
    event, one line of JSON  ──stdin──▶  probe(event)
    {} or {"error": ...}     ◀──pipe───  done with it

What a probe does, it does here: the training process never runs a line of it, so it cannot change a bit.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1


def main(file: str, name: str, pipe: int) -> None:
    """Load the probe, say so, and serve events until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run; the end of stdin ends this process
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with os.fdopen(pipe, "w", encoding="utf-8") as answers:
        try:
            probe = _load(Path(file), name)
        except BaseException as error:
            _answer(answers, {"error": _said(error, file)})
            return
        _answer(answers, {})
        for line in sys.stdin:
            try:
                probe(json.loads(line))
                sys.stdout.flush()
            except BaseException as error:
                _answer(answers, {"error": _said(error, file)})
                return
            _answer(answers, {})


def _load(path: Path, name: str) -> Callable[[dict[str, Any]], Any]:
    spec = importlib.util.spec_from_file_location("sennit_probe", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sennit_probe"] = module
    sys.path.insert(0, str(path.parent))  # it may import its neighbours
    spec.loader.exec_module(module)
    probe = getattr(module, name, None)
    if not callable(probe):
        public = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise LookupError(f"no function {name!r}; there are {', '.join(public) or 'none'}")
    return probe


def _said(error: BaseException, file: str) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}{f':{lines[-1]}' if lines else ''}: {type(error).__name__}: {error}"


def _answer(answers: Any, content: dict[str, str]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
