"""Ordinary mistakes of a first recipe: every command says them with exit code 2, and no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SPACES = """
import sennit as sn
from torch import nn
from nets import Net

class Hidden(Net):
    def __init__(self):
        super().__init__()
        self.more = [sn.LayerChoice([nn.Identity(), nn.ReLU()])]
    def forward(self, x): return self.more[0](super().forward(x))

class Unheld(Net):
    def forward(self, x): return sn.LayerChoice([nn.Identity(), nn.ReLU()])(super().forward(x))

class Masked(Net):
    def forward(self, x, mask): return super().forward(x) * mask

class Bare(sn.ModelSpace):
    def __init__(self):
        super().__init__()
        self.choice = sn.LayerChoice([nn.Linear(8, 4), nn.Linear(8, 4)])

class Forgets(Net):
    def forward(self, x): super().forward(x)
"""


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("Hidden", 10, "this LayerChoice is no part of the space"),
        ("Unheld", 13, "this LayerChoice is no part of the space"),
        ("Masked", 16, "forward of Masked takes (x, mask), but the data gives one tensor"),
        ("Bare", 19, "Bare has no forward"),
        ("Forgets", 24, "forward of Forgets returned None"),
    ],
)
@pytest.mark.parametrize("command", ["space", "train", "train --engine plain"])
def test_a_space(command: str, name: str, line: int, said: str, call: Callable, workplace: Path) -> None:
    (workplace / "first.py").write_text(SPACES)
    text = (workplace / "r.toml").read_text().replace("nets.py:Net", f"first.py:{name}")
    (workplace / "r.toml").write_text(text)
    first, *options = command.split()
    found = call(first, "r.toml", *options)
    assert found.exit == 2 and "Traceback" not in found.err
    assert f"{workplace / 'first.py'}:{line}: {said}" in " ".join(found.err.split())
    assert not (workplace / "runs").exists()


ORDERS = """
class NoArgs:
    def __init__(self): ...
    def add(self, task): ...
    def pop(self): ...

class PopsSome:
    def __init__(self, worker, setting): ...
    def add(self, task): ...
    def pop(self, tasks): ...

class NoPop:
    def __init__(self, worker, setting): ...
    def add(self, task): ...
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NoArgs", "first.py:3) is called with (worker, setting), once for each worker, but takes ()"),
        ("PopsSome", "first.py:10) is called as pop(), but takes (self, tasks)"),
        ("NoPop", "NoPop has no pop; an order has add(task)"),
    ],
)
@pytest.mark.parametrize("command", ["simulate --space 8x4", "train r.toml"])
def test_an_order(command: str, name: str, said: str, call: Callable, workplace: Path) -> None:
    (workplace / "first.py").write_text(ORDERS)
    found = call(*command.split(), "--workers", "2", "--schedule", f"first.py:{name}")
    assert found.exit == 2 and "Traceback" not in found.err
    assert said in " ".join(found.err.split())
    assert not [*(workplace / "runs").glob("*")]


CONSTRUCTORS = """
import sennit as sn
import torch
from torch import nn
from nets import Net, Points

def fails(how):
    if how == "torch": nn.Linear(32)
    if how == "sennit": sn.LayerChoice(5)
    if how == "python": len(3)
    if how == "deep": torch.zeros("a")
    if how == "meta": torch.ones(3).sum().item()
    if how == "zero": 1 // 0

class Space(Net):
    def __init__(self, how="", **more):
        super().__init__(**more)
        fails(how)

class Data(Points):
    def __init__(self, split="train", how="", **more):
        super().__init__(split, **more)
        fails(how)
"""


@pytest.mark.parametrize(
    ("how", "line", "said"),
    [
        ("torch", 8, "in fails raised TypeError while {} was made with these {}_args"),
        ("sennit", 9, "in fails raised TypeError while {} was made with these {}_args"),
        ("python", 10, "in fails raised TypeError while {} was made with these {}_args"),
        ("deep", 11, "in fails raised TypeError while {} was made with these {}_args"),
        ("zero", 13, "in fails raised ZeroDivisionError"),
    ],
)
@pytest.mark.parametrize("of", ["space", "data"])
def test_an_error_in_a_constructor_has_its_line(
    of: str, how: str, line: int, said: str, call: Callable, workplace: Path
) -> None:
    made(workplace, of, f'how = "{how}"')
    found = call("space", "r.toml")
    assert found.exit == 2
    what = {"space": "the space", "data": "data = 'first.py:Data'"}[of]
    assert f"{workplace / 'first.py'}:{line} {said.format(what, of)}" in " ".join(found.err.split())


def test_values_asked_of_a_tensor_without_data_have_their_line(call: Callable, workplace: Path) -> None:
    made(workplace, "space", 'how = "meta"')
    said = " ".join(call("space", "r.toml").err.split())
    assert f"could not be built on device 'meta': {workplace / 'first.py'}:12 in fails: " in said


@pytest.mark.parametrize(("of", "line"), [("space", 17), ("data", 22)])
def test_arguments_that_are_handed_on_have_the_line_that_does(
    of: str, line: int, call: Callable, workplace: Path
) -> None:
    made(workplace, of, "widht = 3")
    said = " ".join(call("space", "r.toml").err.split())
    assert f"{workplace / 'first.py'}:{line} in __init__ raised TypeError" in said and "'widht': 3" in said


def made(workplace: Path, of: str, arguments: str) -> None:
    """A recipe whose space or data is called with these."""
    (workplace / "first.py").write_text(CONSTRUCTORS)
    text = (workplace / "r.toml").read_text()
    old, new = {"space": ("nets.py:Net", "first.py:Space"), "data": ("nets.py:Points", "first.py:Data")}[of]
    (workplace / "r.toml").write_text(f"{text.replace(old, new)}\n[{of}_args]\n{arguments}\n")
