"""Bad input and bad luck: a clear message, the right exit code, nothing lost, nothing left behind.

Each case runs the command in a process of its own, as a user would.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.hostile_runs import Running, is_free, sennit, subnets, write_recipe


@dataclass(frozen=True)
class Case:
    """A recipe or command line that must be refused before anything is written."""

    name: str
    words: tuple[str, ...]
    recipe: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()


NAN = {"name": "sgd", "momentum": float("nan")}
DIGITS = {"space": "digits", "data": "digits"}

REFUSED = [
    Case("unknown key", ("'micro_batch'", "= 2", "did you mean 'micro_batches'"), {"micro_batch": 2}),
    Case("wrong type", ("steps", "'ten'", "whole number"), {"steps": "ten"}),
    Case("impossible value", ("micro_batches", "at least 1", "0"), {"micro_batches": 0}),
    Case("unknown space", ("space", "'digitz'", "file.py:Name"), {"space": "digitz"}),
    Case(
        "no such argument of a space",
        ("'widht'", "= 64", "did you mean 'width'"),
        DIGITS | {"space_args": {"widht": 64}},
    ),
    Case(
        "an argument's type", ("space_args width", "'big'", "whole number"), {**DIGITS, "space_args": {"width": "big"}}
    ),
    Case(
        "an argument out of range", ("space_args dropout", "0 to 1", "3.0"), {**DIGITS, "space_args": {"dropout": 3.0}}
    ),
    Case(
        "a batch above the data", ("batch_size = 2,000,000", "has 1,197", "at most"), {**DIGITS, "batch_size": 2000000}
    ),
    Case(
        "a batch above the data, plain",
        ("batch_size = 2,000,000", "has 1,197"),
        {**DIGITS, "batch_size": 2000000},
        ("--engine", "plain"),
    ),
    Case("data's argument out of range", ("data_args limit", "0"), {**DIGITS, "data_args": {"limit": 0}}),
    Case("no such class", ("'hostile.py:Nett'", "has no 'Nett'"), {"space": "hostile.py:Nett"}),
    Case(
        "candidate with a wrong shape",
        ("'blocks.1'", "1 returns float32[4, 9]", "every candidate"),
        {"space": "hostile.py:WrongShape"},
    ),
    Case("numbers inside a tensor", ("hostile.py:", "item", "torch.where"), {"space": "hostile.py:LooksInside"}),
    Case(
        "in-place on the input",
        ("hostile.py:", "modifies a tensor", "x = x + y"),
        {"space": "hostile.py:InPlace"},
    ),
    Case("no initial value", ("'scale'", "reset_parameters"), {"space": "hostile.py:Uninitialised"}),
    Case("batch below M", ("8", "micro_batches = 9", "raise batch_size"), {"micro_batches": 9}),
    Case(
        "no deterministic kernel",
        ("'blocks.1.1'", "put_", "allow_nondeterministic = true"),
        {"space": "hostile.py:Nondeterministic"},
    ),
    Case("data that raises", ("hostile.py:", "LookupError", "has gone"), {"data": "hostile.py:Broken"}),
    Case(
        "data of another type",
        ("'blocks.0.0'", "float64", "x.float()"),
        {"data": "hostile.py:Doubles"},
    ),
    Case(
        "classes that the head lacks",
        ("from", "to 4", "4 classes", "make the head wider"),
        {"data": "hostile.py:FiveClasses"},
    ),
    Case(
        "a target that the loss would repeat",
        ("mse", "float32[4, 4]", "float32[4]", "squeeze"),
        {"data": "hostile.py:Numbers", "loss": "mse"},
    ),
    Case(
        "numbers where classes are wanted",
        ("cross_entropy", "float32[4]", "whole numbers"),
        {"data": "hostile.py:Numbers"},
    ),
    Case(
        "a forward that writes into its weight",
        ("'blocks.1.1'", "writes into its own parameter", "keep what forward changes in a buffer"),
        {"space": "hostile.py:Decays"},
    ),
    Case(
        "a forward that clamps its weight",
        ("'blocks.1.1'", "writes into its own parameter", "self.weight.clamp"),
        {"space": "hostile.py:Clamps"},
    ),
    Case(
        "state kept in Python",
        ("'blocks.1.1'", "another output when it is run again", "register_buffer", "allow_nondeterministic = true"),
        {"space": "hostile.py:Counts"},
    ),
    Case(
        "a generator of its own",
        ("'blocks.1.1'", "generator of its own", "torch.randn"),
        {"space": "hostile.py:OwnDraws"},
    ),
    Case(
        "a forward that is replaced",
        ("'forward' of Linear at 'blocks.1.1'", "hostile.py:", "Derive a class, or wrap"),
        {"space": "hostile.py:Replaced"},
    ),
    Case(
        "a forward that is replaced, in the loop",
        ("'forward' of Linear at 'blocks.1.1'", "hostile.py:", "Derive a class, or wrap"),
        {"space": "hostile.py:Replaced"},
        ("--engine", "plain"),
    ),
    Case(
        "a hook that keeps hold of the space",
        ("'blocks.1.1'", "a tensor without memory", "calls the modules it was made with"),
        {"space": "hostile.py:HookedOnSelf"},
    ),
    Case("a layer in eval mode", ("'norm': put into eval mode", "F.batch_norm"), {"space": "hostile.py:Still"}),
    Case("a layer without a size", ("LazyLinear", "nn.Linear(8, 4)"), {"space": "hostile.py:Lazy"}),
    Case(
        "nothing to train",
        ("nothing would be trained", "shared = 'frozen'", "shared = 'strict'"),
        {"space": "hostile.py:AllShared", "shared": "frozen"},
    ),
    Case(
        "a loss that is cut off",
        ("does not depend on what the network gives", "detach()"),
        {"loss": "hostile.py:cut_off"},
    ),
    Case(
        "data that changes its samples",
        ("another batch 0 when it is loaded again", "return copies"),
        {"data": "hostile.py:Wears"},
    ),
    Case(
        "data of varying length",
        ("do not make a batch", "equal size", "collate(samples)"),
        {"data": "hostile.py:Ragged"},
    ),
    Case("an infinite rate", ("lr must be a number >= 0", "inf"), {"lr": float("inf")}),
    Case(
        "an infinite argument",
        ("optimizer must hold finite numbers", "nan"),
        {"optimizer": {"name": "sgd", "momentum": float("nan")}},
    ),
    Case("user code that exits", ("hostile.py:", "sys.exit(0)", "raise an error"), {"space": "hostile.py:Exits"}),
    Case("more workers than blocks", ("--workers 9", "only 4 blocks", "at most 4"), options=("--workers", "9")),
    Case("no workers", ("--workers", "at least 1", "0"), options=("--workers", "0")),
    Case(
        "bad plan",
        ("plan.json", "3 workers need 2", "[1]"),
        options=("--workers", "3", "--plan", "plan.json"),
    ),
    Case("no GPU", ("--device cuda", "torch sees none", "--device cpu"), options=("--device", "cuda")),
    Case("no plan", ("none.json", "No such file"), options=("--workers", "2", "--plan", "none.json")),
    Case(
        "in flight above the lag",
        ("--in-flight 5", "feedback_lag = 4", "raise feedback_lag"),
        {"sampler": "hostile.py:learner", "feedback_lag": 4},
        ("--in-flight", "5"),
    ),
    Case(
        "pipeline option for the loop",
        ("--in-flight 2", "--engine"),
        options=("--engine", "plain", "--in-flight", "2"),
    ),
    Case("unknown flag", ("--worker", "--help"), options=("--worker", "2")),
    Case("not a number", ("--steps", "'many'"), options=("--steps", "many")),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused_before_anything_is_written(tmp_path: Path, case: Case) -> None:
    write_recipe(tmp_path, **case.recipe)
    no_gpu = {"CUDA_VISIBLE_DEVICES": ""}
    (tmp_path / "plan.json").write_text('{"format": "sennit.cuts/1", "cuts": [[1]]}')
    before = sorted(tmp_path.iterdir())
    sennit(tmp_path, "train", "r.toml", "--out", "out", *case.options, **no_gpu).refused(2, *case.words)
    assert [p for p in sorted(tmp_path.iterdir()) if p.name != "__pycache__"] == before


def test_default_folder_of_a_refused_run_is_not_left(tmp_path: Path) -> None:
    write_recipe(tmp_path)
    sennit(tmp_path, "train", "r.toml", "--workers", "9").refused(2, "only 4 blocks")
    assert not (tmp_path / "runs").exists()


def test_missing_recipe_names_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    write_recipe(tmp_path / "recipes", "digits.toml")
    sennit(tmp_path, "train", "digit").refused(2, "cannot read recipe digit", "did you mean 'digits'")


def test_bad_toml_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('space = "digits\nsteps = 3')
    sennit(tmp_path, "train", "r.toml").refused(2, "r.toml is not valid TOML", "line 1")


def test_json_errors_are_one_object(tmp_path: Path) -> None:
    write_recipe(tmp_path, steps="ten")
    for words in (("train", "r.toml", "--json"), ("train", "--flag", "--json"), ("--json",)):
        done = sennit(tmp_path, *words)
        done.refused(2)
        said = json.loads(done.out)
        assert said["kind"] == "input" and said["exit"] == 2 and said["error"]


# -- a run that is there


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe and its run in `out`: 60 subnets, checkpoints at 20, 40 and 60."""
    folder = tmp_path_factory.mktemp("trained")
    write_recipe(folder)
    done = sennit(folder, "train", "r.toml", "--out", "out", "--json")
    assert done.exit == 0, done.err
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_existing_out_without_resume(run: Path) -> None:
    before = (run / "out" / "result.json").read_bytes()
    sennit(run, "train", "r.toml", "--out", "out").refused(2, "--out out exists", "--resume")
    assert (run / "out" / "result.json").read_bytes() == before


