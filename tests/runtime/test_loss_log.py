"""Losses keep their bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sennit.errors import RunError
from sennit.runtime.loss_log import LossLog
from sennit.runtime.runfolder import RunFolder


def test_losses_keep_their_bits_and_are_cut_back(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    log = LossLog(tmp_path / "losses.jsonl")
    for seq_id in range(30):
        log.write(seq_id, {"blocks.0": "mlp", "skip": [0, 2]}, float(values[seq_id]))
    at = log.sync()
    for seq_id in range(30, 50):
        log.write(seq_id, {}, float(values[seq_id]), mean=0.5)
    log.close()

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (tmp_path / "losses.jsonl").read_text().splitlines()]

    assert np.array([line["loss"] for line in read()], dtype=np.float32).tobytes() == values.tobytes()
    assert list(read()[0]) == ["seq_id", "arch", "loss"] and read()[40]["mean"] == 0.5
    with RunFolder.create(tmp_path / "run", resume=False) as run:
        (tmp_path / "losses.jsonl").rename(run.losses)
        run.rewind({"losses.jsonl": at, "access.jsonl": 0})
        assert run.losses.stat().st_size == at and not run.access.exists()
        log = LossLog(run.losses)
        log.write(30, {}, 0.0)
        log.close()
        lines = run.losses.read_text().splitlines()
        assert len(lines) == 31 and json.loads(lines[-1])["seq_id"] == 30


def test_a_full_disk_while_logging_is_a_run_error() -> None:
    log = LossLog(Path("/dev/full"))
    with pytest.raises(RunError, match=r"the disk is full: /dev/full could not be written"):
        log.write(0, {}, 1.0)
    log.close()
