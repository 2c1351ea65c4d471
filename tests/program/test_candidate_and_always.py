"""A module that is a candidate and is called outside of choices, too: every way round, alike in all engines."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.runs import hashes, recipe, run
from torch import Tensor, nn

import sennit as sn


class Net(sn.ModelSpace):
    def __init__(self, where: str = "after") -> None:
        super().__init__()
        self.where = where
        self.stem = nn.Linear(20, 8)
        self.shared = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2))
        self.blocks = nn.ModuleList([sn.LayerChoice({"shared": self.shared, "tanh": nn.Tanh()}) for _ in range(3)])
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        if self.where == "before":
            h = self.shared(h)
        for i, block in enumerate(self.blocks):
            h = block(h)
            if self.where == "between" and i < 2:
                h = self.shared(h)
        return self.head(self.shared(h) if self.where == "after" else h)


@pytest.mark.parametrize("where", ["before", "between", "after"])
def test_it_is_trained_alike_by_all(where: str, tmp_path: Path) -> None:
    made = recipe(
        space="test_candidate_and_always.py:Net", data="signs.py:Data", loss_name="cross_entropy",
        batch_size=8, steps=8, space_args={"where": where}, data_args={}, base=str(Path(__file__).parent),
    )  # fmt: skip
    blocks = {tuple(program.blocks) for program in made.built.covering}
    assert len(blocks) == 1, "every arch has the same blocks"
    plain = run(made, tmp_path / "plain", engine="plain")
    for i, placed in enumerate(({"workers": 1}, {"workers": 2}, {"workers": 2, "release": "layer"}, {"workers": 3})):
        assert hashes(run(made, tmp_path / str(i), **placed)) == hashes(plain)
