from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.host_gpu import stand_in

from sennit.runtime.pipeline import Pipeline
from sennit.runtime.plain import PlainEngine

HASHES = ("weights_sha256", "optimizer_sha256", "losses_sha256")


def test_default_folders_are_numbered_and_results_are_the_same(call: Callable, workplace: Path) -> None:
    one = call("train", "r.toml", "--steps", "10", "--json")
    two = call("train", "r.toml", "--steps", "10", "--json", "--engine", "plain")
    assert (one.json["out"], two.json["out"]) == ("runs/r-1", "runs/r-2")
    assert [one.json[key] for key in HASHES] == [two.json[key] for key in HASHES]
    assert two.json["bubble"] is None and one.json["steps"] == 10


def test_the_space_is_reported_before_training(call: Callable, workplace: Path) -> None:
    done = call("train", "r.toml", "--steps", "3", "--out", "o")
    first, *lines = done.err.splitlines()
    assert first.startswith("checking r.toml")
    assert lines[0].startswith("space: 81 networks; 6 blocks to place; supernet 1,580 parameters")
    assert lines[1].startswith("network: 108 to 1,228 parameters")
    assert "head, stem" in lines[2] and "'strict'" in lines[3] and lines[4] == "run folder o"
    assert done.out.splitlines()[0].startswith("o: 3 subnets in ") and len(done.out.splitlines()) == 4


def test_a_run_says_what_it_could_have_taken(call: Callable, workplace: Path) -> None:
    done = call("train", "r.toml", "--steps", "6", "--workers", "2", "--out", "o")
    assert "  simulated, 40 subnets: bubble 0." in done.out
    kept = json.loads((workplace / "o" / "result.json").read_text())["prospect"]
    assert 0 <= kept["bubble_at_bound"] <= kept["bubble"] < 1 and kept["levers"]
    assert call("report", "o", "--json").json["prospect"] == kept
    shown = " ".join(call("report", "o").out.replace("│", "").split())
    assert f"in flight no order of these tasks goes below {kept['bubble_at_bound']:.2f}" in shown
    assert call("train", "r.toml", "--steps", "6", "--json").json["prospect"] is None


def test_workers_that_share_a_gpu_are_told_and_no_times_derived(
    call: Callable, workplace: Path, trained_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = json.loads((trained_once / "result.json").read_text())
    words, said = ("train", "r.toml", "--device", "cuda", "--workers", "3"), "3 workers share 2 GPUs, so times"
    with monkeypatch.context() as patched:
        stand_in(patched, 2)
        done = call(*words, "--out", "o")
        own = call(*words[:-1], "2", "--transport", "host", "--json")
    assert done.exit == 0 and f"  {said} and bubbles say nothing about 3 GPUs" in done.out.splitlines()
    assert "simulated" not in done.out
    kept = json.loads((workplace / "o" / "result.json").read_text())
    assert [kept[key] for key in HASHES] == [wanted[key] for key in HASHES] and kept["gpus"] == 2
    assert own.json["gpus"] == 2 and own.json["prospect"]["subnets"] == 40
    assert json.loads((workplace / own.json["out"] / "run.json").read_text())["placement"]["transport"] == "host"
    assert (
        said in " ".join(call("report", "o").out.replace("│", "").split())
        and call("report", "o", "--json").json["gpus"] == 2
    )


@pytest.mark.parametrize(
    ("words", "quota", "times"),
    [
        (("--workers", "2"), "150000 100000", 1),
        (("--workers", "2", "--resume", "--json"), "150000 100000", 1),
        (("--workers", "1"), "50000 100000", 0),
        (("--workers", "2"), "max 100000", 0),
        (("--workers", "2", "--device", "virtual"), "150000 100000", 0),
        (("--workers", "2", "--device", "cuda"), "150000 100000", 0),
        (("--engine", "plain"), "50000 100000", 0),
    ],
)
def test_workers_that_share_a_core_are_told_once(
    call: Callable, workplace: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], quota: str, times: int
) -> None:
    (workplace / "cpu.max").write_text(quota)
    with monkeypatch.context() as patched:
        patched.setattr("sennit.runtime.cores.CGROUP", workplace)
        patched.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
        if "cuda" in words:
            stand_in(patched, 1)
        done = call("train", "r.toml", "--steps", "4", "--out", "o", *words)
    assert done.exit == 0 and "cores" not in done.out
    assert done.err.count("2 workers share 1.5 cores of this host") == done.err.count("take turns") == times


def test_a_budget_of_zero_is_none(call: Callable, workplace: Path) -> None:
    """What belongs to a budget is refused as without one. Any other number, however small, is a budget."""
    for words, kept in ((("--budget", "0"), False), ((), False), (("--budget", "1"), True)):
        assert ("slots" in call("train", "r.toml", "--steps", "3", "--json", *words).json) == kept
    refused = call("train", "r.toml", "--budget", "0", "--evict", "lru")
    assert refused.exit == 2 and "come and go under a --budget, and there is none" in refused.err
    least = call("train", "r.toml", "--budget", "1e-9")
    assert least.exit == 2 and "is too little" in least.err


