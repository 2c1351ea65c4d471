"""`Reasons`: `Ready`, remembering for each ready task what came last, when, and who made it."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from typing import Literal, NamedTuple, cast

from sennit.runtime.board import Board
from sennit.runtime.channel import Message
from sennit.schedule.action import Kind
from sennit.schedule.order import Task
from sennit.schedule.ready import Ready
from sennit.trace.span import Cause

Held = Literal["start", "cut", "draw", "in flight"]


class Reason(NamedTuple):
    """What a task waited for last. Fields as in `Span`; times are those of `time.monotonic`.

    Attributes:
        awaited: it was begun before that was there, which the device waited for.
    """

    ready: float
    left: float
    cause: Cause
    of: str = ""
    by: Task | None = None
    awaited: bool = False


class Reasons(Ready):
    """Counts down what tasks wait for, and says why they became ready when they did.

    Args:
        in_flight: most subnets that are unfinished at once.
    """

    def __init__(self, board: Board, in_flight: int) -> None:
        super().__init__()
        self.board, self.in_flight = board, in_flight
        self._held_up: Held = "start"
        self._reasons: dict[Task, Reason] = {}

    def held_up(self, why: Held) -> None:
        """The next subnet cannot come in yet: all before were let in, the limit is a cut, or it must be drawn."""
        self._held_up = why

    def add(self, task: Task, events: Iterable[Hashable]) -> None:
        super().add(task, events)
        if task not in self.missing:
            self._reasons[task] = self._at_once(task)

    def happened(self, event: Hashable, message: Message | None = None) -> None:
        """As in `Ready`; `message` is the one that brought it."""
        before = len(self.ready)
        super().happened(event)
        if len(self.ready) > before:
            reason = self._brought(event, message)
            for task in self.ready[before:]:
                self._reasons[task] = reason

    def take_reason(self, task: Task) -> Reason:
        """Why a task is ready; once."""
        return self._reasons.pop(task)

    def _at_once(self, task: Task) -> Reason:
        """Of a task that had nothing to wait for when it was added."""
        kind, y, j, run = task
        now = time.monotonic()
        if kind == "F":
            if self._held_up in ("start", "cut"):
                return Reason(now, now, self._held_up)
            of = "draw" if self._held_up == "draw" else f"subnet {y - self.in_flight}"
            return Reason(now, now, "admitted", of)
        if kind == "W":
            return Reason(now, now, "weight", "", Task("I", y, j, run))
        return Reason(now, now, "gradient", "loss", Task("F", y, j, run))

    def _brought(self, event: Hashable, message: Message | None) -> Reason:
        now = time.monotonic()
        match event:
            case ("version", str(group), _, int(version)):
                return self._made(now, "version", group, version)
            case ("word", str(group), (int(seq_id), _, _)):
                return self._made(now, "buffer", group, seq_id)
        assert message is not None
        cause: Cause = "value" if message.kind == "F" else "gradient"
        return Reason(now, min(message.sent, now), cause, "", maker(message), message.awaited)

    def _made(self, now: float, cause: Cause, group: str, version: int) -> Reason:
        moment, by = self.board.made(group, version) or (now, None)
        return Reason(now, min(moment, now), cause, group, by)


def signed(message: Message, task: Task | None) -> Message:
    """The message, with the task on whose account it is sent."""
    if task is not None:
        message.maker = task.kind
        if message.source < 0:
            message.micro_batch, message.source = task.micro_batch, task.run
    return message


def maker(message: Message) -> Task | None:
    """The task on whose account a message was sent."""
    if not message.maker:
        return None
    return Task(cast("Kind", message.maker), message.seq_id, message.micro_batch, message.source)
