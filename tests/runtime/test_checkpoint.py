"""Checkpoints: exact, whole or not there, and refused by name when something is wrong."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from sennit.errors import CheckpointError, RunError
from sennit.runtime import checkpoint
from sennit.runtime.checkpoint import OPTIMIZER, STATE, WEIGHTS, load, newest, write

IDENTITY = "1" * 64
RECIPE: dict[str, Any] = {"lr": 0.1, "seed": 0, "steps": 60, "optimizer": {"name": "sgd"}, "checkpoint": {"every": 50}}


def tensors(seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    g = torch.Generator().manual_seed(seed)
    block = torch.randn(64, generator=g)  # views of one block, as a store hands them out
    weights = {
        "stem.weight": block[:12].view(3, 4),
        "stem.bias": block[12:15],
        "conv.weight": torch.randn(2, 3, 4, 4, generator=g).to(memory_format=torch.channels_last),
        "bn.num_batches_tracked": torch.tensor(7),
        "half": torch.randn(5, generator=g).bfloat16(),
        "mask": torch.tensor([True, False, True]),
        "nothing": torch.empty(0, 3),
        "nan": torch.tensor([float("nan"), -0.0, float("inf")]),
    }
    optimizer = {
        "stem.weight.exp_avg": torch.randn(3, 4, generator=g),
        "stem.weight.step": torch.tensor(3.0),
        "stem.bias.pending.48": torch.randn(3, generator=g),
    }
    return weights, optimizer


def state(**more: Any) -> dict[str, Any]:
    losses = np.random.default_rng(0).standard_normal(20).astype(np.float32)
    return {
        "identity": IDENTITY,
        "recipe": RECIPE,
        "losses": [float(x) for x in losses],
        "versions": {"stem": 49, "bn#buffers": [49, 3]},
        "lengths": {"losses.jsonl": 1234, "access.jsonl": 99},
        **more,
    }


def save(root: Path, seq_id: int, keep: int = 9, **more: Any) -> Path:
    return write(root, seq_id, *tensors(seq_id), state(**more), keep)


def same(a: Tensor, b: Tensor) -> bool:
    raw = [t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b) if t.numel()]
    return a.shape == b.shape and a.dtype == b.dtype and (not raw or torch.equal(*raw))


def test_everything_comes_back_to_the_bit(tmp_path: Path) -> None:
    folder = save(tmp_path / "checkpoints", 50)
    assert folder == tmp_path / "checkpoints" / "00000050"
    weights, optimizer = tensors(50)
    loaded = newest(tmp_path / "checkpoints", IDENTITY)
    assert loaded is not None and loaded.seq_id == 50
    assert set(loaded.weights) == set(weights) and set(loaded.optimizer) == set(optimizer)
    assert all(same(loaded.weights[name], t) for name, t in weights.items())
    assert all(same(loaded.optimizer[name], t) for name, t in optimizer.items())
    assert loaded.optimizer["stem.weight.step"].dim() == 0
    given = state()
    assert {key: loaded.state[key] for key in given} == given
    losses = np.array(loaded.state["losses"], dtype=np.float32)
    assert losses.tobytes() == np.random.default_rng(0).standard_normal(20).astype(np.float32).tobytes()


def test_files_are_plain_safetensors(tmp_path: Path) -> None:
    folder = save(tmp_path, 50)
    weights, optimizer = tensors(50)
    for name, given in ((WEIGHTS, weights), (OPTIMIZER, optimizer)):
        found = load_file(folder / name)
        assert found.keys() == given.keys() and all(same(found[key], t) for key, t in given.items())
    assert json.loads((folder / STATE).read_text())["state"]["next_seq_id"] == 50


def test_loaded_tensors_are_their_own(tmp_path: Path) -> None:
    folder = save(tmp_path, 50)
    loaded = load(folder)
    tensor = loaded.weights["stem.weight"]
    for file in folder.iterdir():
        file.unlink()
    tensor.add_(1.0)
    assert same(loaded.weights["stem.weight"], tensors(50)[0]["stem.weight"])
    with pytest.raises(KeyError):
        loaded.weights["nobody"]


def test_no_state_yet_and_no_checkpoint_yet(tmp_path: Path) -> None:
    assert newest(tmp_path / "checkpoints", IDENTITY) is None
    write(tmp_path, 0, {}, {}, {"identity": IDENTITY}, keep=1)
    loaded = newest(tmp_path, IDENTITY)
    assert loaded is not None and loaded.seq_id == 0 and dict(loaded.weights) == {}


def test_the_newest_are_kept_by_number(tmp_path: Path) -> None:
    for seq_id in (5, 10, 100, 1000, 123456789):
        save(tmp_path, seq_id, keep=3)
    assert [f.name for f in checkpoint.folders(tmp_path)] == ["00000100", "00001000", "123456789"]
    loaded = newest(tmp_path, IDENTITY)
    assert loaded is not None and loaded.seq_id == 123456789


def test_writing_the_same_cut_again_replaces_it(tmp_path: Path) -> None:
    save(tmp_path, 50)
    save(tmp_path, 50, extra=1)
    loaded = newest(tmp_path, IDENTITY)
    assert loaded is not None and loaded.state["extra"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["00000050"]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", [WEIGHTS, OPTIMIZER, STATE])
@pytest.mark.parametrize(("damage", "said"), [(os.remove, "is missing"), (cut, ""), (flip, "what was written")])
def test_damage_is_named_and_the_older_one_offered(tmp_path: Path, name: str, damage: Any, said: str) -> None:
    root = tmp_path / "checkpoints"
    for seq_id in (50, 100):
        save(root, seq_id)
    damage(root / "00000100" / name)
    with pytest.raises(CheckpointError) as caught:
        newest(root, IDENTITY)
    message = str(caught.value)
    assert f"checkpoint {root / '00000100'} is damaged: {name}" in message and said in message
    assert f"Remove it to resume from checkpoints/00000050: rm -r {root / '00000100'}" in message
    (root / "00000100").rename(tmp_path / "gone")
    loaded = newest(root, IDENTITY)
    assert loaded is not None and loaded.seq_id == 50


def test_every_byte_of_a_checkpoint_counts(tmp_path: Path) -> None:
    folder = save(tmp_path, 50)
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        for at in range(0, len(data), 37):
            file.write_bytes(data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :])
            with pytest.raises(CheckpointError, match=r"00000050"):
                load(folder, IDENTITY)
        file.write_bytes(data)
    assert load(folder, IDENTITY).seq_id == 50


def test_several_damaged_ones_are_all_named(tmp_path: Path) -> None:
    for seq_id in (50, 100, 150):
        save(tmp_path, seq_id)
    cut(tmp_path / "00000100" / WEIGHTS)
    cut(tmp_path / "00000150" / WEIGHTS)
    with pytest.raises(CheckpointError, match=r"Remove 00000100, 00000150 .*00000050: rm -r \S+100 \S+150$"):
        newest(tmp_path, IDENTITY)
    cut(tmp_path / "00000050" / WEIGHTS)
    with pytest.raises(CheckpointError, match=r"None of the older ones is usable either"):
        newest(tmp_path, IDENTITY)


def test_the_only_one_damaged(tmp_path: Path) -> None:
    cut(save(tmp_path, 50) / STATE)
    with pytest.raises(CheckpointError, match=r"There is no older one"):
        newest(tmp_path, IDENTITY)


def test_another_recipe_is_refused_with_the_keys_that_differ(tmp_path: Path) -> None:
    save(tmp_path, 50)
    ours = {**RECIPE, "lr": 0.2, "optimizer": {"name": "adam"}, "checkpoint": {"every": 7}}
    with pytest.raises(CheckpointError) as caught:
        newest(tmp_path, "2" * 64, ours)
    message = str(caught.value)
    assert f"checkpoint {tmp_path / '00000050'} belongs to another recipe" in message
    assert "lr = 0.1 there, 0.2 here; optimizer.name = 'sgd' there, 'adam' here" in message
    assert "checkpoint.every" not in message
    assert "identity 111111111111, this recipe has 222222222222" in message
    assert "another --out" in message


def test_who_wants_to_train_longer_is_told_how(tmp_path: Path) -> None:
    save(tmp_path, 50)
    for changes, told in (({}, True), ({"lr": 0.2}, False)):
        with pytest.raises(CheckpointError) as caught:
            newest(tmp_path, "2" * 64, {**RECIPE, "steps": RECIPE["steps"] + 9, **changes})
        assert ("give --steps" in str(caught.value)) == told


def test_a_renamed_one_and_another_format_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 50).rename(tmp_path / "00000060")
    with pytest.raises(CheckpointError, match=r"was renamed: it holds 50 finished subnets; call it 00000050"):
        newest(tmp_path, IDENTITY)
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    save(tmp_path, 70)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"has format 2; this version of sennit reads 1"):
        newest(tmp_path, IDENTITY)


@pytest.mark.parametrize("call", ["fsync", "mkdir", "rename"])
def test_a_full_disk_keeps_the_older_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    root = tmp_path / "checkpoints"
    save(root, 50, keep=1)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(RunError, match=r"the disk is full: checkpoint \S+00000100 .*kept: checkpoints/00000050"):
        save(root, 100, keep=1)
    monkeypatch.undo()
    assert [p.name for p in root.iterdir()] == ["00000050"]
    loaded = newest(root, IDENTITY)
    assert loaded is not None and loaded.seq_id == 50
    save(root, 100, keep=1)


def test_other_failures_to_write_are_told(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(RunError, match=r"could not be written: File exists; there is no older checkpoint"):
        save(tmp_path / "checkpoints", 50)


def test_state_that_is_no_json_leaves_nothing(tmp_path: Path) -> None:
    for bad in (float("nan"), object()):
        with pytest.raises((ValueError, TypeError)):
            save(tmp_path, 50, bad=bad)
    assert list(tmp_path.iterdir()) == []


KILLS = """
import os, pathlib, signal, sys, time
sys.path.insert(0, sys.argv[2])
from test_checkpoint import IDENTITY, newest, same, save, tensors
root = pathlib.Path(sys.argv[1])
save(root, 1)
for attempt in range(20):
    start = newest(root, IDENTITY).seq_id
    writer = os.fork()
    if not writer:
        for seq_id in range(start + 1, start + 100000):
            save(root, seq_id, keep=2)
    time.sleep(0.01 + 0.0017 * attempt)
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    loaded = newest(root, IDENTITY)
    weights, optimizer = tensors(loaded.seq_id)
    assert loaded.seq_id >= start
    assert all(same(loaded.weights[name], t) for name, t in weights.items())
    assert all(same(loaded.optimizer[name], t) for name, t in optimizer.items())
save(root, 200000000, keep=1)
"""


def test_killed_at_any_moment_leaves_whole_checkpoints(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", KILLS, str(tmp_path), str(Path(__file__).parent)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["200000000"]
