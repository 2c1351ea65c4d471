"""Evaluation: keyed, repeatable, and without a trace in the supernet or the process."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn
from sennit.errors import UserError
from sennit.explore.during import due, evaluate_now
from sennit.explore.evaluate import Evaluation, Evaluator, evaluate
from sennit.explore.metrics import Objective
from sennit.recipe import EvaluateRule, Recipe

Make = Callable[..., Recipe]
ARCH = {"blocks.0": 1, "blocks.1": 0, "blocks.2": 1, "blocks.3": 2}


def process_state() -> Any:
    """Everything of the process that an evaluation could change."""
    return (
        torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state()),
        torch.are_deterministic_algorithms_enabled(), torch.backends.mha.get_fastpath_enabled(),
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32,
        torch.backends.cuda.matmul.allow_tf32, torch.utils.deterministic.fill_uninitialized_memory,
        torch.is_grad_enabled(), torch.get_num_threads(), torch.get_default_dtype(),
    )  # fmt: skip


def model_state(model: nn.Module) -> Any:
    modes = [m.training for m in model.modules()]
    momenta = [m.momentum for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    versions = [t._version for t in [*model.parameters(), *model.buffers()]]
    grads = [p.grad is None for p in model.parameters()]
    return sn.state_hash(model), modes, momenta, versions, grads


def test_metrics_are_those_of_a_plain_loop(recipe: Recipe, trained: Any) -> None:
    rule = Evaluation(batch_size=30)
    evaluator = Evaluator(recipe, rule)
    metrics = evaluate(recipe, trained, ARCH, rule)
    network = evaluator.prepared(trained, ARCH)
    data = recipe.built.dataset("valid")
    with torch.no_grad():
        outputs = [network(data.x[i : i + 30]) for i in range(0, len(data), 30)]
    logits = torch.cat(outputs)
    assert metrics["accuracy"] == int((logits.argmax(1) == data.y).sum()) / len(data)
    assert metrics["loss"] == pytest.approx(float(F.cross_entropy(logits, data.y)), rel=1e-5)
    assert metrics["parameters"] == sum(p.numel() for p in network.parameters())


def test_repeatable_whatever_the_generators_say(recipe: Recipe, trained: Any) -> None:
    """Re-estimation runs dropout: its draws are keyed."""
    first = evaluate(recipe, trained, ARCH)
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)
    assert evaluate(recipe, trained, ARCH) == first
    assert Evaluator(recipe).evaluate(trained, ARCH) == first


def test_leaves_model_and_process_alone(recipe: Recipe, trained: Any) -> None:
    torch.backends.mha.set_fastpath_enabled(True)  # flags of the process may differ from the recipe's
    before = model_state(trained), process_state()
    Evaluator(recipe).evaluate(trained, ARCH)
    assert (model_state(trained), process_state()) == before


def test_recalibration_is_the_average_over_training_batches(recipe: Recipe, trained: Any) -> None:
    evaluator = Evaluator(recipe, Evaluation(recalibrate=3))
    network: Any = evaluator.freeze(trained, {**ARCH, "blocks.1": 3, "blocks.2": 3, "blocks.3": 3})
    unit = network.blocks.get_submodule("0.1")
    seen: list[Tensor] = []
    unit.norm.register_forward_pre_hook(lambda _, args: seen.append(args[0].transpose(0, 1).flatten(1)))
    evaluator.recalibrate(network)
    assert len(seen) == 3
    torch.testing.assert_close(unit.norm.running_mean, torch.stack([s.mean(1) for s in seen]).mean(0))
    torch.testing.assert_close(unit.norm.running_var, torch.stack([s.var(1) for s in seen]).mean(0))
    assert unit.norm.momentum == 0.1
    assert not network.training
    kept = evaluator.freeze(trained, ARCH)
    Evaluator(recipe, Evaluation(recalibrate=0)).recalibrate(kept)
    assert all(torch.equal(b, dict(trained.named_buffers())[n]) for n, b in kept.named_buffers())


def test_recalibration_mends_wrong_statistics(recipe: Recipe, trained: Any) -> None:
    model = copy.deepcopy(trained)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.sub_(50.0)
    spoilt = evaluate(recipe, model, ARCH, Evaluation(recalibrate=0))
    assert evaluate(recipe, model, ARCH) == evaluate(recipe, trained, ARCH)
    assert spoilt["loss"] > evaluate(recipe, trained, ARCH)["loss"]


def test_never_consumes_the_training_stream(make: Make) -> None:
    def losses(look: bool) -> list[float]:
        recipe = make(steps=6, evaluate=EvaluateRule(every=2, random=2, samples=30))
        model: Any = recipe.build_model()
        optimizer = recipe.build_optimizer(model)
        found = []
        for task in recipe.tasks():
            ((x, y),) = task.micro_batches
            with sn.keyed_rng(task, 0):
                loss = recipe.loss(model(x, arch=task.arch), y, task, 0)
                loss.backward()
            task.report(0, loss)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            found.append(task.loss)
            if look and due(recipe, task.seq_id):
                evaluate_now(recipe, model, task.seq_id)
        return [*found, sn.state_hash(model), sn.state_hash(optimizer)]  # type: ignore[list-item]

    assert losses(look=True) == losses(look=False)


def test_evaluate_now(make: Make, trained: Any) -> None:
    recipe = make(evaluate=EvaluateRule(every=10, random=3, archs=[ARCH], samples=40))
    before = model_state(trained), process_state()
    result = evaluate_now(recipe, trained, 9)
    assert (model_state(trained), process_state()) == before
    assert result == evaluate_now(recipe, trained, 9)
    assert result["metric"] == "accuracy"
    assert result["scores"][0]["arch"] == ARCH
    values = [s["metrics"]["accuracy"] for s in result["scores"]]
    assert len(values) == 4
    assert result["best"] == max(values)
    assert result["mean"] == sum(values) / 4
    later = evaluate_now(recipe, trained, 19)
    assert [s["arch"] for s in later["scores"]][1:] != [s["arch"] for s in result["scores"]][1:]
    assert [due(recipe, i) for i in (0, 8, 9, 10, 19)] == [False, False, True, False, True]
    assert not due(make(), 9)


def test_held_out_samples_each_once(make: Make) -> None:
    evaluator = Evaluator(make(), Evaluation(samples=31, batch_size=8))
    rows = torch.cat([x for x, _ in evaluator.batches])
    assert [len(y) for _, y in evaluator.batches] == [8, 8, 8, 7]
    assert len(rows.unique(dim=0)) == 31
    everything = Evaluator(make(), Evaluation(batch_size=40)).batches
    assert torch.equal(torch.cat([x for x, _ in everything]), make().built.dataset("valid").x)
    longer = Evaluator(make(), Evaluation(samples=10_000)).batches
    assert sum(len(y) for _, y in longer) == 75


def test_data_sets_with_batches_of_their_own(make: Make) -> None:
    recipe = make("Pair", "Sentences", loss_name="token_cross_entropy", batch_size=4)
    evaluator = Evaluator(recipe)
    assert sum(len(y) for _, y in evaluator.batches) == 26
    assert len({(x["source"].shape[1], x["target"].shape[1]) for x, _ in evaluator.batches}) == 6
    metrics = evaluator.evaluate(recipe.build_model(), {"mix": 0})  # type: ignore[arg-type]
    assert 0 <= metrics["accuracy"] <= 1


def test_the_data_set_may_score(make: Make, trained: Any) -> None:
    recipe = make(data="Scored")
    metrics = evaluate(recipe, trained, ARCH)
    assert metrics["margin"] > 0
    assert "margin" not in evaluate(recipe, trained, ARCH, Evaluation(score=False))
    assert Objective.parse("margin", Evaluator(recipe).modes) == Objective("margin", "max")


def test_objectives() -> None:
    from sennit.explore.metrics import MODES

    assert Objective.parse("loss", MODES).mode == "min"
    assert Objective.parse("min:wer", MODES) == Objective("wer", "min")
    assert Objective("a", "max").rank({"a": float("nan")}) == float("inf")
    with pytest.raises(UserError, match="'wer': write 'max:NAME' or 'min:NAME'"):
        Objective.parse("wer", MODES)
    with pytest.raises(UserError, match="objective 'bleu' was not measured"):
        Objective("bleu", "max").rank({"loss": 1.0})


def test_flops_count_attention_too(make: Make) -> None:
    """Worked out by hand: 8 tokens, width 16, 4 heads; 2 per multiply-add."""
    recipe = make(space_args={"depth": 1})
    model: Any = recipe.build_model()
    stem, head = 2 * 8 * 8 * 16, 2 * 16 * 10
    mlp = 2 * 8 * 16 * 32 * 2
    attention = 2 * 8 * 16 * 16 * 4 + 2 * 8 * 8 * 16 * 2
    conv = 2 * 8 * 16 * 16 * 3
    found = [evaluate(recipe, model, {"blocks.0": i})["flops"] for i in range(4)]
    assert [f - stem - head for f in found] == [mlp, conv, attention, 0]


def test_bad_input(make: Make, trained: Any) -> None:
    with pytest.raises(UserError, match="recalibrate must be at least 0, got -1"):
        Evaluation(recalibrate=-1)
    with pytest.raises(UserError, match="ModelSpace is needed"):
        evaluate(make(), nn.Linear(2, 2), {})
    with pytest.raises(UserError, match="threads = 1, but torch uses 2"):
        evaluate(on_two_threads(make), trained, ARCH)


def on_two_threads(make: Make) -> Recipe:
    recipe = make()  # sets one thread
    torch.set_num_threads(2)
    return recipe
