"""Progress of something that takes longer than a moment: one line, redrawn on a terminal, repeated elsewhere.

No thread redraws it, because a process with threads must not fork workers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from sennit.commands.output import Output, figure

if TYPE_CHECKING:
    from sennit.runtime.request import Progress

REDRAW_S = 0.1
"""Time between two drawings on a terminal, seconds."""

REPEAT_S = 5.0
"""Time between two lines where there is no terminal, seconds."""

BAR = 24


class Meter:
    """Counts towards a known end, with rate and time left. Used in a `with`.

    Args:
        out: where to.
        label: at the start of the line.
        unit: what is counted.
        clock: monotonic seconds.
    """

    def __init__(self, out: Output, label: str, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.out, self.label, self.unit, self.clock = out, label, unit, clock
        live = Live(console=out.people, auto_refresh=False, transient=True)
        self.live = live if out.people.is_terminal else None
        self.began: tuple[float, int] | None = None
        self.drawn = clock()
        self.line = ""

    def update(self, done: int, of: int, note: str = "", below: RenderableType | None = None) -> None:
        """`done` of `of` are there; `note` goes to the end of the line, `below` under it on a terminal."""
        now = self.clock()
        if self.began is None:
            self.began = (now, done)  # what came before the first sign is start-up
        self.line = self._line(done, of, now, note)
        if now - self.drawn >= (REPEAT_S if self.live is None else REDRAW_S):
            self.drawn = now
            self._draw(below)

    def say(self, text: str) -> None:
        """A line that stays, above the progress."""
        if self.live is None:
            self.out.say(text)
        else:
            self.live.console.print(Text(text))

    def _draw(self, below: RenderableType | None) -> None:
        if self.live is None:
            self.out.say(self.line)
        else:
            line = Text(self.line, no_wrap=True, overflow="ellipsis")
            self.live.update(line if below is None else Group(line, below), refresh=True)

    def _line(self, done: int, of: int, now: float, note: str) -> str:
        assert self.began is not None
        seconds, new = now - self.began[0], done - self.began[1]
        parts = [f"{done}/{of} {self.unit}"]
        if new and seconds > 0:
            rate = new / seconds
            parts += [f"{rate:.3g}/s", f"{duration((of - done) / rate)} left"]
        parts += [note] if note else []
        bar = ""
        if self.live is not None:
            full = round(BAR * done / max(of, 1))
            bar = "━" * full + "─" * (BAR - full) + " "
        return f"{self.label} {bar}{' · '.join(parts)}".lstrip()

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()


class TrainMeter(Meter):
    """Progress of a training run: what `sennit.runtime.train.train` tells."""

    def __init__(self, out: Output, label: str = "", *, quiet: bool = False) -> None:
        super().__init__(out, label, "subnets")
        self.quiet = quiet

    def tell(self, progress: Progress) -> None:
        if progress.note and not self.quiet:
            self.say(progress.note)
        if progress.event != "start" and progress.of:
            self.update(progress.done, progress.of, _figures(progress.loss, progress.evaluation))


def duration(seconds: float) -> str:
    """`0:07`, `12:34`, `2:03:04`."""
    whole = math.ceil(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def _figures(loss: float, evaluation: dict[str, Any]) -> str:
    parts = [] if math.isnan(loss) else [f"loss {figure(loss)}"]
    if evaluation.get("mean") is not None:
        metric = evaluation.get("metric", "evaluation")
        of = f" of {len(evaluation['scores'])} networks" if "scores" in evaluation else ""
        parts.append(f"{metric}{of}: mean {figure(evaluation['mean'])}, best {figure(evaluation['best'])}")
    return " · ".join(parts)
