"""Recipes: loaded strictly; every mistake is told with its place, the value and what is legal."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import sennit as sn
from sennit.errors import RecipeError
from sennit.recipe import read_recipe
from sennit.supernet.lr import LrSchedule

GOOD = """
space = "net.py:Net"
data = "net.py:points"
batch_size = 8
steps = 20
"""

FULL = """
space = "net.py:Net"
space_args = { width = 8 }
data = "net.py:points"
data_args = { noise = 0.5 }
loss = "mse"
batch_size = 8
steps = 20
sampler = "fair"
seed = 5
micro_batches = 4
lr = { name = "cosine", base = 0.1, warmup = 3, final = 0.01 }
clip = "global:1.0"
shared = "delayed:3"
sync = "csp"
precision = "fp32"
threads = 2
feedback_lag = 4
allow_nondeterministic = true

[optimizer]
name = "adamw"
betas = [0.9, 0.98]
weight_decay = 0.1

[checkpoint]
every = 7
keep = 2

[evaluate]
every = 5
random = 2
archs = [{ "blocks.0" = 1 }]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(RecipeError) as caught:
        read_recipe(path)
    message = str(caught.value)
    assert message.startswith((f"{path}: ", f"{path} is", f"cannot read recipe {path}")), message
    assert len(message.splitlines()) <= 3
    return message


def test_defaults() -> None:
    recipe = sn.Recipe(space="s", data="d", batch_size=8, steps=20)
    assert (recipe.sampler, recipe.seed, recipe.micro_batches, recipe.lr) == ("uniform", 0, 1, 0.01)
    assert (recipe.clip, recipe.shared, recipe.sync, recipe.precision) == ("none", "strict", "csp", "fp32")
    assert (recipe.threads, recipe.feedback_lag, recipe.optimizer_name) == (1, 8, "sgd")
    assert recipe.checkpoint.every == 50 and recipe.evaluate.every == 0


def test_everything_is_read(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, FULL))
    assert recipe.loss_name == "mse" and recipe.space_args == {"width": 8} and recipe.sharing.lag == 3
    assert recipe.lr == LrSchedule(name="cosine", base=0.1, warmup=3, final=0.01)
    assert recipe.optimizer_name == "adamw"
    assert recipe.optimizer_arguments == {"betas": (0.9, 0.98), "weight_decay": 0.1}
    assert recipe.evaluate.archs == [{"blocks.0": 1}] and recipe.checkpoint.keep == 2
    assert recipe.base == str(tmp_path)
    assert sn.Recipe.from_dict(recipe.to_dict(), recipe.base) == recipe
    assert "base" not in recipe.to_dict() and "loss_name" not in recipe.to_dict()


# -- every key wrong once


FIELDS = [f.name for f in dataclasses.fields(sn.Recipe) if f.name != "base"]
KEYS = ["loss" if name == "loss_name" else name for name in FIELDS]


def line(key: str, value: str) -> str:
    """GOOD with `key = value` in place of what it says."""
    kept = [text for text in GOOD.splitlines() if not text.startswith(f"{key} =")]
    return "\n".join([*kept, f"{key} = {value}"])


@pytest.mark.parametrize("key", KEYS)
def test_a_misspelt_key_names_the_right_one(tmp_path: Path, key: str) -> None:
    wrong = f"{key}x"
    message = refused(tmp_path, GOOD + f"{wrong} = 1\n")
    assert f"unknown key '{wrong}' (= 1); did you mean '{key}'? Legal keys: space, data, batch_size" in message


@pytest.mark.parametrize("key", KEYS)
def test_a_value_of_the_wrong_type(tmp_path: Path, key: str) -> None:
    wrong = "[1]" if key not in ("space_args", "data_args", "optimizer", "checkpoint", "evaluate") else '"text"'
    message = refused(tmp_path, line(key, wrong))
    wanted = {"lr": "a number or a table", "allow_nondeterministic": "true or false"}
    wanted |= dict.fromkeys(
        ["batch_size", "steps", "seed", "micro_batches", "threads", "feedback_lag"], "a whole number"
    )
    wanted |= dict.fromkeys(["space_args", "data_args", "optimizer", "checkpoint", "evaluate"], "a table")
    got = "[1]: Expected {}, got a list" if wrong == "[1]" else "'text': Expected {}, got a string"
    assert f"{key} = {got.format(wanted.get(key, 'a string'))}" in message


