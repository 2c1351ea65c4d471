"""`Ahead`: a process beside a worker that draws subnets to come and records their programs.

    worker        asks for 9     runs tasks, hears messages     takes in 9: its program has come, or is recorded here
                      │                                          ▲
    beside it         └──▶ draws 9 ──▶ records ──▶ pickles ──────┘

Nobody waits: what has not come when it is needed is recorded by the worker. So is what would be refused, which gives
the error its usual words, and what one recording does not settle (`Recordings.once`). The process ends by itself at the
first program that does not come out of pickle as it went in: such a space's programs are recorded by the worker.
"""

from __future__ import annotations

import contextlib
import copyreg
import gc
import io
import os
import pickle
import select
import signal
import types
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from sennit.program.step import Program
from sennit.program.template import DeviceRef, DimExpr, ModeConst, OpExpr, ParamRef, Ref, map_tree
from sennit.runtime.control import Line, PeerGone
from sennit.runtime.forked import fork_to

if TYPE_CHECKING:
    from sennit.supernet.build import Built
    from sennit.supernet.samplers import Sampler

DEPTH = 8
"""Subnets that are asked for ahead of those let in."""


class Ahead:
    """What a worker has of that process, which is forked when it is first asked.

    Args:
        sampler: draws the archs, by seq id alone; without one there is no process, and nothing ever comes.
        lines: of the worker, which the process must not hold.
    """

    def __init__(self, built: Built, sampler: Sampler | None, lines: Iterable[Line]) -> None:
        self.built, self.sampler, self.lines = built, sampler, list(lines)
        self.wanted = sampler is not None
        self.line: Line | None = None
        self.pid = 0
        self.asked: set[int] = set()
        """Subnets whose programs are not handed over yet."""
        self.came: dict[int, bytes | None] = {}
        """Their answers; None if the worker must record the program."""
        self.used = 0

    def open_lines(self) -> list[Line]:
        """What a napping worker listens to, too."""
        return [] if self.line is None else [self.line]

    def ask(self, seq_id: int, lowest: int) -> None:
        """Have a program recorded.

        Args:
            lowest: those of subnets below are not needed any more.
        """
        if not self.wanted:
            return
        try:
            if self.line is None:
                self._start()
            assert self.line is not None
            self.line.send((lowest, seq_id))
            self.asked.add(seq_id)
        except OSError:  # it was killed, or there is no room for another process
            self.close()

    def settled(self, seq_id: int) -> bool:
        """Whether the program of a subnet has come, or will not."""
        self._receive()
        return seq_id not in self.asked or seq_id in self.came

    def hand_over(self, seq_id: int) -> dict[str, Any] | None:
        """The program of a subnet is needed: give it to the worker's recordings.

        Returns:
            Its arch, as drawn; None if it has not come.
        """
        self._receive()
        self.asked.discard(seq_id)
        answer = self.came.pop(seq_id, None)
        if answer is None:
            return None
        arch, key, program = pickle.loads(answer)
        self.built.recordings.put(arch, self.built.example[0], key, program)
        self.used += 1
        return arch

    def counters(self) -> dict[str, float]:
        """For the trace: how many programs have come in time, since the last call."""
        used, self.used = self.used, 0
        return {"programs recorded beside": used} if self.wanted or used else {}

    def close(self) -> None:
        """End the process. What has come is still handed over."""
        self.wanted = False
        if self.line is not None:
            self.line.close()
            self.line = None
            os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self.asked.intersection_update(self.came)

    def _start(self) -> None:
        mine, its = Line.pair("worker", "programs")
        recordings, sampler, others = self.built.recordings, self.sampler, [mine, *self.lines]
        example = self.built.example[0]
        assert sampler is not None

        def answer(seq_id: int) -> bytes | None:
            try:
                arch = sampler.draw(seq_id, [])
                recorded = recordings.once(arch, example)
            except Exception:  # the worker will say it
                return None
            return None if recorded is None else pickled((arch, *recorded))

        def life() -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the worker ends this
            gc.freeze()  # what the worker holds, on its device too, is not to be freed here
            torch.set_num_threads(1)  # thread pools do not outlive a fork
            for line in others:
                line.close()
            _serve(its, answer)

        self.pid = fork_to(life)
        its.close()
        self.line = mine

    def _receive(self) -> None:
        if self.line is None:
            return
        try:
            self.line.flush()
            for seq_id, answer in self.line.receive():
                if seq_id in self.asked:
                    self.came[seq_id] = answer
        except PeerGone:
            self.close()


def _serve(line: Line, answer: Callable[[int], bytes | None]) -> None:
    """Record what is asked for, until the worker closes its end."""
    waiting: deque[int] = deque()
    while True:
        if not waiting:
            select.select([line], [line] if line.out else [], [])
        for lowest, seq_id in line.receive():
            while waiting and waiting[0] < lowest:
                waiting.popleft()
            waiting.append(seq_id)
        line.flush()
        if waiting:
            seq_id = waiting.popleft()
            line.send((seq_id, answer(seq_id)))


def pickled(recorded: tuple[dict[str, Any], str, Program]) -> bytes:
    """An arch, the key of its program, and the program, as bytes that give the same.

    Raises:
        Exception: there are none, as when an argument is an object of the user's that is compared by identity.
    """
    held = io.BytesIO()
    _Pickler(held, protocol=5).dump(recorded)
    body = held.getvalue()
    again = pickle.loads(body)
    if again != recorded or not all(map(_alike, _constants(recorded), _constants(again))):
        raise ValueError("the program changes when it is pickled")
    return body


def _constants(recorded: tuple[dict[str, Any], str, Program]) -> list[Any]:
    """What the steps of a program and its result are given besides tensors."""
    arch, _, program = recorded
    held = [arch, program.inputs, program.output, *((s.args, s.kwargs, s.out) for s in program.steps)]
    found: list[Any] = []

    def note(leaf: Any) -> None:
        found.append(leaf)

    def keys(tree: Any) -> None:
        if isinstance(tree, dict):
            found.extend(tree)
        if isinstance(tree, dict | tuple | list):
            for item in tree.values() if isinstance(tree, dict) else tree:
                keys(item)

    map_tree(note, held)
    keys(held)
    return found


_VALUES = frozenset({
    type(None), bool, int, float, complex, str, bytes, torch.Size, Ref, ParamRef, DeviceRef, ModeConst, DimExpr, OpExpr,
})  # fmt: skip
"""Types of which nobody can tell two equal ones apart."""


def _alike(one: Any, other: Any) -> bool:
    """Whether a module that is handed the one or the other does the same. Equality alone is what the user's class says
    it is; and a set that is equal may come in another order."""
    return one is other or (type(one) is type(other) and type(one) in _VALUES)


class _Pickler(pickle.Pickler):
    """Knows what `x.T` is to a recording: the getter of an attribute, which Python does not pickle by itself."""

    dispatch_table = copyreg.dispatch_table | {
        types.GetSetDescriptorType: lambda getter: (getattr, (getter.__objclass__, getter.__name__))
    }
