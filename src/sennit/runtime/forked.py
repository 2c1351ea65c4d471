"""`in_child`, `in_children`: compute something in forked processes, so that this one stays fit to fork workers.

A process that has started CUDA cannot fork workers that use it, and the first `backward()` starts it even for
CPU tensors (autograd makes its device threads). So what needs either, before the workers are there, runs in a
child.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from sennit.data.loader import die_with_parent
from sennit.interrupts import uninterrupted
from sennit.runtime.thread_pools import end_thread_pools
from sennit.runtime.usercode import keep_place

T = TypeVar("T")


def fork() -> int:
    """`os.fork` with buffers written out. Threads that the process may have do not go along, and need not: a
    child of ours sets its thread pools up anew (`thread_pools.py`)."""
    sys.stdout.flush()
    sys.stderr.flush()
    end_thread_pools()
    with uninterrupted(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return os.fork()


def in_child(function: Callable[[], T]) -> T:
    """The result of `function()`, or the exception it raised, from a forked process."""
    return in_children([function])[0]


def in_children(functions: Sequence[Callable[[], T]]) -> list[T]:
    """The results of all functions, each from a forked process of its own; or the exception that one of them raised.

    In a process that has started CUDA they are called right here: a child could not use the GPU, and there is
    nothing left to keep clean.
    """
    if torch.cuda.is_initialized():
        return [function() for function in functions]
    children: list[tuple[int, int]] = []
    answers: list[bytes] = []
    try:
        for function in functions:
            children.append(_start(function))
        for _, reading in children:
            with os.fdopen(reading, "rb") as pipe:
                answers.append(pipe.read())
    except BaseException:  # Ctrl-C: children must not outlive what they were for
        for pid, _ in children:
            os.kill(pid, signal.SIGKILL)
        raise
    finally:
        for pid, _ in children:
            os.waitpid(pid, 0)
    results: list[T] = []
    for answer in answers:
        if not answer:
            raise RuntimeError("a helper process was killed before it could answer")
        good, value = pickle.loads(answer)
        if not good:
            raise value
        results.append(value)
    return results


def fork_to(life: Callable[[], None]) -> int:
    """Fork a process that calls `life()` and ends; it is killed if this one ends before.

    Returns:
        Its id.
    """
    parent = os.getpid()
    pid = fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent(parent)
        life()
        code = 0
    finally:
        os._exit(code)


def _start(function: Callable[[], object]) -> tuple[int, int]:
    """Fork a process that writes `function()` into a pipe.

    Returns:
        Its id, and the pipe's end to read from.
    """
    reading, writing = os.pipe()

    def life() -> None:
        os.close(reading)
        torch.set_num_threads(torch.get_num_threads())  # thread pools do not outlive a fork: make new ones
        try:
            answer = pickle.dumps((True, function()))
        except BaseException as error:
            keep_place(error)
            answer = pickle.dumps((False, error))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)

    pid = fork_to(life)
    os.close(writing)
    return pid, reading
