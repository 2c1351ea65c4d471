from __future__ import annotations

import io

import pytest
from rich.console import Console

from sennit.commands.output import Output
from sennit.commands.progress import Meter, TrainMeter, duration
from sennit.runtime.request import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_a_terminal_a_line_every_few_seconds(capfd: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Meter(Output(json=False), "search", "networks", clock) as meter:
        for done in range(97):
            meter.update(done, 200)
            clock.now += 0.125  # eight a second, for twelve seconds
    lines = capfd.readouterr().err.splitlines()
    assert lines == ["search 40/200 networks · 8/s · 0:20 left", "search 80/200 networks · 8/s · 0:15 left"]


def test_on_a_terminal_one_line_that_goes_away() -> None:
    clock, out, file = Clock(), Output(json=False), io.StringIO()
    out.people = Console(file=file, force_terminal=True, width=100, color_system=None)
    with Meter(out, "", "subnets", clock) as meter:
        for done in range(5):
            meter.update(done, 10, "loss 0.5")
            clock.now += 1
    shown = file.getvalue()
    assert "━━━━━━━━━━──────────────" in shown and "4/10 subnets · 1/s · 0:06 left · loss 0.5" in shown


def test_rate_counts_from_where_a_resumed_run_begins(capfd: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with TrainMeter(Output(json=False)) as meter:
        meter.clock = clock
        meter.tell(Progress("start", 1000, 2000, note="run folder x"))
        for done in (1001, 1006):
            meter.tell(Progress("subnet", done, 2000, 0.25, {"metric": "accuracy", "mean": 0.5, "best": 0.75}))
            clock.now += 1e6
    first, line = capfd.readouterr().err.splitlines()
    assert first == "run folder x"
    assert line.startswith("1006/2000 subnets · 5e-06/s") and line.endswith("loss 0.25 · accuracy: mean 0.5, best 0.75")


def test_durations() -> None:
    assert [duration(s) for s in (0, 6.2, 754, 7384)] == ["0:00", "0:07", "12:34", "2:03:04"]
