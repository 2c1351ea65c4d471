"""`Launched`: a simulation in which a host launches what its device computes, task by task.

    host      ▒▓▓▓F1▓ ▒▓▓B1▓ ▒▓▓F2▓       ▒ before the first launch    ▓ launches
    device       ░░F1░░ ░░░░░B1░░░░ ░F2      a task begins with its first launch, and does not end before its last

The host goes on to the next task once it has launched one, if that one's input is launched as well: it need not be
there yet, since the device waits for it. So short tasks behind long ones cost their host nothing, and a device that is
quicker than its host waits for it inside of tasks, which seconds between tasks do not show. Gradients of weights alone
are not launched ahead: a host does that when its device has become idle, which waits for the first launch then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sennit.schedule.order import Task
from sennit.simulate.engine import Simulation
from sennit.simulate.flight import Came
from sennit.simulate.load import Piece


@dataclass(frozen=True)
class Launches:
    """Seconds of a host.

    Attributes:
        task: before the first launch of a task.
        forward, backward: of a task, beside its layers.
        forward_layer, backward_layer: of each layer; `input_layer` and `weight_layer` where backwards are split.
        step: of steps that are taken together.
        step_group: of each group.
        subnet: when one is let in.
    """

    task: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    forward_layer: float = 0.0
    backward_layer: float = 0.0
    input_layer: float = 0.0
    weight_layer: float = 0.0
    step: float = 0.0
    step_group: float = 0.0
    subnet: float = 0.0

    def of(self, kind: str, layers: int) -> float:
        """Of a task, from its first launch to its last."""
        if kind == "F":
            return self.forward + layers * self.forward_layer
        each = {"B": self.backward_layer, "I": self.input_layer, "W": self.weight_layer}[kind]
        return self.backward + layers * each


class Launched(Simulation):
    """A simulation with hosts. Costs are those of devices that wait for nothing."""

    launches: Launches

    def begin(self, launches: Launches) -> None:
        """What hosts take; before `run`."""
        self.launches = launches
        self.free = [0.0] * len(self.idle)
        """Until when each host launches."""
        self.launched: dict[Task, float] = {}
        """When the last launch of each task was made, of subnets in flight."""
        self.over = 0.0
        """When all of the subnet that was finished last had been launched: another comes in for it then, whether
        devices have ended it or not."""
        self.since: dict[Task, float] = {}
        """From when on a host can launch a ready task."""

    def enter(self, task: Task, came: Came) -> None:
        made = self.now if came.by is None else min(self.now, self.launched.get(came.by, self.now))
        self.since[task] = max(self.since.get(task, 0.0), made)
        super().enter(task, came)

    def seconds(self, task: Task) -> float:
        piece = self.flights[task.seq_id].pieces[task.run]
        worker, device = piece.where(task.micro_batch), super().seconds(task)
        since = self.since.pop(task)
        if task.kind == "W":  # put off until the device has nothing else to do (`runtime/put_off.py`)
            since = self.now
        end, last = self.until(worker, since, device, self.launches.of(task.kind, piece.layers))
        self.launched[task] = last
        return end - self.now

    def step_seconds(self, worker: int, tasks: Sequence[Task]) -> float:
        pieces = [self.flights[task.seq_id].pieces[task.run] for task in tasks]
        host = self.launches.step + sum(self.launches.step_group * stepped(piece) for piece in pieces)
        ready = max(self.launched.get(task, 0.0) for task in tasks)
        end, last = self.until(worker, ready, super().step_seconds(worker, tasks), host)
        self.launched.update(dict.fromkeys(tasks, last))  # who reads the versions that they make
        return end - self.now

    def until(self, worker: int, ready: float, device: float, host: float) -> tuple[float, float]:
        """When a device that is free now ends something, and when its host has launched it."""
        first = max(self.free[worker], ready) + self.launches.task
        self.free[worker] = last = first + host
        return max(max(self.now, first) + device, last), last

    def take_in(self, y: int, pieces: Sequence[Piece]) -> None:
        self.free = [max(free, self.over) + self.launches.subnet for free in self.free]
        super().take_in(y, pieces)

    def finish(self, y: int) -> None:
        mine = [task for task in self.launched if task.seq_id == y]
        self.over = max((self.launched[task] for task in mine), default=self.now)
        super().finish(y)
        for task in mine:
            del self.launched[task]


def stepped(piece: Piece) -> float:
    """Groups of a run that one worker steps."""
    return len(piece.groups) / len(piece.workers)