def test_flipped_byte_in_a_checkpoint(run: Path) -> None:
    weights = run / "out" / "checkpoints" / "00000060" / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    command = ("train", "r.toml", "--out", "out", "--resume")
    done = sennit(run, *command)
    done.refused(2, "00000060", "weights.safetensors", "checkpoints/00000040", "rm -r")
    (remove,) = [line for line in done.err.splitlines() if "rm -r" in line]
    shutil.rmtree(run / remove.partition("rm -r ")[2])  # what the message says to do
    assert sennit(run, *command).exit == 0


def test_foreign_checkpoint(run: Path) -> None:
    write_recipe(run, lr=0.06)
    done = sennit(run, "train", "r.toml", "--out", "out", "--resume", "--steps", "70")
    done.refused(2, "00000060", "another recipe", "lr = 0.05 there, 0.06 here")
    assert len(list((run / "out" / "checkpoints").iterdir())) == 3


def test_export_of_an_arch_that_is_none(run: Path) -> None:
    (run / "arch.json").write_text('{"blocks.0": 7, "blocks.1": 0}')
    sennit(run, "export", "out", "--arch", "arch.json", "--to", "e").refused(2, "blocks.0", "7", "legal: 0, 1")
    assert not (run / "e").exists()


def test_probe_that_is_not_there(run: Path) -> None:
    sennit(run, "train", "--replay", "out", "--probe", "no.py").refused(2, "--probe no.py", "no Python file")


