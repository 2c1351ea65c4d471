"""`Repeated`: a simulation in which tasks take as long as a trace says. `Recorded` is what the trace says.

task   ├────────────┤────┤      values and gradients may leave, and versions be there, before its end
                  sent  end
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from sennit.schedule.action import Kind
from sennit.schedule.order import Task
from sennit.simulate.engine import Simulation
from sennit.simulate.flight import Arrival, Came, Left
from sennit.trace.events import name_of
from sennit.trace.span import Span


@dataclass(frozen=True)
class Recorded:
    """What a trace says of each task.

    Attributes:
        seconds: from when its worker could begin it to its end.
        transit: from when the last thing that it waited for was made until it was there.
        sent, stepped: how long before its end values or gradients had left, and the last of its versions was there. A
            backward sends its gradient before it steps.
    """

    seconds: Mapping[Task, float]
    transit: Mapping[Task, float]
    sent: Mapping[str, float]
    stepped: Mapping[str, float]

    @staticmethod
    def of(spans: Iterable[Span]) -> Recorded:
        """From the spans of one call; those of optimizer steps outside of tasks are left out."""
        free: dict[int, float] = {}
        seconds: dict[Task, float] = {}
        transit: dict[Task, float] = {}
        ends: dict[str, float] = {}
        sent: dict[str, float] = {}
        stepped: dict[str, float] = {}
        tasks = sorted((span for span in spans if span.kind in "FBIW"), key=lambda span: span.start)
        for span in tasks:
            task = Task(kind_of(span), span.seq_id, span.micro_batch, span.run)
            could = min(span.start, max(span.ready, free.get(span.worker, 0.0)))
            seconds[task] = span.end - could  # what the host does in between belongs to the task
            transit[task] = max(0.0, span.ready - span.left)
            free[span.worker] = ends[name_of(span)] = span.end
            if span.cause in ("value", "gradient"):
                sent[span.by] = min(sent.get(span.by, span.left), span.left)
            elif span.cause == "version":
                stepped[span.by] = max(stepped.get(span.by, span.left), span.left)
        return Recorded(seconds, transit, _before(sent, ends), _before(stepped, ends))


def _before(moments: Mapping[str, float], ends: Mapping[str, float]) -> dict[str, float]:
    """How long before the end of its maker something was there, where it was."""
    return {by: ends[by] - at for by, at in moments.items() if at < ends.get(by, at)}


def kind_of(span: Span) -> Kind:
    """The kind of a span that is a task."""
    return cast("Kind", span.kind)


class Stepped(Arrival):
    """The versions that a task makes are there before its end."""


class Repeated(Simulation):
    """A simulation in which tasks take as long as recorded, and what they wait for comes as late. The orders decide."""

    recorded: Recorded
    stepped: set[Task]
    """Tasks under way whose versions are there."""

    def seconds(self, task: Task) -> float:
        found, name = self.recorded, str(task)
        seconds = found.seconds[task]
        for before, kind in ((found.sent.get(name), Left), (found.stepped.get(name), Stepped)):
            if before is not None:
                self.later(self.now + max(0.0, seconds - before), -1, kind(task, Came(self.now, "start", "", None)))
        return seconds

    def arrived(self, what: Arrival) -> None:
        if not isinstance(what, Stepped):
            super().arrived(what)
            return
        task = what.task
        self.leave_early(task)
        self.stepped.add(task)
        super().complete(task, self.flights[task.seq_id].pieces[task.run].where(task.micro_batch))

    def leave_early(self, task: Task) -> None:
        if task not in self.left_early:
            super().leave_early(task)

    def complete(self, task: Task, worker: int) -> None:
        if task in self.stepped:
            self.stepped.remove(task)
        else:
            super().complete(task, worker)

    def enter(self, task: Task, came: Came) -> None:
        late = self.recorded.transit[task]
        if not late or came.left < self.now:  # it has been on its way already
            super().enter(task, came)
        else:
            self.later(self.now + late, -1, Arrival(task, came))
