"""Simulations that each break one rule, to see that the checker notices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sennit.schedule.order import Task
from sennit.simulate.engine import Simulation
from sennit.simulate.flight import Came, Steps
from sennit.simulate.load import Piece


class ForwardsWaitForNoValue(Simulation):
    def take_in(self, y: int, pieces: Sequence[Piece]) -> None:
        super().take_in(y, pieces)
        for r in range(1, len(pieces)):
            for j in range(self.m):
                self.come(Task("F", y, j, r), Came(self.now, "value", "", None))

    def hand_over(self, task: Task, made_on: int, size: float, cause: Any) -> None:
        if task.kind != "F":
            super().hand_over(task, made_on, size, cause)


class BackwardsWaitForNoLoss(Simulation):
    def enter(self, task: Task, came: Came) -> None:
        super().enter(task, came)
        if task.kind == "F" and task.run + 1 == len(self.flights[task.seq_id].pieces):
            super().enter(task._replace(kind="I" if self.split else "B"), came)

    def ready(self, task: Task, cause: Any, of: str = "") -> None:
        if of != "loss":
            super().ready(task, cause, of)


class BackwardsWaitForNoGradient(Simulation):
    def ready(self, task: Task, cause: Any, of: str = "") -> None:
        super().ready(task, cause, of)
        if of == "loss":
            for r in range(task.run):
                self.enter(task._replace(run=r), Came(self.now, "gradient", "", None))

    def hand_over(self, task: Task, made_on: int, size: float, cause: Any) -> None:
        if task.kind == "F":
            super().hand_over(task, made_on, size, cause)


class WaitsForOne(Simulation):
    """A task of one kind goes with the first thing that comes for it."""

    kind = ""

    def come(self, task: Task, came: Came) -> None:
        branches = self.flights[task.seq_id].branches
        if branches is not None and (task.kind == "F") == (self.kind == "F"):
            missing = (branches.values if task.kind == "F" else branches.gradients)[task.run]
            most = len(branches.sources[task.run] if task.kind == "F" else branches.readers[task.run])
            if missing[task.micro_batch] == max(1, most):
                missing[task.micro_batch] = 1
            else:
                return  # it has gone already
        super().come(task, came)


class ForwardsWaitForOneValue(WaitsForOne):
    kind = "F"


class BackwardsWaitForOneGradient(WaitsForOne):
    kind = "B"


class WeightsWaitForNoInput(Simulation):
    def enter(self, task: Task, came: Came) -> None:
        super().enter(task, came)
        if task.kind == "F" and self.split:
            super().enter(task._replace(kind="W"), came)

    def ready(self, task: Task, cause: Any, of: str = "") -> None:
        if cause != "weight":
            super().ready(task, cause, of)


class ForwardsWaitForNoVersion(Simulation):
    def come(self, task: Task, came: Came) -> None:
        branches = self.flights[task.seq_id].branches
        if branches is None or not branches.waits(task):
            self.take_turn(task, came)


class BuffersAreWrittenInAnyOrder(Simulation):
    def take_turn(self, task: Task, came: Came) -> None:
        self.enter(task, came)


class VersionsComeWithTheFirstGradient(Simulation):
    def done(self, task: Task, worker: int) -> None:
        flight = self.flights[task.seq_id]
        if task.kind in "BW" and not (task.kind == "B" and self.split) and flight.left[task.run] == self.m:
            for group in flight.pieces[task.run].groups:
                self.publish(group, task.seq_id)
        super().done(task, worker)


class VersionsOvertake(Simulation):
    """A subnet's version is there although an earlier writer has not stepped."""

    def release(self, flight: Any, y: int, r: int) -> None:
        for group in flight.pieces[r].groups:
            if self.versions.writers[group].get(y) == 1:
                self.publish(group, y)
        super().release(flight, y, r)


class VersionsComeWithTheFirstOfTwoRuns(Simulation):
    """A group that stands in several runs has stepped with one of them."""

    def release(self, flight: Any, y: int, r: int) -> None:
        for group in flight.pieces[r].groups:
            if all(x >= y for x in self.versions.writers[group]):
                self.publish(group, y)
        super().release(flight, y, r)