def test_commands_on_a_folder_that_is_no_run(tmp_path: Path) -> None:
    for command in (("verify",), ("export", "--to", "e")):
        sennit(tmp_path, command[0], ".", *command[1:]).refused(2, "no run.json", "sennit train")


# -- while it runs


@pytest.mark.parametrize("engine", ["plain", "pipeline"])
def test_nan_keeps_the_cut_before_it(tmp_path: Path, engine: str) -> None:
    write_recipe(tmp_path, loss="hostile.py:nan_from_30")
    workers = () if engine == "plain" else ("--workers", "2", "--in-flight", "1")
    done = sennit(tmp_path, "train", "r.toml", "--out", "out", "--engine", engine, *workers)
    done.refused(1, "loss of subnet", "is nan", "checkpoints/000000", "Lower lr")
    named = done.err.partition("checkpoints/")[2][:8]
    assert (tmp_path / "out" / "checkpoints" / named / "state.json").is_file()
    assert is_free(tmp_path / "out")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_worker_that_raises(tmp_path: Path, workers: str) -> None:
    write_recipe(tmp_path, space="hostile.py:Fails", micro_batches=4)
    words = ("ZeroDivisionError", "third time unlucky", "subnet 0, micro-batch 2", "'fails'", "hostile.py:")
    done = sennit(tmp_path, "train", "r.toml", "--out", "out", "--workers", workers)
    done.refused(1, "worker", "all workers were stopped", *words)
    assert is_free(tmp_path / "out")


