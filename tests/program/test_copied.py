"""Modules that keep tensors of a forward are copied, with what these tensors hold."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.runtime.runs import hashes, recipe, run
from torch import Tensor, nn

import sennit as sn
from sennit.program.copied import copied


class Gate(nn.Module):
    """Keeps what it made, in every way that is usual."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.seen: dict[str, list[Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.gate = torch.sigmoid(self.a(x))
        self.seen["last"] = [self.gate, self.b(x)]
        return self.seen["last"][0] * self.seen["last"][1]


def test_what_is_kept_of_a_forward_is_copied_without_its_graph() -> None:
    module = nn.Sequential(Gate(), nn.Linear(8, 2))
    module(torch.ones(1, 8))
    held, other = module[0], copied(module)[0]
    assert isinstance(held, Gate) and isinstance(other, Gate)
    assert held.gate.grad_fn is not None and other.gate.grad_fn is None
    assert torch.equal(held.gate, other.gate) and other.seen["last"][0] is other.gate is not held.gate
    assert other.a.weight is not held.a.weight and torch.equal(other.a.weight, held.a.weight)


class Net(sn.ModelSpace):
    """A candidate keeps its gate, a hook what the stem made."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(20, 8)
        self.blocks = nn.ModuleList([sn.LayerChoice({"gate": Gate(), "tanh": nn.Tanh()}) for _ in range(3)])
        self.head = nn.Linear(8, 2)
        self.stem.register_forward_hook(lambda module, args, out: setattr(module, "last", out))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def test_a_space_that_keeps_what_it_made_is_trained_alike_by_all(tmp_path: Path) -> None:
    made = recipe(
        space="test_copied.py:Net", data="signs.py:Data", loss_name="cross_entropy", batch_size=8, steps=6,
        space_args={}, data_args={}, base=str(Path(__file__).parent),
    )  # fmt: skip
    plain = run(made, tmp_path / "plain", engine="plain")
    for workers, more in ((1, {}), (2, {}), (2, {"split": True})):
        assert hashes(run(made, tmp_path / f"{workers}{more}", workers=workers, **more)) == hashes(plain)
