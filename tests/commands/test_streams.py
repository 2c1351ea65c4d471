"""Streams that lead nowhere, or nowhere any more, end no training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEPS = 12


def shell(line: str, out: Path) -> int:
    """Run a line in which `$TRAIN` is a training of a few subnets to `out`, and return what it returns."""
    command = (sys.executable, "-m", "sennit", "train", "recipes/digits.toml", "--steps", str(STEPS), "--out", str(out))
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env={**os.environ, "PYTHONPATH": path, "TRAIN": " ".join(command)},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ).returncode  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("$TRAIN >&-", 0),
        ("$TRAIN --workers 2 <&- >&- 2>&-", 0),
        ("$TRAIN --workers 2 2> >(head -1) ", 0),
        ("$TRAIN --workers 2 2>&1 | head -1; exit ${PIPESTATUS[0]}", 1),
    ],
    ids=["stdout closed", "all closed", "reader of stderr gone", "reader of both gone"],
)
def test_training_goes_on_whoever_reads(line: str, code: int, tmp_path: Path) -> None:
    """The result of the last one cannot be told, so it is no success; it is there all the same."""
    assert shell(line, tmp_path / "run") == code
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == STEPS