@pytest.mark.parametrize("options", [("--engine", "plain"), ("--workers", "2")])
def test_what_init_changes_beside_tensors_is_refused_by_all_engines(tmp_path: Path, options: tuple[str, ...]) -> None:
    """The plain loop trained with it, and the pipeline without."""
    write_recipe(tmp_path, space="hostile.py:HookedByInit")
    words = ("the hooks of Linear at 'blocks.1.1' changed", "Set it in __init__")
    sennit(tmp_path, "train", "r.toml", "--out", "out", *options).refused(2, *words)


def test_module_that_raises_in_the_loop(tmp_path: Path) -> None:
    write_recipe(tmp_path, space="hostile.py:Fails", micro_batches=4)
    done = sennit(tmp_path, "train", "r.toml", "--out", "out", "--engine", "plain")
    done.refused(1, "hostile.py:", "ZeroDivisionError", "third time unlucky")


@pytest.mark.slow
def test_run_folder_in_use(tmp_path: Path) -> None:
    write_recipe(tmp_path, space="hostile.py:SlowNet", steps=100000)
    first = Running(tmp_path, "train", "r.toml", "--out", "out")
    first.until(lambda: subnets(tmp_path / "out") > 3)
    sennit(tmp_path, "train", "r.toml", "--out", "out", "--resume").refused(2, "in use", f"process {first.process.pid}")
    first.process.terminate()
    first.wait().refused(130, "stopped after", "--resume")
    assert is_free(tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "launcher"])
def test_killed_process_takes_all_along(tmp_path: Path, victim: str) -> None:
    write_recipe(tmp_path, space="hostile.py:SlowNet", steps=100000)
    run = Running(tmp_path, "train", "r.toml", "--out", "out", "--workers", "3", "--loaders", "1")
    run.until(lambda: subnets(tmp_path / "out") > 25 and len(run.workers()) >= 4)
    os.kill(run.workers()[1] if victim == "worker" else run.process.pid, signal.SIGKILL)
    began = time.monotonic()
    while run.workers():
        assert time.monotonic() - began < 3, "all must stop within a second, here within three"
        time.sleep(0.01)
    done = run.wait()
    if victim == "worker":
        done.refused(1, "SIGKILL", "all workers were stopped", "checkpoints/000000", "--resume")
    assert not done.left and is_free(tmp_path / "out")


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_that_goes_on_to_the_same_hash(tmp_path: Path) -> None:
    write_recipe(tmp_path, space="hostile.py:SlowNet")
    command = ("train", "r.toml", "--json")
    whole = sennit(tmp_path, *command, "--out", "whole")
    run = Running(tmp_path, *command, "--out", "out", "--workers", "2")
    run.until(lambda: subnets(tmp_path / "out") > 7)
    run.process.send_signal(signal.SIGINT)
    done = run.wait()
    done.refused(130, "stopped after", "of 60 subnets", "--resume")
    assert json.loads(done.out)["kind"] == "interrupted"
    assert is_free(tmp_path / "out") and 7 < subnets(tmp_path / "out") < 60
    rest = sennit(tmp_path, *command, "--out", "out", "--workers", "3", "--resume")
    keys = ("weights_sha256", "optimizer_sha256", "losses_sha256")
    one, two = json.loads(whole.out), json.loads(rest.out)
    assert [one[key] for key in keys] == [two[key] for key in keys]