@pytest.mark.parametrize("key", ["batch_size", "steps", "micro_batches", "threads", "feedback_lag", "seed"])
@pytest.mark.parametrize("value", ["1.5", "true", '"8"'])
def test_numbers_are_whole(tmp_path: Path, key: str, value: str) -> None:
    assert f"{key} = " in refused(tmp_path, line(key, value))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("batch_size", "0", "batch_size must be at least 1, got 0"),
        ("steps", "0", "steps must be at least 1, got 0"),
        ("micro_batches", "0", "micro_batches must be at least 1, got 0"),
        ("threads", "0", "threads must be at least 1, got 0"),
        ("feedback_lag", "0", "feedback_lag must be at least 1, got 0"),
        ("seed", "-1", "seed must be at least 0, got -1"),
        ("seed", "9223372036854775808", "seed must be below 2**63, got 9223372036854775808"),
        ("lr", "-0.1", "lr must be a number >= 0 or a schedule, got -0.1"),
        ("clip", "1.0", 'clip = 1.0: say which norm, clip = "global:1.0" for one over the whole subnet'),
        ("lr", "nan", "lr must be a number >= 0 or a schedule, got nan"),
        (
            "lr",
            '{ name = "step", base = 0.1 }',
            "lr.name = 'step': Invalid enum value 'step'; legal: constant, linear",
        ),
        ("lr", '{ name = "cosine" }', "lr = {'name': 'cosine'}: the table lacks `base`"),
        ("lr", '{ name = "cosine", base = -1.0 }', "base >= 0, warmup >= 0 and final >= 0 must hold"),
        ("clip", '"global"', "clip must be 'none', 'global:X' or 'layer:X' with X > 0, got 'global'"),
        (
            "shared",
            '"delayed:1"',
            "shared must be 'strict', 'delayed:K' with K >= 2, or 'frozen', got 'delayed:1'",
        ),
        ("sync", '"bsp"', "sync must be csp, bulk:K with K >= 1"),
        ("precision", '"fp16"', "precision must be one of fp32, tf32, bf16, got 'fp16'"),
        ("optimizer", '{ name = "lion" }', "optimizer.name must be one of adam, adamw, sgd, got 'lion'"),
        ("optimizer", "{ momentum = 0.9 }", "optimizer.name is missing"),
        ("optimizer", "{ name = 3 }", "optimizer.name is missing"),
        (
            "optimizer",
            '{ name = "sgd", betas = [1, 2] }',
            "optimizer.betas is not an argument of sgd; legal: dampening",
        ),
        (
            "optimizer",
            '{ name = "sgd", momentum = "0.9" }',
            "optimizer.momentum = '0.9' has the wrong type; a float",
        ),
        ("optimizer", '{ name = "sgd", nesterov = 1 }', "optimizer.nesterov = 1 has the wrong type; a bool"),
        ("optimizer", '{ name = "adam", betas = 0.9 }', "optimizer.betas = 0.9 has the wrong type; a list"),
        ("optimizer", '{ name = "adam", lr = 0.1 }', "optimizer.lr is not an argument of adam"),
        ("checkpoint", "{ every = 0 }", "[checkpoint] every must be at least 1, got 0"),
        ("checkpoint", "{ keep = 0 }", "[checkpoint] keep must be at least 1, got 0"),
        ("evaluate", "{ every = -1 }", "[evaluate] every must be at least 0, got -1"),
        ("evaluate", "{ samples = 0 }", "[evaluate] samples must be at least 1, got 0"),
    ],
)
def test_an_illegal_value(tmp_path: Path, key: str, value: str, said: str) -> None:
    assert said in refused(tmp_path, line(key, value))


@pytest.mark.parametrize(
    ("table", "value", "said"),
    [
        (
            "checkpoint",
            "evry = 3",
            "unknown key 'checkpoint.evry' (= 3); did you mean 'every'? Legal keys: every, keep",
        ),
        ("evaluate", "rando = 3", "unknown key 'evaluate.rando' (= 3); did you mean 'random'?"),
        ("checkpoint", "steps = 9", "unknown key 'checkpoint.steps' (= 9); 'steps' belongs above the first [table]"),
        ("optimizer", 'name = "adam"\nlr = 0.1', "optimizer.lr is not an argument of adam; legal: amsgrad, betas"),
        ("optimizer", 'name = "adam"\nlr = 0.1', ". lr is a key of the recipe itself, above the tables"),
        ("data_args", 'split = "valid"', "data_args.split = 'valid': a run calls its data set with split = 'train'"),
        (
            "lr",
            'name = "cosine"\nbase = 0.1\nwarm = 3',
            "unknown key 'lr.warm' (= 3); did you mean 'warmup'? Legal keys: name, base, warmup, final",
        ),
        (
            "checkpoint",
            'every = "often"',
            "checkpoint.every = 'often': Expected a whole number, got a string",
        ),
        ("evaluate", "archs = [1]", "evaluate.archs[0] = 1: Expected a table, got a whole number"),
        ("lr", 'name = "cosine"\nbase = "big"', "lr.base = 'big': Expected a number, got a string"),
    ],
)
def test_mistakes_inside_a_table_have_their_path(tmp_path: Path, table: str, value: str, said: str) -> None:
    assert said in refused(tmp_path, GOOD + f"[{table}]\n{value}\n")


