"""Bad input of benchmarks is refused by their parsers, before anything is measured."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
DIGITS = str(ROOT / "recipes" / "digits.toml")
RESULTS = ROOT / "benchmarks" / "results"
GRAPHS = str(RESULTS / "graphs_nlp.c3_H200.json")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    """A benchmark, as its own script imports what is beside it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))

    def loaded(name: str) -> ModuleType:
        module = importlib.import_module(name)
        monkeypatch.setattr(module, "train", lambda *given: pytest.fail("it trains"), raising=False)
        monkeypatch.setattr(module, "Bench", lambda *given: pytest.fail("it measures"), raising=False)
        return module

    return loaded


CPU = ["--device", "cpu", "--out", "t.json"]
NUMBERS = ("0", "-1", "x", "1.5", "")
REALS = ("0", "-1", "x", "nan", "inf", "")
CASES = [
    ("eviction", [], "the following arguments are required: recipe"),
    ("eviction", ["none.toml"], "none.toml"),
    ("eviction", ["."], "cannot read recipe"),
    ("eviction", [str(Path(__file__))], "test_benchmarks.py"),
    ("eviction", [DIGITS, "--workers", "99"], "the space has only"),
    ("eviction", [DIGITS, "--release", "block"], "invalid choice"),
    ("eviction", [DIGITS, "--out", "no/where.jsonl"], "there is no folder no"),
    ("eviction", [DIGITS, "--out", "."], ". is a folder"),
    *(("eviction", [DIGITS, "--subnets", n], "--subnets: must be a whole number") for n in NUMBERS),
    *(("eviction", [DIGITS, "--workers", n], "--workers: must be a whole number") for n in NUMBERS),
    *(("eviction", [DIGITS, "--copy", n], "--copy: must be a number above 0") for n in REALS),
    ("table2", [], "required: --out"),
    *((name, ["--show"], "--show: expected at least one argument") for name in ("table2", "table5")),
    *((name, ["--show", "none.json"], "cannot read none.json") for name in ("table2", "table5")),
    *((name, ["--show", __file__], "cannot read") for name in ("table2", "table5")),
    *((name, ["--show", GRAPHS], "has no rows") for name in ("table2", "table5")),
    ("table5", ["--device", "cpu"], "required: --out"),
    ("table5", ["--device", "tpu", "--out", "t.json"], "must be cpu or cuda, got 'tpu'"),
    ("table5", ["--device", "cpu", "--out", "no/t.json"], "there is no folder no"),
    ("table5", [*CPU, "--precision", "bf16"], "invalid choice"),
    *(("table5", [*CPU, "--length", n], "--length: must be a whole number") for n in NUMBERS),
    *(("table5", [*CPU, "--channels", n], "--channels: must be a whole number") for n in NUMBERS),
    *(("table5", [*CPU, "--each", n], "--each: must be a number above 0") for n in REALS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "words", "said"), CASES)
def test_bad_input(
    name: str, words: list[str], said: str, load, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Was a traceback, for some of it after minutes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    with pytest.raises(SystemExit) as ended:
        load(name).main()
    shown = capfd.readouterr().err
    assert ended.value.code == 2 and f"{name}.py: error: " in shown and said in shown
    assert not list(tmp_path.iterdir())


def test_no_gpu(load, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["table5.py", "--out", "t.json"])
    with pytest.raises(SystemExit):
        load("table5").main()
    assert "--device: torch sees no GPU; use cpu" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["table2", "table5"])
def test_kept_results_are_shown_without_a_gpu_or_a_run(
    name: str, load, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    files = sorted(RESULTS.glob(f"{name}_*.json"))
    assert files
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--show", *map(str, files)])
    with pytest.raises(SystemExit) as ended:
        load(name).main()
    lines = capfd.readouterr().out.splitlines()
    assert ended.value.code == 0 and len({line.count("|") for line in lines}) == 1
    assert len(lines) > sum(len(json.loads(file.read_text())["rows"]) for file in files)
