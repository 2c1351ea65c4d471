"""Processes that are forked where a thread pool runs: they hung in their first convolution by two threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import torch
from torch import nn
from sennit.runtime.forked import in_child, in_children
torch.set_num_threads({threads})
x = torch.randn(8, 16, 64, 64, generator=torch.Generator().manual_seed(0))
for net in (nn.Conv2d(16, 16, 3), nn.Linear(64, 512), nn.BatchNorm2d(16)):
    def step():
        loss = net(x).square().sum()
        return torch.autograd.grad(loss, [*net.parameters()])[0].sum().item()
    here = step()
    assert in_child(step) == here, "a child"
    assert in_children([step, lambda: in_child(step)]) == [here, here], "two at once, and a child's child"
    assert step() == here and torch.get_num_threads() == {threads}, "this process goes on as before"
"""


@pytest.mark.parametrize("threads", [2, 3])
def test_a_process_forked_behind_a_computation_computes(threads: int) -> None:
    code = CODE.format(threads=threads)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
