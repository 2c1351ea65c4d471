from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from sennit.commands.arguments import COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(call: Callable, command: str) -> None:
    done = call(command, "--help")
    assert done.exit == 0
    assert f"    sennit {command} " in done.out or f"    sennit {command}\n" in done.out
    assert "--json" in done.out or command == "data"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--budget GIB", "0: no budget, all that was used stays. (default: 0)"),
        ("--in-flight I", "0: chosen. (default: 0)"),
        ("--activations-gib GIB", "0: what is free, less layers to come and a quarter. (default: 0)"),
    ],
)
def test_help_says_what_zero_means_where_it_stands_for_something_else(call: Callable, option: str, said: str) -> None:
    words = " ".join(call("train", "--help").out.replace("│", " ").split())
    _, own = words.split(f" {option} ", 1)
    assert f"{own.partition(')')[0]})".endswith(said)


def test_overview_names_all_commands_and_exit_codes(call: Callable) -> None:
    done = call("--help")
    assert done.exit == 0
    for name, (_, line) in COMMANDS.items():
        assert f"• {name}" in done.out and line.split(",")[0] in done.out
    assert "130 interrupted" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "{train,"),
        (("tran",), "tran"),
        (("plan", "--help"), "plan"),
        (("train", "r.toml", "--speed", "high"), "--speed"),
        (("train", "r.toml", "--workers", "two"), "--workers"),
        (("train", "r.toml", "--device", "tpu"), "virtual"),
        (("train", "r.toml", "another"), "another"),
        (("search",), "RUN"),
        (("export", "run"), "--to"),
        (("data", "fetch"), "NAME"),
    ],
)
def test_a_wrong_command_line_is_exit_2(call: Callable, words: tuple[str, ...], said: str) -> None:
    done = call(*words)
    assert done.exit == 2 and not done.out
    assert said in done.err.replace(" ", "") or said in done.err
    machine = call(*words, "--json")
    assert machine.exit == 2
    assert machine.json["kind"] == "input" and machine.json["error"] and "│" not in machine.json["error"]


def test_version(call: Callable) -> None:
    assert call("--version").out.startswith("sennit 0.")


def test_usage_is_shown_without_importing_torch() -> None:
    code = "import sys; from sennit.cli import main; main(['train', '--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
