"""Losses that come with sennit, replayed, give the bits of eager ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sennit.executor import loss_graph
from sennit.executor.capture import NotCapturable
from sennit.executor.loss_graph import LossCall, LossGraph
from sennit.executor.staging import Staging
from sennit.recipe import EvaluateRule, read_recipe
from sennit.runtime.share import Parts
from sennit.supernet.bits import same_bits
from sennit.supernet.loss import LOSSES, share_of_loss
from tests.executor.host_graphs import HostGraphs
from tests.runtime.runs import hashes, recipe, run

CPU = torch.device("cpu")
SHAPES: dict[str, tuple[tuple[int, ...], Any]] = {
    "cross_entropy": ((6, 5), lambda g: torch.randint(0, 5, (6,), generator=g)),
    "token_cross_entropy": ((3, 4, 7), lambda g: torch.randint(0, 7, (3, 4), generator=g)),
    "smoothed_token_cross_entropy": ((3, 4, 7), lambda g: torch.randint(0, 7, (3, 4), generator=g)),
    "mse": ((3, 4), lambda g: torch.randn(3, 4, generator=g)),
}


def call_of(name: str, target: Tensor, counts: list[int]) -> LossCall:
    def call(output: Tensor) -> Tensor:
        return share_of_loss(LOSSES[name], output, target, counts, 0)

    return LossCall(call, LOSSES[name], target, sum(counts), 3)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_a_replayed_loss_is_the_eager_one(name: str, wanted: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    shape, targets = SHAPES[name]
    batches = [(torch.randn(shape, generator=generator), targets(generator)) for _ in range(3)]
    graph = LossGraph(HostGraphs(CPU), Staging(CPU), LOSSES[name], *batches[0], wanted)
    for output, target in batches:
        counts = [LOSSES[name].terms(target), 17]  # type: ignore[attr-defined]
        loss = call_of(name, target, counts)
        leaf = output.clone().requires_grad_(wanted)
        eager = loss(leaf)
        back = torch.autograd.grad([eager], [leaf])[0] if wanted else None
        assert same_bits(graph.play(output, loss), (eager.detach(), back))


class Told(LossGraph):
    """Leaves a mark when it is replayed."""

    mark: Path

    def play(self, output: Tensor, loss: LossCall) -> tuple[Tensor, Tensor | None]:
        self.mark.touch()
        return super().play(output, loss)


class Refused(LossGraph):
    def __init__(self, *arguments: Any) -> None:
        raise NotCapturable("it is refused here")


def test_a_run_with_replayed_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = read_recipe("recipes/digits.toml")
    made = replace(digits, steps=12, micro_batches=3, batch_size=30, evaluate=EvaluateRule(every=0))
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    parts = Parts(capturing=HostGraphs)
    Told.mark = tmp_path / "played"
    for kind in (Told, Refused):
        monkeypatch.setattr(loss_graph, "LossGraph", kind)
        assert hashes(run(made, tmp_path / kind.__name__, parts=parts)) == plain
    assert Told.mark.exists()


def test_a_loss_of_the_users_is_never_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Told.mark = tmp_path / "played"
    monkeypatch.setattr(loss_graph, "LossGraph", Told)
    run(recipe(), tmp_path / "run", parts=Parts(capturing=HostGraphs))
    assert not Told.mark.exists()