@pytest.mark.parametrize("key", ["space", "data", "batch_size", "steps"])
def test_a_missing_key(tmp_path: Path, key: str) -> None:
    text = "\n".join(text for text in GOOD.splitlines() if not text.startswith(f"{key} ="))
    assert f"required key missing: {key}" in refused(tmp_path, text)
    assert "required keys missing: space, data, batch_size, steps" in refused(tmp_path, "seed = 1")


def test_keys_that_are_not_for_files(tmp_path: Path) -> None:
    assert "unknown key 'base'" in refused(tmp_path, GOOD + 'base = "/"\n')
    assert "unknown key 'loss_name'" in refused(tmp_path, GOOD + 'loss_name = "mse"\n')
    assert "unknown key 'xyzzy' (= 1). Legal keys: space" in refused(tmp_path, GOOD + "xyzzy = 1\n")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(RecipeError, match=rf"cannot read recipe {missing}: No such file or directory"):
        read_recipe(missing)
    with pytest.raises(RecipeError, match=r"Is a directory"):
        read_recipe(tmp_path)
    assert "is not valid TOML: " in refused(tmp_path, "space = \n")
    assert "(at line 2" in refused(tmp_path, 'space = "a"\nspace = "b"\n')
    (tmp_path / "recipe.toml").write_bytes(b"space = '\xff'")
    with pytest.raises(RecipeError, match=r"not UTF-8 text"):
        read_recipe(tmp_path / "recipe.toml")


# -- names that are found when they are needed


NET = """
import torch, sennit as sn
from torch import nn
class Net(sn.ModelSpace):
    def __init__(self, width=4):
        super().__init__()
        self.choice = sn.LayerChoice([nn.Linear(4, 2), [nn.Linear(4, width), nn.Linear(width, 2)]])
    def forward(self, x):
        return self.choice(x)
class Module(nn.Module): pass
def points(noise=0.0):
    return [(torch.ones(4) * i, i % 2) for i in range(20)]
def empty(): return []
broken = 3
"""


def built(folder: Path, **changes: Any) -> Any:
    (folder / "net.py").write_text(NET)
    given = {
        "space": "net.py:Net",
        "data": "net.py:points",
        "batch_size": 8,
        "steps": 20,
        "base": str(folder),
    }
    return sn.Recipe(**{**given, **changes}).built


def test_own_files_are_found_beside_the_recipe(tmp_path: Path) -> None:
    found = built(tmp_path, space_args={"width": 6}, data_args={"noise": 0.1})
    assert found.groups.by_name["choice.1"].names[0] == "choice.1.0.bias"
    assert found.batches[0][0].shape == (8, 4)


@pytest.mark.parametrize(
    ("changes", "part", "said"),
    [
        (
            {"space": "nett"},
            "skeleton",
            r"space = 'nett' is neither built in \(.*\) nor of the form 'file.py:Name'",
        ),
        ({"space": "no.py:Net"}, "skeleton", r"space = 'no.py:Net': there is no file .*no.py"),
        ({"space": "net.py:Nett"}, "skeleton", r"has no 'Nett'; did you mean 'Net'\? It defines .*Net"),
        ({"space": "net.py:Module"}, "skeleton", r"got a Module; .*: class Module\(sennit.ModelSpace\)"),
        ({"space": "net.py:broken"}, "skeleton", r"broken|not callable|does not take"),
        ({"space_args": {"depth": 3}}, "skeleton", r"does not take these space_args \{'depth': 3\}"),
        ({"data": "diggits"}, "batches", r"data = 'diggits' is neither built in"),
        ({"data_args": {"nois": 1}}, "batches", r"does not take these data_args \{'nois': 1\}"),
        ({"data": "net.py:empty"}, "batches", r"the data set is empty"),
        (
            {"loss_name": "cros_entropy"},
            "loss_function",
            r"loss = 'cros_entropy' is neither built in \(cross_entropy",
        ),
        ({"loss_name": "net.py:nothing"}, "loss_function", r"has no 'nothing'"),
        ({"sampler": "unifrom"}, "sampler", r"sampler = 'unifrom' must be 'uniform', 'fair', a .json"),
        ({"sampler": "archs.json"}, "sampler", r"cannot read the arch file"),
    ],
)
def test_a_name_that_is_not_there(tmp_path: Path, changes: Any, part: str, said: str) -> None:
    from sennit.errors import UserError

    found = built(tmp_path, **changes)
    with pytest.raises(UserError, match=said):
        made = getattr(found, part)
        if callable(made) and part == "sampler":
            made()


