"""The hashes, against a few lines that follow docs/files.md word for word."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from small import HERE, recipe
from tests.plain_loop import run_plain
from torch import Tensor, nn

import sennit as sn
from sennit.supernet.hashes import (
    hash_tensors,
    losses_hash,
    model_tensors,
    optimizer_tensors,
    state_hash,
    tensor_line,
)


def by_hand(entries: dict[str, tuple[str, list[int], bytes]]) -> str:
    """SHA-256 over sorted lines `name dtype shape sha256(bytes)`, joined by newlines, no final one."""
    lines = []
    for name, (dtype, shape, raw) in entries.items():
        lines.append(f"{name} {dtype} [{','.join(map(str, shape))}] {hashlib.sha256(raw).hexdigest()}")
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8")).hexdigest()


def raw(*numbers: float, code: str = "f") -> bytes:
    return struct.pack(f"<{len(numbers)}{code}", *numbers)


def test_format_by_hand() -> None:
    tensors = {
        "b": torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        "a.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]).t(),
        "count": torch.tensor(7),
        "half": torch.tensor([1.0, -2.0], dtype=torch.bfloat16),
        "mask": torch.tensor([True, False]),
        "empty": torch.empty(0, 4),
        "é": torch.tensor([0.5], dtype=torch.float64),
    }
    wanted = {
        "b": ("float32", [2, 3], raw(1, 2, 3, 4, 5, 6)),
        "a.weight": ("float32", [2, 2], raw(1, 3, 2, 4)),
        "count": ("int64", [], raw(7, code="q")),
        "half": ("bfloat16", [2], bytes([0x80, 0x3F, 0x00, 0xC0])),
        "mask": ("bool", [2], b"\x01\x00"),
        "empty": ("float32", [0, 4], b""),
        "é": ("float64", [1], raw(0.5, code="d")),
    }
    assert hash_tensors(tensors) == by_hand(wanted)
    assert hash_tensors(list(reversed(tensors.items()))) == by_hand(wanted)


def test_a_line_as_documented() -> None:
    line = tensor_line("name", torch.zeros(2, 3))
    assert line == f"name float32 [2,3] {hashlib.sha256(bytes(24)).hexdigest()}"


class Tied(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.z = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.z.weight
        self.norm = nn.BatchNorm1d(5)
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.head(self.z(x)))


def test_of_a_model_aliases_once_scratch_left_out() -> None:
    model = Tied()
    entries = {}
    for name in ("head.weight", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"):
        tensor = model.get_parameter(name) if "running" not in name else model.get_buffer(name)
        entries[name] = ("float32", list(tensor.shape), tensor.detach().numpy().tobytes())
    entries["norm.num_batches_tracked"] = ("int64", [], bytes(8))
    assert state_hash(model) == by_hand(entries)
    assert "z.weight" not in model_tensors(model) and "scratch" not in model_tensors(model)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_of_an_optimizer_only_what_has_stepped(name: str) -> None:
    arguments = {"momentum": 0.9} if name == "sgd" else {}
    _, optimizer, tasks = run_plain(recipe(optimizer={"name": name, **arguments}), 2)
    stepped = {"stem.weight", "stem.bias", "head.weight", "head.bias"}
    parts = {0: ["0.weight", "0.bias"], 1: ["0.weight", "0.bias", "1.weight"], 2: []}
    for task in tasks:
        stepped |= {f"{label}.{option}.{part}" for label, option in task.arch.items() for part in parts[option]}
    keys = ["momentum_buffer"] if name == "sgd" else ["exp_avg", "exp_avg_sq", "step"]
    entries = {}
    for group in optimizer.param_groups:
        for parameter, parameter_name in zip(group["params"], group["param_names"], strict=True):
            state = optimizer.state.get(parameter, {})
            assert bool(state) == (parameter_name in stepped)
            for key in state:
                array = state[key].numpy()
                entries[f"{parameter_name}.{key}"] = ("float32", list(array.shape), array.tobytes())
    assert {entry.rpartition(".")[2] for entry in entries} == set(keys)
    assert state_hash(optimizer) == by_hand(entries)


def test_without_momentum_there_is_no_state() -> None:
    _, optimizer, _ = run_plain(recipe(optimizer={"name": "sgd"}), 2)
    assert optimizer_tensors(optimizer) == {} and state_hash(optimizer) == hashlib.sha256(b"").hexdigest()


def test_pending_gradients_belong_to_the_optimizer() -> None:
    _, optimizer, _ = run_plain(recipe(shared="delayed:3"), 4)
    pending = {name for name in optimizer_tensors(optimizer) if ".pending." in name}
    assert pending == {f"{m}.{p}.pending.{y}" for m in ("stem", "head") for p in ("weight", "bias") for y in (2, 3)}


def test_of_losses() -> None:
    losses = [float(np.float32(x)) for x in (0.1, 2.5, -3.75)]
    assert losses_hash(losses) == hashlib.sha256(struct.pack("<3f", *losses)).hexdigest()
    assert losses_hash([]) == hashlib.sha256(b"").hexdigest() != losses_hash([0.0])
    assert losses_hash(reversed(losses)) != losses_hash(losses)


def test_one_bit_changes_the_hash() -> None:
    model = Tied()
    before = state_hash(model)
    with torch.no_grad():
        model.norm.bias[2] = -0.0
    assert state_hash(model) != before
    with torch.no_grad():
        model.norm.bias[2] = 0.0
    assert state_hash(model) == before


def everything(sampler: str) -> str:
    """All that a short run decides, as text."""
    r = recipe(data_args={"augment": True}, sampler=sampler, shared="delayed:2", micro_batches=2)
    model, optimizer, tasks = run_plain(r, 6)
    hashes = state_hash(model), state_hash(optimizer), losses_hash(t.loss for t in tasks)
    return repr((hashes, [t.arch for t in tasks], r.built.groups.all, sorted(r.built.always[0]), r.identity()))


ELSEWHERE = """
import sys
sys.path.insert(0, sys.argv[1])
from sennit.supernet.context import set_kernel_flags
from test_hashes import everything, torch
torch.set_num_threads(1)
set_kernel_flags("fp32")
print([everything(sampler) for sampler in ("uniform", "fair")])
"""


def test_nothing_depends_on_pythons_hash_seed() -> None:
    """Another process orders its sets of strings in another way."""
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    arguments = [sys.executable, "-c", ELSEWHERE, HERE]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == repr([everything(sampler) for sampler in ("uniform", "fair")])
