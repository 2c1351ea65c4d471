"""Synchronisation rules beside causal order: what depends on the number of workers, and what does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import sennit as sn
from sennit.errors import RecipeError, UserError
from tests.plain_loop import run_plain
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations

CHAIN: dict[str, Any] = {
    "space": "chain.py:Chain", "data": "chain.py:Data", "loss_name": "cross_entropy", "clip": "layer:0.5", "lr": 0.1,
    "optimizer": {"name": "sgd", "momentum": 0.9}, "steps": 24,
}  # fmt: skip
"""Each of its layers stays with one worker."""


@pytest.mark.parametrize("sync", ["asp:stash", "asp:none"])
def test_asynchronous_results_depend_on_the_number_of_workers_and_on_nothing_else(sync: str, tmp_path: Path) -> None:
    made = recipe(sync=sync, **CHAIN)
    causal = hashes(run(recipe(**CHAIN), tmp_path / "csp", engine="plain"))
    found: dict[int, tuple[str, ...]] = {}
    for workers in (1, 2, 3):
        found[workers] = hashes(run(made, tmp_path / f"{workers}", workers=workers))
        again = run(made, tmp_path / f"{workers}-again", workers=workers, loaders=1)
        assert hashes(again) == found[workers], "the same number of workers"
        assert not violations(tmp_path / f"{workers}")
    assert found[1] == causal, "one worker has nothing to overtake"
    assert len(set(found.values())) == 3


def test_stashing_is_seen_in_the_bits_and_in_the_log(tmp_path: Path) -> None:
    stash = run(recipe(sync="asp:stash", **CHAIN), tmp_path / "stash", workers=3)
    none = run(recipe(sync="asp:none", **CHAIN), tmp_path / "none", workers=3)
    assert hashes(stash) != hashes(none)
    held = json.loads((tmp_path / "none" / "run.json").read_text())
    held["recipe"]["sync"] = "asp:stash"
    (tmp_path / "none" / "run.json").write_text(json.dumps(held))
    assert violations(tmp_path / "none"), "a backward that sees other weights than its forward"


def test_a_bulk_per_worker_is_a_bulk_of_so_many(tmp_path: Path) -> None:
    results = {n: run(recipe(sync="bulk-per-worker", steps=12), tmp_path / f"{n}", workers=n) for n in (1, 2, 3)}
    assert hashes(results[1]) == hashes(run(recipe(steps=12), tmp_path / "csp", engine="plain"))
    for n in (2, 3):
        assert not violations(tmp_path / f"{n}")
        assert hashes(results[n]) == hashes(run(recipe(sync=f"bulk:{n}", steps=12), tmp_path / f"k{n}", engine="plain"))
    assert len({hashes(result) for result in results.values()}) == 3


@pytest.mark.parametrize("clip", ["none", "global:1.0"])
def test_a_plain_loop_over_bulks(clip: str, tmp_path: Path) -> None:
    made = recipe(sync="bulk:4", clip=clip)
    held = run(made, tmp_path / "run", workers=2)
    model, optimizer, _ = run_plain(made)
    assert sn.state_hash(model) == held["weights_sha256"]
    assert sn.state_hash(optimizer) == held["optimizer_sha256"]


def test_a_bulk_step_is_the_step_on_the_mean(tmp_path: Path) -> None:
    """Against torch alone: two subnets at the same weights, gradients added and halved."""
    made = recipe(sync="bulk:2", clip="none", steps=2, optimizer={"name": "sgd"}, micro_batches=1)
    model, by_hand = made.build_model(), made.build_model()
    optimizer = made.build_optimizer(model)
    total: dict[str, torch.Tensor] = {}
    for task in made.tasks(2):
        for held in (model, by_hand):
            with sn.keyed_rng(task, 0):
                x, y = task.micro_batches[0]
                loss = made.loss(held(x, arch=task.arch), y, task, 0)
                loss.backward()
            task.report(0, loss)
        for name, parameter in by_hand.named_parameters():
            if parameter.grad is not None:
                total[name] = total[name] + parameter.grad if name in total else parameter.grad.clone()
                parameter.grad = None
        task.set_lr(optimizer)
        task.clip_(model)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    trained = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in by_hand.named_parameters():
            if name in total:
                parameter.sub_(total[name] / 2 * made.lr_of(1))
            torch.testing.assert_close(trained[name], parameter)
    assert total


def test_a_bulk_is_resumed_and_stopped_between_steps(tmp_path: Path) -> None:
    made = recipe(sync="bulk:4", steps=24)
    whole = run(made, tmp_path / "whole", workers=2)
    run(made, tmp_path / "parts", workers=3, steps=8)
    run(made, tmp_path / "parts", engine="plain", steps=12, resume=True)
    result = run(made, tmp_path / "parts", workers=1, resume=True)
    assert hashes(result) == hashes(whole)
    assert not violations(tmp_path / "parts")


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    for bad in ("bulk", "bulk:0", "bulk:x", "asp", "asp:always", "CSP", ""):
        with pytest.raises(RecipeError, match=r"sync must be csp, bulk:K with K >= 1, bulk-per-worker, asp:stash"):
            recipe(sync=bad)
    with pytest.raises(RecipeError, match=r"clip = 'global:1.0' needs the norms of all layers .* use clip = 'layer:X'"):
        recipe(sync="asp:stash", clip="global:1.0")
    with pytest.raises(RecipeError, match=r"shared = 'delayed:2' goes with sync = 'csp'.*set shared = 'strict'"):
        recipe(sync="bulk:4", shared="delayed:2")
    with pytest.raises(RecipeError, match="can be simulated, but not run yet"):
        recipe(sync="asp:2bw", clip="none")
    with pytest.raises(UserError, match=r"each layer must stay with one worker; .*embed.* would be used by several"):
        run(recipe(sync="asp:stash", clip="none"), tmp_path / "run", workers=2)
    with pytest.raises(UserError, match=r"must be a multiple of 5, got 16; use --steps 15 or 20"):
        run(recipe(sync="bulk:5"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_with_as_many_workers_if_they_are_part_of_the_result(tmp_path: Path) -> None:
    made = recipe(sync="asp:stash", **CHAIN)
    run(made, tmp_path / "run", workers=2, steps=8)
    with pytest.raises(UserError, match=r"began with 2; go on with --workers 2"):
        run(made, tmp_path / "run", workers=3, steps=16, resume=True)
    run(made, tmp_path / "run", workers=2, steps=16, resume=True)
    assert not violations(tmp_path / "run")