def test_virtual_devices_train_nothing_and_nothing_trained_is_told(call: Callable, workplace: Path) -> None:
    """Was `weights None`, `last loss 0`, and a result that said it was comparable."""
    blocks = {f"blocks.{i}": {"forward": 0.001, "backward": 0.001} for i in range(4)}
    Path("waits.json").write_text(json.dumps({"format": "sennit.waits/1", "blocks": blocks}))
    words = ("train", "r.toml", "--device", "virtual", "--waits", "waits.json", "--workers", "2", "--steps", "6")
    done = call(*words, "--out", "o")
    assert done.exit == 0 and "nothing is trained on virtual devices" in done.out
    assert "None" not in done.out and " loss " not in done.out + done.err and "weights" not in done.out
    for name in ("run.json", "result.json"):
        assert json.loads((workplace / "o" / name).read_text())["comparable"] is False
    assert json.loads((workplace / "o" / "result.json").read_text())["last_loss"] is None
    assert {json.loads(line)["loss"] for line in (workplace / "o" / "losses.jsonl").read_text().splitlines()} == {None}
    said = call("report", "o")
    assert "nothing: devices were virtual" in said.out and "│ loss" not in said.out and "allow_nondet" not in said.out
    facts = call("report", "o", "--json").json
    assert facts["steps"] == 6 and facts["loss_last"] is None and not facts["comparable"]


def test_resume_on_another_number_of_workers(call: Callable, workplace: Path, trained_once: Path) -> None:
    wanted = json.loads((trained_once / "result.json").read_text())
    assert call("train", "r.toml", "--steps", "17", "--out", "o", "--engine", "plain").exit == 0
    rest = call("train", "r.toml", "--out", "o", "--resume", "--workers", "3", "--json")
    assert [rest.json[key] for key in HASHES] == [wanted[key] for key in HASHES]


def test_a_recipe_by_its_name(call: Callable, workplace: Path) -> None:
    (workplace / "recipes").mkdir()
    for file in ("r.toml", "nets.py"):
        (workplace / file).rename(workplace / "recipes" / file)
    assert call("train", "r", "--steps", "2", "--json").json["out"] == "runs/r-1"
    assert "did you mean 'r'" in call("train", "rr", "--steps", "2").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "RECIPE is missing"),
        (("r.toml", "--probe", "p.py"), "--replay RUN"),
        (("r.toml", "--engine", "plain", "--workers", "2"), "--workers 2"),
        (("r.toml", "--engine", "plain", "--loaders", "1"), "--loaders 1 belongs to --engine pipeline"),
        (("r.toml", "--engine", "plain", "--transport", "host"), "--transport host belongs to --engine pipeline"),
        (("r.toml", "--transport", "host"), "--transport host says how tensors travel between GPUs, got --device cpu"),
        (("r.toml", "--offload"), "--engine plain"),
        (("r.toml", "--steps", "0"), "--steps must be at least 1"),
        (("r.toml", "--workers", "7"), "the space has only 6 blocks to place; use at most 6 workers"),
        (("r.toml", "--workers", "2", "--plan", "r.toml"), "r.toml"),
        (("r.toml", "--schedule", "fastest"), "there is no schedule 'fastest'; there are csp, naspipe"),
        ((".",), "it is a folder"),
    ],
)
def test_options_that_do_not_fit(call: Callable, workplace: Path, words: tuple[str, ...], said: str) -> None:
    done = call("train", *words)
    assert done.exit == 2 and said in done.err
    assert not (workplace / "runs").exists() and "run folder" not in done.err


def test_an_unknown_schedule_is_refused_before_the_space_is_checked(call: Callable, workplace: Path) -> None:
    (workplace / "r.toml").write_text((workplace / "r.toml").read_text().replace("nets.py:", "nowhere.py:"))
    done = call("train", "r.toml", "--schedule", "fastest")
    assert done.exit == 2 and "there is no schedule 'fastest'" in done.err and "checking" not in done.err


def test_a_folder_that_exists_is_refused_before_the_space_is_checked(call: Callable, workplace: Path) -> None:
    (workplace / "o").mkdir()
    (workplace / "o" / "run.json").touch()
    (workplace / "r.toml").write_text((workplace / "r.toml").read_text().replace("nets.py:", "nowhere.py:"))
    done = call("train", "r.toml", "--out", "o")
    assert done.exit == 2 and "--out o exists already; add --resume" in done.err


