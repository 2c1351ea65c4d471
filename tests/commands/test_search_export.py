from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

STRATEGY = """
class Same:
    def __init__(self, structure, seed):
        self.structure = structure
    def ask(self, history):
        raise RuntimeError("no idea")
"""


def test_search_goes_on_and_export_is_what_it_reported(call: Callable, run: Path) -> None:
    whole = call("search", run, "--budget", "12", "--seed", "5", "--json").json
    log = Path(whole["folder"]) / "search.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    assert len(lines) == 13 and log.is_relative_to(run / "search")
    log.write_text("".join(lines[:6]) + lines[6][:20])  # killed while it wrote the sixth result
    again = call("search", run, "--budget", "12", "--seed", "5", "--json").json
    assert again == whole and log.read_text().splitlines(keepends=True) == lines

    done = call("export", run, "--to", "best", "--json")
    assert done.exit == 0, done.err
    assert done.json["metrics"] == whole["best"]["metrics"] and done.json["arch"] == whole["best"]["arch"]
    network = torch.export.load("best/network.pt2").module()
    with torch.no_grad():
        assert network(torch.zeros(3, 8)).shape == (3, 4)
    assert call("export", run, "--to", "best").exit == 2


def test_leaderboard_and_limits(call: Callable, run: Path) -> None:
    done = call("search", run, "--strategy", "random", "--budget", "6", "--max-parameters", "500")
    assert done.exit == 0, done.err
    assert "accuracy" in done.out and "6 networks evaluated after 40 subnets" in done.out
    report = call("report", run, "--json").json
    assert report["searches"][0]["evaluations"] == 6
    assert report["searches"][0]["best"]["metrics"]["parameters"] <= 500
    less = call("search", run, "--strategy", "random", "--budget", "3", "--max-parameters", "500").out
    assert "6 networks evaluated after 40 subnets, all by an earlier search: a larger --budget adds to them;" in less
    assert "earlier" not in done.out


def test_retrained_export_of_an_arch_from_a_file(call: Callable, run: Path) -> None:
    arch = {f"blocks.{i}": "norm" for i in range(4)}
    Path("arch.json").write_text(json.dumps({"arch": arch}))
    one = call("export", run, "--arch", "arch.json", "--to", "a", "--retrain", "8", "--seed", "3", "--json").json
    two = call("export", run, "--arch", "arch.json", "--to", "b", "--retrain", "8", "--seed", "3", "--json").json
    other = call("export", run, "--arch", "arch.json", "--to", "c", "--json").json
    assert 'torch.export.load("d/network.pt2")' in call("export", run, "--arch", "arch.json", "--to", "d").out
    assert one["weights"] == "retrained" and one["metrics"] == two["metrics"] != other["metrics"]
    assert json.loads(Path("a/arch.json").read_text())["arch"] == arch


@pytest.mark.parametrize(
    ("words", "exit", "said"),
    [
        (("export", "run", "--to", "e"), 2, "has no search; run `sennit search run` first"),
        (("export", "run", "--to", "e", "--seed", "1"), 2, "--retrain STEPS"),
        (("export", "run", "--to", "e", "--arch", "r.toml"), 2, "JSON file"),
        (("search", "run", "--strategy", "best"), 2, "evolution"),
        (("search", "run", "--budget", "0"), 2, "at least 1"),
        (("search", "run", "--objective", "beauty"), 2, "'beauty'"),
        (("search", "run", "--max-parameters", "3"), 2, "max_parameters = 3"),
        (("search", "run", "--strategy", "own.py:Same"), 1, "own.py"),
    ],
)
def test_refusals(call: Callable, run: Path, words: tuple[str, ...], exit: int, said: str) -> None:
    Path("own.py").write_text(STRATEGY)
    done = call(*words)
    assert done.exit == exit and said in done.err, done.err
    assert "Traceback" not in done.err and not Path("e").exists()
