"""An exported folder is a network that plain PyTorch loads, with the metrics that were reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from explore_recipes import train
from torch import nn

import sennit as sn
from sennit.errors import RunError, UserError
from sennit.explore import export as export_module
from sennit.explore.evaluate import Evaluation, Evaluator
from sennit.explore.export import export, same_bits
from sennit.explore.retrain import alone, retrain
from sennit.explore.search import search
from sennit.explore.traced import load, trace
from sennit.recipe import Recipe

Make = Callable[..., Recipe]
ARCH = {"blocks.0": 1, "blocks.1": 0, "blocks.2": 1, "blocks.3": 2}
FEW = Evaluation(samples=50, recalibrate=2)

WITHOUT_SENNIT = """
import json, os, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "sennit":
            raise ImportError("sennit is not there")
sys.meta_path.insert(0, Blocked())
import torch
from safetensors.torch import load_file
found = {}
for folder in sys.argv[1:]:
    os.chdir(folder)
    facts = json.load(open("arch.json"))
    right = of = 0
    for x, y in torch.load("../batches.pt"):
        scope = {"x": x}
        exec("\\n".join(facts["load"]), scope)  # as a user would type it
        right += int((scope["y"].argmax(1) == y).sum())
        of += len(y)
    network = scope["network"]
    same = True
    for name, tensor in load_file("weights.safetensors").items():
        same = same and torch.equal(network.state_dict()[name], tensor)
    found[folder] = {"accuracy": right / of, "same": same, "sennit": "sennit" in sys.modules}