def test_a_file_that_fails_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ny = 1 / 0\n")
    with pytest.raises(RecipeError, match=r"space: .*bad.py:2 failed when loaded: ZeroDivisionError"):
        built(tmp_path, space="bad.py:Net").skeleton  # noqa: B018
    (tmp_path / "worse.py").write_text("x = (\n")
    with pytest.raises(RecipeError, match=r"worse.py.* failed when loaded: SyntaxError"):
        built(tmp_path, space="worse.py:Net").skeleton  # noqa: B018


# -- identity and process


def identity(**changes: Any) -> str:
    return sn.Recipe(**{"space": "s", "data": "d", "batch_size": 8, "steps": 20, **changes}).identity()


def test_identity_is_what_decides_the_bits(tmp_path: Path) -> None:
    from sennit.recipe import CheckpointRule, EvaluateRule

    same: list[dict[str, Any]] = [
        {"steps": 21},
        {"base": str(tmp_path)},
        {"checkpoint": CheckpointRule(every=3, keep=1)},
        {"evaluate": EvaluateRule(every=3)},
    ]
    assert {identity(**changes) for changes in same} == {identity()}
    others: list[dict[str, Any]] = [
        {"space": "t"}, {"data": "e"}, {"batch_size": 9}, {"loss_name": "mse"}, {"sampler": "fair"},
        {"seed": 1}, {"micro_batches": 2}, {"lr": 0.02}, {"clip": "global:1"}, {"shared": "frozen"},
        {"precision": "bf16"}, {"threads": 2}, {"feedback_lag": 4}, {"allow_nondeterministic": True},
        {"space_args": {"a": 1}}, {"data_args": {"a": 1}}, {"optimizer": {"name": "adam"}},
    ]  # fmt: skip
    assert len({identity(), *(identity(**changes) for changes in others)}) == len(others) + 1
    named = {next(iter(changes)) for changes in [*same, *others]}
    assert named == {f.name for f in dataclasses.fields(sn.Recipe)} - {"sync"}, "a new field needs a decision here"


def test_steps_count_where_a_schedule_runs_over_them() -> None:
    for name, counts in (("linear", True), ("cosine", True), ("constant", False), ("inverse_sqrt", False)):
        lr = LrSchedule(name=name, base=0.1)  # type: ignore[arg-type]
        assert (identity(lr=lr) != identity(lr=lr, steps=21)) == counts


def test_identity_survives_writing_and_reading(tmp_path: Path) -> None:
    recipe = read_recipe(write(tmp_path, FULL))
    assert sn.Recipe.from_dict(recipe.to_dict(), "/elsewhere").identity() == recipe.identity()
    integers = read_recipe(write(tmp_path, GOOD + "lr = 1\n"))
    assert integers.identity() == read_recipe(write(tmp_path, GOOD + "lr = 1.0\n")).identity()


def test_loading_sets_threads_and_kernels(tmp_path: Path) -> None:
    sn.load_recipe(write(tmp_path, GOOD + "threads = 2\nprecision = 'tf32'\nallow_nondeterministic = true\n"))
    assert torch.get_num_threads() == 2 and torch.backends.cuda.matmul.allow_tf32
    assert not torch.are_deterministic_algorithms_enabled()
    sn.load_recipe(write(tmp_path, GOOD))
    assert torch.get_num_threads() == 1 and not torch.backends.cuda.matmul.allow_tf32
    assert torch.are_deterministic_algorithms_enabled() and "CUBLAS_WORKSPACE_CONFIG" in os.environ


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workers": 0}, "--workers must be at least 1, got 0"),
        ({"device": "tpu"}, "--device must be cpu, cuda or virtual, got 'tpu'"),
        ({"in_flight": -1}, "--in-flight must be at least 0"),
        ({"loaders": -1}, "--loaders must be at least 0"),
        ({"prefetch": 0}, "--prefetch must be at least 1"),
    ],
)
def test_placements_that_cannot_be(changes: Any, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        sn.Placement(**changes)