@pytest.mark.slow
def test_full_disk(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the access log meets it first."""
    write_recipe(tmp_path, steps=400)
    done = sennit(tmp_path, "train", "r.toml", "--out", "out", "--workers", "2", files_below=20_000)
    done.refused(1, "could not be written", "access.jsonl")
    assert is_free(tmp_path / "out")
    rest = sennit(tmp_path, "train", "r.toml", "--out", "out", "--resume", "--workers", "2")
    assert rest.exit == 0, rest.err


# -- what breaks later


def test_bad_data_in_mid_training_keeps_what_was_trained(tmp_path: Path) -> None:
    """Was removed with its folder, because the error is one of bad input."""
    write_recipe(tmp_path, data="hostile.py:BreaksLater", steps=40, checkpoint={"every": 50})
    done = sennit(tmp_path, "train", "r.toml", "--out", "out", "--workers", "2")
    done.refused(2, "data: sample ", "hostile.py:", "LookupError", "stopped after", "lower [checkpoint] every")
    assert (tmp_path / "out" / "losses.jsonl").stat().st_size
    for more in ((), ("--workers", "2", "--loaders", "1")):
        write_recipe(tmp_path, data="hostile.py:BreaksLater", steps=40, checkpoint={"every": 5})
        out = f"out{len(more)}"
        done = sennit(tmp_path, "train", "r.toml", "--out", out, *more)
        done.refused(2, "data: sample ", "hostile.py:", "LookupError", "the last checkpoint is", "--resume")


def test_a_subnet_that_is_refused_in_mid_training(tmp_path: Path) -> None:
    """By every engine in the same words; what was trained before it is kept, and goes on."""
    write_recipe(tmp_path, space="hostile.py:TalliesSome", seed=11)
    placed = {"plain": ("--engine", "plain"), "one": (), "two": ("--workers", "2", "--loaders", "1")}
    placed |= {"offload": ("--engine", "plain", "--offload"), "replicas": ("--workers", "2", "--replicas", "2")}
    said: set[str] = set()
    for out, options in placed.items():
        done = sennit(tmp_path, "train", "r.toml", "--out", out, *options)
        done.refused(2, "hostile.py:", "step 'tally' writes 'tally.count' in forward for some combinations", "right:  ")
        error = done.err[done.err.index("error: ") :].replace(f"{out}/checkpoints", "out/checkpoints")
        said.add(error)
        named = error.partition("the state before it is kept in out/checkpoints/")[2][:8]
        assert f"stopped at subnet {int(named)}; " in error
        assert is_free(tmp_path / out)
        if out in ("one", "offload", "replicas"):
            more = sennit(tmp_path, "train", "r.toml", "--out", out, "--resume", "--steps", str(int(named)), "--json")
            said.add(json.loads(more.out)["weights_sha256"])
    assert len(said) == 2, said


def test_code_that_changes_between_train_and_resume(tmp_path: Path) -> None:
    write_recipe(tmp_path, steps=10, checkpoint={"every": 5})
    code = (tmp_path / "hostile.py").read_text()
    assert sennit(tmp_path, "train", "r.toml", "--out", "out", "--steps", "5").exit == 0
    (tmp_path / "hostile.py").write_text(
        code.replace("return self.head(self.blocks(x))", "return -self.head(self.blocks(x))")
    )
    resumed = sennit(tmp_path, "train", "r.toml", "--out", "out", "--resume")
    changed = "space = 'hostile.py:Net'", "the code has changed since the checkpoint at subnet 5", "--out"
    resumed.refused(2, *changed)
    sennit(tmp_path, "search", "out", "--budget", "2").refused(2, *changed)
    sennit(tmp_path, "export", "out", "--arch", "{}", "--to", "net").refused(2, *changed)
    verified = sennit(tmp_path, "verify", "out", "--workers", "1")
    assert verified.exit == 0, verified.err
    assert "not comparable with the recorded run: the code of space = 'hostile.py:Net' has changed" in verified.out
    (tmp_path / "hostile.py").write_text(code.replace("Linear(8, 4)", "Linear(8, 5)"))
    searched = sennit(tmp_path, "search", "out", "--budget", "2")
    searched.refused(2, "head.", "has shape [5", "had [4", "Put the old space back")
    (tmp_path / "hostile.py").write_text("# a comment is no change\n" + code)
    assert sennit(tmp_path, "train", "r.toml", "--out", "out", "--resume").exit == 0


def test_code_that_is_imported_changes_between_train_and_resume(tmp_path: Path) -> None:
    write_recipe(tmp_path, steps=10, checkpoint={"every": 5})
    code = (tmp_path / "hostile.py").read_text()
    negated = code.replace("return self.head(", "import scale\n        return scale.by * self.head(")
    (tmp_path / "hostile.py").write_text(negated)
    (tmp_path / "scale.py").write_text("by = 1.0\n")
    assert sennit(tmp_path, "train", "r.toml", "--out", "out", "--steps", "5").exit == 0
    (tmp_path / "scale.py").write_text("by = -1.0\n")
    changed = "scale.py (imported by space = 'hostile.py:Net')", "the code has changed since the checkpoint at subnet 5"
    sennit(tmp_path, "train", "r.toml", "--out", "out", "--resume").refused(2, *changed)
    (tmp_path / "scale.py").write_text("by = 1.0  # as it was\n")
    assert sennit(tmp_path, "train", "r.toml", "--out", "out", "--resume").exit == 0


@pytest.mark.parametrize("engine", ["plain", "pipeline"])
def test_json_is_alone_on_stdout_whatever_user_code_prints(tmp_path: Path, engine: str) -> None:
    write_recipe(tmp_path, space="hostile.py:Chatty")
    done = sennit(tmp_path, "train", "r.toml", "--out", "out", "--steps", "3", "--engine", engine, "--json")
    assert json.loads(done.out)["steps"] == 3
    assert "hello" in done.err


@pytest.mark.parametrize("name", ["run.json", "result.json"])
@pytest.mark.parametrize("content", ["{}", '{"recipe": 3, "steps": "x"}'])
def test_files_of_a_run_without_what_they_must_hold(tmp_path: Path, name: str, content: str) -> None:
    write_recipe(tmp_path, steps=4)
    assert sennit(tmp_path, "train", "r.toml", "--out", "out").exit == 0
    (tmp_path / "out" / name).write_text(content)
    for command in ("report", "verify"):
        sennit(tmp_path, command, "out").refused(2, f"{name} is damaged", "should have")


@pytest.mark.parametrize("plan", ['"blocks": 7, "cuts": [[1]]', '"cuts": [[1.5]]', '"cuts": [[true]]', '"cuts": 3'])
def test_plans_of_another_form(tmp_path: Path, plan: str) -> None:
    write_recipe(tmp_path)
    (tmp_path / "plan.json").write_text(f'{{"format": "sennit.cuts/1", {plan}}}')
    done = sennit(tmp_path, "train", "r.toml", "--out", "out", "--workers", "2", "--plan", "plan.json")
    done.refused(2, "plan.json", "must be a list of")
    assert not (tmp_path / "out").exists()


def test_many_interrupts_in_a_row(tmp_path: Path) -> None:
    write_recipe(tmp_path, steps=4000, checkpoint={"every": 10})
    running = Running(tmp_path, "train", "r.toml", "--out", "out", "--workers", "2")
    running.until(lambda: subnets(tmp_path / "out") > 20)
    for _ in range(6):
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    done = running.wait()
    assert done.exit == 130 and "Traceback" not in done.err
