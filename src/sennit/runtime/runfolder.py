"""The folder of one run (docs/files.md).

    RUN/  run.json       recipe, placement, fingerprint      result.json   figures and hashes of the end
          losses.jsonl   one line a subnet                   access.jsonl  every access to a group
          trace.jsonl    every task in time                  trace.json    the same, for Perfetto
          checkpoints/   see `sennit.runtime.checkpoint`
          lock           held with flock by the process that runs; its content is that process's id

Whether it can be had is in `sennit.runtime.taking`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from sennit.errors import UserError
from sennit.runtime.taking import empty, locked, make, refuse_other_content, taken
from sennit.runtime.written import truncate, write_json

RUN_KEYS: dict[str, type] = {
    "recipe": dict, "base": str, "placement": dict, "engine": str, "fingerprint": dict, "steps": int, "identity": str
}  # fmt: skip
RESULT_KEYS: dict[str, type] = {"steps": int, "weights_sha256": str, "optimizer_sha256": str, "losses_sha256": str}
"""What must be in the files of a run."""
RUNS = Path("runs")
"""Where runs go that were given no folder."""


class RunFolder:
    """A run folder, locked by this process until `close` (or the end of a `with`).

    Attributes:
        path: the folder.
        resumed: whether an earlier run lies in it.
    """

    def __init__(self, path: Path, *, resumed: bool, lock: int | None) -> None:
        self.path, self.resumed, self._lock = path, resumed, lock

    @staticmethod
    def create(path: Path | str | None, resume: bool, name: str = "run") -> RunFolder:
        """Make the folder of a new run, or take that of an earlier one, and lock it.

        Args:
            path: the folder; None stands for `runs/<name>-<n>`: with the next n, or, to resume, the last.
            resume: go on with what is there. Nothing there starts a new run.
            name: the recipe's.

        Raises:
            UserError: the folder holds something (without `resume`), is no run folder, is in use, or cannot be made.
        """
        if path is None and not (resume and _last(name)):
            return _next(name)
        path = Path(path) if path is not None else RUNS / f"{name}-{_last(name)}"
        made = make(path)
        if not made and not resume and not empty(path):
            raise UserError(taken(path))
        if not made:
            refuse_other_content(path)
        lock = locked(path)
        return RunFolder(path, resumed=(path / "run.json").is_file(), lock=lock)

    @staticmethod
    def open(path: Path | str, *, lock: bool = False) -> RunFolder:
        """A run that exists, to read it; with `lock`, to add to it.

        Raises:
            UserError: it is no run folder, or (with `lock`) in use.
        """
        path = Path(path)
        if not (path / "run.json").is_file():
            what = "has no run.json, so it is no run folder" if path.is_dir() else "is no folder"
            raise UserError(f"{path} {what}; give the --out of an earlier `sennit train`")
        return RunFolder(path, resumed=True, lock=locked(path) if lock else None)

    @property
    def losses(self) -> Path:
        return self.path / "losses.jsonl"

    @property
    def access(self) -> Path:
        return self.path / "access.jsonl"

    @property
    def spans(self) -> Path:
        return self.path / "trace.jsonl"

    @property
    def trace(self) -> Path:
        return self.path / "trace.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write `name` (`run.json`, `result.json`) whole or not at all.

        Raises:
            RunError: it could not be written, for instance because the disk is full.
        """
        write_json(self.path / name, content)

    def read_json(self, name: str) -> dict[str, Any]:
        """Read `name`.

        Raises:
            UserError: it is missing or no JSON object.
        """
        path = self.path / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise UserError(f"{path} is not valid JSON: {error}") from error
        if not isinstance(content, dict):
            raise UserError(f"{path} must hold a JSON object, got {content!r:.80}")
        return content

    def read_run(self) -> dict[str, Any]:
        """`run.json`, with all that other commands need of it.

        Raises:
            UserError: it is missing, damaged, or lacks something.
        """
        return _with(self.path / "run.json", self.read_json("run.json"), RUN_KEYS)

    def read_result(self) -> dict[str, Any] | None:
        """`result.json`, or None if the run has not ended well yet.

        Raises:
            UserError: it is damaged, or lacks something.
        """
        if not (self.path / "result.json").is_file():
            return None
        virtual = self.read_run()["placement"].get("device") == "virtual"  # trained nothing, so has no hashes
        return _with(
            self.path / "result.json", self.read_json("result.json"), {"steps": int} if virtual else RESULT_KEYS
        )

    def handles(self) -> list[int]:
        """Open files that a forked process must close, so that the lock ends with this process."""
        return [] if self._lock is None else [self._lock]

    def rewind(self, lengths: Mapping[str, int]) -> None:
        """Cut logs back to what they held at a checkpoint.

        Args:
            lengths: file name to bytes. A length of 0 removes what is there.

        Raises:
            CheckpointError: a log is shorter than it was then.
        """
        for name, length in lengths.items():
            truncate(self.path / name, length)

    def close(self) -> None:
        """Let others use the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _with(path: Path, content: dict[str, Any], keys: Mapping[str, type]) -> dict[str, Any]:
    for key, kind in keys.items():
        if not isinstance(content.get(key), kind):
            there = f"{key} = {content[key]!r:.60}" if key in content else f"no {key!r}"
            raise UserError(f"{path} is damaged: it has {there}, and should have {key!r} of type {kind.__name__}")
    return content


def _numbers(name: str) -> list[int]:
    if not RUNS.is_dir():
        return []
    found = [re.fullmatch(re.escape(name) + r"-(\d+)", p.name) for p in RUNS.iterdir()]
    return sorted(int(match[1]) for match in found if match)


def _last(name: str) -> int | None:
    return max(_numbers(name), default=None)


def _next(name: str) -> RunFolder:
    while True:
        path = RUNS / f"{name}-{(_last(name) or 0) + 1}"
        if make(path):  # else another process took the number first
            return RunFolder(path, resumed=False, lock=locked(path))