def test_a_finished_run_has_nothing_left(call: Callable, workplace: Path) -> None:
    first = call("train", "r.toml", "--steps", "3", "--out", "o", "--json")
    again = call("train", "r.toml", "--steps", "3", "--out", "o", "--resume")
    assert again.out.splitlines()[0].startswith("o: 3 subnets were there already, none was left")
    assert first.json["weights_sha256"] in again.out


def test_interrupted_before_the_first_subnet(
    call: Callable, workplace: Path, trained_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Was an IndexError: there is no last loss to tell of."""
    run_to = PlainEngine.run_to

    def interrupted_at_once(engine: PlainEngine, *arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return run_to(engine, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(PlainEngine, "run_to", interrupted_at_once)
        done = call("train", "r.toml", "--out", "o", "--engine", "plain")
    assert done.exit == 130 and "stopped after 0 of 40 subnets" in done.err
    wanted = json.loads((trained_once / "result.json").read_text())
    rest = call("train", "r.toml", "--out", "o", "--resume", "--json")
    assert [rest.json[key] for key in HASHES] == [wanted[key] for key in HASHES]


def lines_changed(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def added(line: str) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(path.read_bytes() + line.encode())


SPAN = '{"worker":%d,"kind":"F","seq_id":%d,"micro_batch":0,"run":%d,"start":0.0,"end":9.0}\n'
DAMAGE: dict[str, Callable[[Path], Any]] = {
    "garbage": lines_changed(lambda lines: [*lines[:-3], b"zzz\n", *lines[-3:]]),
    "no facts": lines_changed(lambda lines: lines[1:]),
    "nothing": lines_changed(lambda lines: []),
    "no spans": lines_changed(lambda lines: lines[:1]),
    "a span is missing": lines_changed(lambda lines: [line for line in lines if b'"seq_id":2,' not in line]),
    "not text": lambda path: path.write_bytes(bytes(range(256)) * 64),
    "removed": lambda path: path.unlink(),
    "a task twice": lines_changed(lambda lines: [*lines, *(line for line in lines if b'"kind"' in line)][:-1]),
    "another subnet": added(SPAN % (0, 99_999_999, 0)),
    "another run": added(SPAN % (60_000, 2, 1000)),
    "no subnet": added(SPAN % (1, -1, -1)),
    "a wild counter": added('{"counter":"graphs","worker":0,"time":0,"value":1e999}\n'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_trace_ends_no_healthy_run(
    damage: str, call: Callable, workplace: Path, trained_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Was an error after the last subnet, and no result."""
    close = Pipeline.close

    def damaging(engine: Pipeline, failed: bool) -> None:
        close(engine, failed)
        DAMAGE[damage](engine.crew.logs.with_name("trace.jsonl"))

    monkeypatch.setattr(Pipeline, "close", damaging)
    done = call("train", "r.toml", "--out", "o", "--workers", "2", "--json")
    assert done.exit == 0 and "Traceback" not in done.err
    wanted = json.loads((trained_once / "result.json").read_text())
    kept = json.loads(Path("o/result.json").read_text())
    assert [done.json[key] for key in HASHES] == [kept[key] for key in HASHES] == [wanted[key] for key in HASHES]
    if damage in ("garbage", "no facts", "nothing", "not text"):
        assert "trace.json is not written" in done.err and not Path("o/trace.json").exists()
    if damage not in ("no spans", "a span is missing", "another subnet", "another run", "no subnet", "a wild counter"):
        assert "what the run could have taken is not known: " in done.err and done.json["prospect"] is None


FAILS_WHERE_IT_IS_SIMULATED = """
import os
HERE = os.getpid()  # workers are forked from this process

class Order:
    def __init__(self, worker, setting): self.tasks = []
    def add(self, task): self.tasks.append(task)
    def pop(self):
        if os.getpid() == HERE: raise LookupError("only here")
        return self.tasks.pop(0) if self.tasks else None
"""


def test_an_order_that_fails_when_it_is_looked_back_on_ends_no_healthy_run(call: Callable, workplace: Path) -> None:
    """Was an error of ours with a traceback, behind a run that had ended well."""
    Path("mine.py").write_text(FAILS_WHERE_IT_IS_SIMULATED)
    words = ("train", "r.toml", "--steps", "6", "--workers", "2", "--schedule", "mine.py:Order", "--out", "o")
    done = call(*words, "--json")
    assert done.exit == 0 and "Traceback" not in done.err and done.json["prospect"] is None
    assert (
        "what the run could have taken is not known: " in done.err and "mine.py:9 in pop raised LookupError" in done.err
    )


def test_looking_back_may_be_stopped(call: Callable, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Was told as an interrupted run, without its hashes, although all of it was there."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sennit.commands.train.look_back", stopped)
    done = call("train", "r.toml", "--workers", "2", "--steps", "3", "--json")
    assert done.exit == 0 and len(done.json["weights_sha256"]) == 64 and done.json["prospect"] is None
    assert "looking back was stopped; the run is complete" in done.err