print(json.dumps(found))
"""


@pytest.mark.slow
def test_the_reported_accuracy_is_that_of_the_folder_without_sennit(
    recipe: Recipe, trained: Any, tmp_path: Path
) -> None:
    result = search(recipe, trained, tmp_path / "search", budget=4, strategy="random")
    before = sn.state_hash(trained)
    for trial in result.trials[:2]:
        done = export(recipe, trained, trial.arch, tmp_path / str(trial.number), metrics=trial.metrics)
        assert done.metrics == trial.metrics
        assert done.note is None
    assert sn.state_hash(trained) == before
    torch.save(Evaluator(recipe).batches, tmp_path / "batches.pt")
    folders = [str(tmp_path / str(n)) for n in (0, 1)]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    output = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_SENNIT, *folders],
        env=env, check=True, capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip
    for n, seen in enumerate(json.loads(output).values()):
        assert seen == {"accuracy": result.trials[n].metrics["accuracy"], "same": True, "sennit": False}


def test_what_the_folder_holds(recipe: Recipe, trained: Any, tmp_path: Path) -> None:
    done = export(recipe, trained, {**ARCH}, tmp_path / "net", evaluation=FEW)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net"]
    assert sorted(p.name for p in done.folder.iterdir()) == [
        "arch.json",
        "network.pt2",
        "weights.safetensors",
    ]
    facts = json.loads((done.folder / "arch.json").read_text())
    assert facts["arch"] == ARCH
    assert facts["metrics"] == done.metrics
    assert facts["recipe"] == recipe.identity()
    assert facts["weights"] == "inherited"
    assert facts["inputs"] == [{"name": "x", "dtype": "float32", "shape": [None, 64]}]
    assert facts["evaluation"] == {
        "split": "valid",
        "samples": 50,
        "batch_size": 20,
        "recalibrate": 2,
        "score": True,
    }
    tensors = safetensors.torch.load_file(done.folder / "weights.safetensors")
    network = Evaluator(recipe, FEW).prepared(trained, ARCH)
    assert tensors.keys() == network.state_dict().keys()
    assert all(same_bits(tensors[name], t) for name, t in network.state_dict().items())
    program = (done.folder / "network.pt2").read_bytes()
    assert str(Path(__file__).parent).encode() not in program


@pytest.mark.parametrize("space", ["Winding", "TiedConv"])
def test_winding_networks(make: Make, tmp_path: Path, space: str) -> None:
    recipe = make(space)
    model: Any = recipe.build_model()
    for i, arch in enumerate(model.structure.covering()[1:3]):
        done = export(recipe, model, arch, tmp_path / str(i), evaluation=FEW)
        assert done.note is None
        names = safetensors.torch.load_file(done.folder / "weights.safetensors").keys()
        assert {"first.weight", "one.weight"} & set(names)
        assert not {"second.weight", "two.weight"} & set(names)  # tied: one name


@pytest.mark.parametrize("space", ["Net", "Winding"])
def test_a_last_batch_of_one_row(make: Make, tmp_path: Path, space: str) -> None:
    recipe = make(space)
    model: Any = recipe.build_model()
    rule = Evaluation(batch_size=37, recalibrate=2)  # 75 samples: 37, 37, 1
    done = export(recipe, model, model.structure.default(), tmp_path / "net", evaluation=rule)
    assert done.note is None
    loaded = load(done.folder / "network.pt2")
    with torch.no_grad():
        assert loaded(torch.zeros(1, 64)).shape == (1, 10)


def test_lengths_vary_where_the_held_out_batches_do(make: Make, tmp_path: Path) -> None:
    recipe = make("Pair", "Sentences", loss_name="token_cross_entropy", batch_size=4)
    done = export(recipe, recipe.build_model(), {"mix": 0}, tmp_path / "net")
    facts = json.loads((done.folder / "arch.json").read_text())
    assert facts["inputs"] == [
        {"name": "source", "dtype": "int64", "shape": [None, None]},
        {"name": "target", "dtype": "int64", "shape": [None, None]},
    ]
    assert done.note is None


def test_a_batch_size_that_cannot_vary_is_said(make: Make, tmp_path: Path) -> None:
    recipe = make("Stubborn")
    done = export(recipe, recipe.build_model(), {"head": 0}, tmp_path / "net", evaluation=FEW)
    assert done.note is not None
    assert done.note.startswith("the batch size is fixed at 20")
    assert done.note.endswith("compared on 2 of 3 held-out batches, those of the fixed size")
    facts = json.loads((done.folder / "arch.json").read_text())
    assert facts["inputs"] == [{"name": "x", "dtype": "float32", "shape": [20, 64]}]


def test_reduced_precision(make: Make, trained: Any, tmp_path: Path) -> None:
    recipe = make(precision="bf16")
    full = Evaluator(make(), FEW)
    done = export(recipe, trained, ARCH, tmp_path / "net", evaluation=FEW)
    assert done.metrics["loss"] != full.measure(full.prepared(trained, ARCH))["loss"]


def test_no_part_of_the_program_is_under_autocast(make: Make, trained: Any) -> None:
    """torch 2.11 writes such parts and cannot read them."""
    evaluator = Evaluator(make(precision="bf16"), FEW)
    traced = trace(evaluator.prepared(trained, ARCH), [x for x, _ in evaluator.batches])
    called = [str(n.target) for n in traced.program.graph.nodes if n.op == "call_function"]
    assert not [name for name in called if "autocast" in name]
    assert "aten._to_copy.default" in called
    assert traced.note is None


def test_a_score_is_compared_too(make: Make, trained: Any, tmp_path: Path) -> None:
    done = export(make(data="Scored"), trained, ARCH, tmp_path / "net", evaluation=FEW)
    assert done.metrics["margin"] > 0
    assert done.note is None


def test_other_metrics_than_reported_are_an_error(recipe: Recipe, trained: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"measures otherwise than it was reported with: accuracy 2\.0, here 0"):
        export(recipe, trained, ARCH, tmp_path / "net", evaluation=FEW, metrics={"accuracy": 2.0})
    assert list(tmp_path.iterdir()) == []


def test_a_program_with_other_bits_is_an_error(
    recipe: Recipe, trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(path: Path) -> nn.Module:
        module = load(path)
        with torch.no_grad():
            weight = dict(module.named_parameters())["head.weight"]
            weight.view(torch.int32)[0, 0] ^= 1  # the last bit of one weight
        return module

    monkeypatch.setattr(export_module, "load", spoilt)
    with pytest.raises(RunError, match="gives other bits than the network on held-out batch 0"):
        export(recipe, trained, ARCH, tmp_path / "net", evaluation=FEW)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder(make: Make, tmp_path: Path) -> None:
    recipe = make("Small")
    model = recipe.build_model()
    export(recipe, model, {"a": 0, "b": 0}, tmp_path / "net", evaluation=FEW)
    with pytest.raises(UserError, match="exists already"):
        export(recipe, model, {"a": 1, "b": 0}, tmp_path / "net", evaluation=FEW)
    export(recipe, model, {"a": 1, "b": 0}, tmp_path / "net", evaluation=FEW, overwrite=True)
    assert json.loads((tmp_path / "net" / "arch.json").read_text())["arch"] == {"a": 1, "b": 0}
    assert [p.name for p in tmp_path.iterdir()] == ["net"]


# -- retraining


def test_retrain_is_the_plain_loop_of_one_arch(make: Make, tmp_path: Path) -> None:
    recipe = make(steps=5)
    (tmp_path / "archs.json").write_text(json.dumps([ARCH]))
    by_file = replace(recipe, sampler=str(tmp_path / "archs.json"), seed=11)
    done = retrain(recipe, ARCH, seed=11)
    assert sn.state_hash(done.model) == sn.state_hash(train(by_file))
    assert len(done.losses) == 5
    again = retrain(recipe, ARCH, seed=11)
    assert again.losses == done.losses
    assert again.recipe.identity() == done.recipe.identity()
    other = retrain(recipe, ARCH, seed=12)
    assert other.losses != done.losses
    assert other.recipe.identity() != done.recipe.identity()


def test_retrain_overrides_and_export(make: Make, tmp_path: Path) -> None:
    recipe = make(steps=3, shared="frozen")
    seen: list[int] = []
    done = retrain(recipe, ARCH, seed=1, epochs=2, lr=0.01, on_step=lambda step, loss: seen.append(step))
    assert seen == list(range(20))  # 200 samples in batches of 20, twice
    assert done.recipe.lr == 0.01
    assert done.losses[-1] < done.losses[0]
    kept = Evaluation(recalibrate=0)
    exported = export(recipe, done.model, ARCH, tmp_path / "net", evaluation=kept, weights="retrained")
    assert json.loads((exported.folder / "arch.json").read_text())["weights"] == "retrained"


def test_retrain_refuses(make: Make) -> None:
    recipe = make()
    with pytest.raises(UserError, match="either steps or epochs"):
        alone(recipe, ARCH, seed=0, steps=3, epochs=1)
    with pytest.raises(UserError, match="epochs must be above 0"):
        alone(recipe, ARCH, seed=0, epochs=0)
    with pytest.raises(UserError, match="no choice 'nowhere'"):
        alone(recipe, {"nowhere": 1}, seed=0)
    with pytest.raises(RunError, match="the loss of step 1 is"):
        retrain(recipe, ARCH, seed=0, lr=1e30)
