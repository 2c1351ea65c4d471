"""Why a task is ready: what came last, when it was made, and by whom."""

from __future__ import annotations

import time

from sennit.runtime.board import Board
from sennit.runtime.channel import Message
from sennit.runtime.reasons import Reasons, maker, signed
from sennit.schedule.order import Task

F, B = Task("F", 3, 1, 2), Task("B", 3, 1, 2)


def reasons() -> Reasons:
    return Reasons(Board(["a", "b#buffers"]), in_flight=2)


def test_the_last_thing_is_named_with_its_maker() -> None:
    ready = reasons()
    ready.add(F, [("value", 3, 1, 2, 9), ("version", "a", 3, 1), ("word", "b#buffers", (2, 0, 0))])
    message = Message("F", 3, 1, 2, source=1, maker="F")
    ready.happened(("value", 3, 1, 2, 9), message)
    ready.board.task = Task("F", 2, 0, 4)
    ready.board.note("b#buffers", 2)
    ready.happened(("word", "b#buffers", (2, 0, 0)))
    assert not ready.take()
    ready.board.task = Task("B", 1, 0, 5)
    before = time.monotonic()
    ready.board.note("a", 1)
    after = time.monotonic()
    ready.happened(("version", "a", 3, 1))
    assert ready.take() == [F]
    reason = ready.take_reason(F)
    assert (reason.cause, reason.of, str(reason.by)) == ("version", "a", "5B1.0")
    assert before <= reason.left <= after <= reason.ready


def test_messages_say_when_they_were_sent_and_by_whom() -> None:
    ready = reasons()
    ready.add(F, [("value", 3, 1, 2, 9)])
    ready.add(B, [("grad", 3, 1, 2, 9, 4)])
    forward, backward = (signed(Message(kind, 3, 1, 2, n), Task(kind, 3, 1, n)) for kind, n in (("F", 1), ("B", 4)))
    ready.happened(("value", 3, 1, 2, 9), forward)
    ready.happened(("grad", 3, 1, 2, 9, 4), backward)
    for task, message, cause, by in ((F, forward, "value", "1F3.1"), (B, backward, "gradient", "4B3.1")):
        reason = ready.take_reason(task)
        assert (reason.cause, str(reason.by), reason.left) == (cause, by, message.sent)


def test_tasks_that_wait_for_nothing() -> None:
    ready = reasons()
    for why, cause, of in (("cut", "cut", ""), ("draw", "admitted", "draw"), ("in flight", "admitted", "subnet 1")):
        ready.held_up(why)
        ready.add(F, [])
        assert ready.take_reason(F)[2:5] == (cause, of, None)
    ready.add(B, [])
    assert ready.take_reason(B)[2:5] == ("gradient", "loss", F)
    ready.add(Task("W", 3, 1, 2), [])
    assert ready.take_reason(Task("W", 3, 1, 2))[2:5] == ("weight", "", Task("I", 3, 1, 2))
    assert ready.take() == [F, F, F, B, Task("W", 3, 1, 2)]


def test_a_version_that_the_board_has_forgotten_has_no_maker() -> None:
    ready = reasons()
    ready.add(F, [("version", "a", 3, 1)])
    ready.board.note("a", 1)
    ready.board.note("a", 2)
    ready.happened(("version", "a", 3, 1))
    reason = ready.take_reason(F)
    assert (reason.cause, reason.of, reason.by) == ("version", "a", None) and reason.left == reason.ready


def test_steps_of_nobody_are_noted_without_a_maker() -> None:
    board = Board(["a"])
    assert board.made("a", -1) is None and board.made("a", 0) is None, "nothing was made yet"
    board.note("a", 0)
    made = board.made("a", 0)
    assert made is not None and made[1] is None


def test_norms_are_sent_on_account_of_a_task() -> None:
    norms = signed(Message("N", 3, -1, -1, -1), Task("W", 3, 1, 4))
    assert maker(norms) == Task("W", 3, 1, 4)
    assert maker(signed(Message("N", 3, -1, -1, -1), None)) is None


def test_what_was_begun_before_its_tensors_were_there_says_so() -> None:
    ready = reasons()
    ready.add(F, [("value", 3, 1, 2, 9)])
    message = signed(Message("F", 3, 1, 2, 1, awaited=True), Task("F", 3, 1, 1))
    ready.happened(("value", 3, 1, 2, 9), message)
    assert ready.take_reason(F).awaited
