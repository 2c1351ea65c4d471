from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

WATCH = """
import json, os, torch

def probe(event):
    torch.manual_seed(0); torch.set_num_threads(2)          # none of this reaches the run
    event["arch"].clear()
    with open("seen.jsonl", "a") as file:
        print(json.dumps({**event, "pid": os.getpid()}), file=file)

def loud(event):
    print("subnet", event["seq_id"])

def fails(event):
    if event["seq_id"] == 7:
        raise ValueError("seven")
"""


@pytest.fixture(autouse=True)
def _watch(workplace: Path) -> None:
    (workplace / "watch.py").write_text(WATCH)


@pytest.mark.parametrize("placement", [("--workers", "3"), ("--engine", "plain")])
def test_a_probe_sees_every_subnet_and_changes_nothing(call: Callable, run: Path, placement: tuple[str, str]) -> None:
    before = sorted(run.rglob("*"))
    done = call("train", "--replay", run, "--probe", "watch.py", *placement, "--json")
    assert done.exit == 0, done.err
    assert done.json["different"] == [] and done.json["comparable"]
    recorded = [json.loads(line) for line in (run / "losses.jsonl").read_text().splitlines()]
    recorded = [line for line in recorded if "loss" in line]
    seen = [json.loads(line) for line in Path("seen.jsonl").read_text().splitlines()]
    assert [(e["seq_id"], e["loss"]) for e in seen] == [(r["seq_id"], r["loss"]) for r in recorded]
    assert len({e["pid"] for e in seen}) == 1
    assert all(e["gradient_norms"]["stem"] > 0 for e in seen)
    losses = [e["loss"] for e in seen]
    assert [e["rank"] for e in seen] == [sum(a < b for a in losses[:i]) for i, b in enumerate(losses)]
    assert sorted(run.rglob("*")) == before and not Path("runs").exists()


def test_virtual_devices_repeat_nothing(call: Callable, run: Path) -> None:
    """Was run to its end, and then compared with nothing."""
    done = call("train", "--replay", run, "--probe", "watch.py", "--device", "virtual", "--workers", "2")
    assert done.exit == 2 and "--device virtual trains nothing" in done.err and "use --device cpu" in done.err
    assert not Path("seen.jsonl").exists()


def test_what_a_probe_prints_does_not_disturb_json(call: Callable, run: Path) -> None:
    done = call("train", "--replay", run, "--probe", "watch.py:loud", "--steps", "5", "--json")
    assert done.json["steps"] == 5 and "subnet 4" in done.err
    assert done.json["different"] == []  # the losses of the first five
    assert "subnet 4" in call("train", "--replay", run, "--probe", "watch.py:loud", "--steps", "5").out


def test_a_probe_that_raises_ends_the_run_and_is_named(call: Callable, run: Path) -> None:
    done = call("train", "--replay", run, "--probe", "watch.py:fails", "--out", "o")
    assert done.exit == 2
    assert "watch.py:fails" in done.err and "subnet 7" in done.err and "ValueError: seven" in done.err
    assert "Traceback" not in done.err


def test_a_run_that_comes_out_otherwise_is_exit_1(call: Callable, run: Path) -> None:
    held = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**held, "weights_sha256": "0" * 64}))
    lines = (run / "losses.jsonl").read_text().splitlines()
    sixth = json.loads(lines[5])
    lines[5] = json.dumps({**sixth, "loss": sixth["loss"] + 1})
    (run / "losses.jsonl").write_text("\n".join(lines) + "\n")
    done = call("train", "--replay", run, "--probe", "watch.py:loud")
    assert done.exit == 1
    assert "NOT the run" in done.out and "weights_sha256" in done.out and "loss of subnet 5" in done.out


def test_another_fingerprint_is_not_comparable(call: Callable, run: Path) -> None:
    held = json.loads((run / "run.json").read_text())
    held["fingerprint"]["cpu"] = "abacus"
    (run / "run.json").write_text(json.dumps(held))
    done = call("train", "--replay", run, "--probe", "watch.py:loud", "--steps", "2")
    assert done.exit == 0 and "not comparable" in done.out and "abacus" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--probe FILE"),
        (("--probe", "watch.py:nothing"), "no function 'nothing'; there are probe, loud, fails"),
        (("--probe", "missing.py"), "no Python file"),
        (("--probe", "watch.py", "--resume"), "leave out --resume"),
        (("--probe", "watch.py", "--steps", "41"), "between 1 and 40"),
        (("other.toml", "--probe", "watch.py"), "lr = 0.05 there, 0.07 here"),
    ],
)
def test_replay_refuses(call: Callable, run: Path, words: tuple[str, ...], said: str) -> None:
    Path("other.toml").write_text(Path("r.toml").read_text().replace("lr = 0.05", "lr = 0.07"))
    done = call("train", "--replay", run, *words)
    assert done.exit == 2 and said in done.err, done.err