class OneMoreInFlight(Simulation):
    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.in_flight += 1


class TwoTasksAtOnce(Simulation):
    def later(self, at: float, worker: int, what: Any) -> None:
        super().later(at, worker, what)
        if worker >= 0 and (task := self.orders[worker].pop()) is not None:
            super().later(self.now + self.host_s + self.seconds(task), worker, task)


class TasksTakeNoHostTime(Simulation):
    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.host_s = 0.0


class StepsTakeNoTime(Simulation):
    def seconds(self, task: Task) -> float:
        return self.flights[task.seq_id].pieces[task.run].cost["FBIW".index(task.kind)]


class StepsApartTakeNoTime(Simulation):
    def step(self, worker: int) -> float:
        self.later(self.now, worker, Steps(self.due[worker]))
        self.due[worker], self.idle[worker] = [], False
        return 0.0


class StepsComeWithTheGradient(Simulation):
    """Versions are there before the step has ended."""

    def complete(self, task: Task, worker: int) -> None:
        flight = self.flights[task.seq_id]
        if task.kind in "BW" and not (task.kind == "B" and self.split) and flight.left[task.run] == 1:
            for group in flight.pieces[task.run].groups:
                self.publish(group, task.seq_id)
        super().complete(task, worker)


class VersionsHaveNoWay(Simulation):
    def after_step(self, task: Task) -> None:
        self.release(self.flights[task.seq_id], task.seq_id, task.run)


class StepsGoFirst(Simulation):
    def backward_first(self, worker: int) -> bool:
        return False


class MessagesTakeNoTime(Simulation):
    def hand_over(self, task: Task, made_on: int, size: float, cause: Any) -> None:
        self.come(task, Came(self.now, cause, "", self.last))


class ChannelsCarryAllAtOnce(Simulation):
    def hand_over(self, task: Task, made_on: int, size: float, cause: Any) -> None:
        if self.channels is not None:
            self.channels.free.clear()
        super().hand_over(task, made_on, size, cause)


class MemoryHasNoLimit(Simulation):
    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        if self.memory is not None:
            self.memory.limits = [math.inf] * len(self.memory.limits)


class LayersAreThereAtOnce(Simulation):
    def fetch(self, flight: Any, y: int, r: int) -> None:
        pass


class SomebodyElseRunsIt(Simulation):
    def enter(self, task: Task, came: Came) -> None:
        self.orders = self.orders[::-1]
        super().enter(task, came)
        self.orders = self.orders[::-1]
        self.woken.update(range(len(self.orders)))


MUTANTS: dict[type[Simulation], str] = {
    ForwardsWaitForNoValue: "value",
    BackwardsWaitForNoLoss: "loss",
    BackwardsWaitForNoGradient: "gradient",
    ForwardsWaitForOneValue: "value",
    BackwardsWaitForOneGradient: "gradient",
    WeightsWaitForNoInput: "weight",
    ForwardsWaitForNoVersion: "version",
    VersionsComeWithTheFirstGradient: "version",
    VersionsComeWithTheFirstOfTwoRuns: "version",
    OneMoreInFlight: "in flight",
    TwoTasksAtOnce: "alone",
    TasksTakeNoHostTime: "duration",
    StepsTakeNoTime: "duration",
    StepsApartTakeNoTime: "steps",
    StepsComeWithTheGradient: "version",
    VersionsHaveNoWay: "version",
    StepsGoFirst: "steps",
    MessagesTakeNoTime: "value",
    ChannelsCarryAllAtOnce: "channel",
    BuffersAreWrittenInAnyOrder: "turn",
    MemoryHasNoLimit: "memory",
    LayersAreThereAtOnce: "swap",
    SomebodyElseRunsIt: "once",
}
"""Mutant to the rule that it breaks; `VersionsOvertake` shows in one case in thousands, so it has its own."""
