"""`sennit train` as `torchrun` starts it: two launchers that meet by environment variables alone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sennit.errors import UserError
from sennit.runtime.hosts.meeting import told_of_hosts
from tests.runtime.runs import HERE, hashes, recipe, run
from tests.runtime.test_sync_rules import CHAIN

RECIPE = f"""
space = "{HERE}/chain.py:Chain"
data = "{HERE}/chain.py:Data"
loss = "cross_entropy"
batch_size = 7
steps = 24
micro_batches = 3
lr = 0.1
clip = "layer:0.5"
feedback_lag = 4
[optimizer]
name = "sgd"
momentum = 0.9
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.mark.slow
def test_train_on_two_hosts(tmp_path: Path) -> None:
    (tmp_path / "chain.toml").write_text(RECIPE)
    command = [sys.executable, "-m", "sennit", "train", "chain.toml", "--workers", "3", "--out", "run", "--json"]
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
    launchers = [
        subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, **told, "RANK": rank}, text=True, stdout=subprocess.PIPE
        )
        for rank in "01"
    ]
    try:
        results = [json.loads(process.communicate(timeout=100)[0]) for process in launchers]
    finally:
        for process in launchers:
            process.kill()
    assert [process.returncode for process in launchers] == [0, 0]
    assert results[1] == {"host": 1, "hosts": 2}
    assert hashes(results[0]) == hashes(run(recipe(**CHAIN), tmp_path / "plain", engine="plain"))
    assert results[0]["hosts"]["hosts"] == 2


def test_who_is_told_of_hosts() -> None:
    assert not told_of_hosts({})
    assert not told_of_hosts({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"})
    assert told_of_hosts({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"})
    with pytest.raises(UserError, match="torchrun has started 2: use --nproc-per-node 1, and say with --workers"):
        told_of_hosts({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"})
