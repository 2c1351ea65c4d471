from __future__ import annotations

import pytest

from sennit.commands.failure import LINES, failure_of
from sennit.commands.output import Output
from sennit.errors import Interrupted, NanLossError, RecipeError, RunError


@pytest.mark.parametrize(
    ("error", "exit", "kind"),
    [
        (RecipeError("x"), 2, "input"),
        (RunError("x"), 1, "failed"),
        (NanLossError("x", 3, 0), 1, "failed"),
        (Interrupted("x"), 130, "interrupted"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("x"), 1, "bug"),
    ],
)
def test_exit_codes(error: BaseException, exit: int, kind: str) -> None:
    found = failure_of(error)
    assert (found.exit, found.kind) == (exit, kind) and found.message


def test_a_long_message_keeps_both_ends() -> None:
    text = "\n".join(["first", *map(str, range(200)), "x" * 5000, "last"])
    lines = failure_of(RunError(text)).short().splitlines()
    assert len(lines) == LINES
    assert (lines[0], lines[-1]) == ("first", "last") and any("left out" in line for line in lines)
    assert max(map(len, lines)) < 2000


def test_a_bug_says_so_and_leaves_the_traceback_to_python(capfd: pytest.CaptureFixture[str]) -> None:
    Output(json=True).error(failure_of(KeyError("x")))
    shown = capfd.readouterr()
    assert '"kind": "bug"' in shown.out and not shown.err


def test_json_has_no_nan(capfd: pytest.CaptureFixture[str]) -> None:
    Output(json=True).result({"loss": float("nan"), "more": [float("inf"), {"a": 1.5}]})
    assert capfd.readouterr().out == '{"loss": null, "more": [null, {"a": 1.5}]}\n'


def test_markup_in_a_message_is_text(capfd: pytest.CaptureFixture[str]) -> None:
    Output(json=False).error(failure_of(RecipeError("micro_batches = [bold]3[/bold] :smile:")))
    assert capfd.readouterr().err == "error: micro_batches = [bold]3[/bold] :smile:\n"
