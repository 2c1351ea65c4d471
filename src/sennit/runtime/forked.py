"""`in_child`: compute something in a forked process, so that this one stays fit to fork workers.

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
from collections.abc import Callable
from typing import TypeVar

import torch

from sennit.data.loader import die_with_parent
from sennit.runtime.usercode import keep_place

T = TypeVar("T")


def fork() -> int:
    """`os.fork` with buffers written out. Threads that the process may have do not go along, and need not: a
    child of ours sets its thread pools up anew."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return os.fork()


def in_child(function: Callable[[], T]) -> T:
    """The result of `function()`, or the exception it raised, from a forked process.

    In a process that has started CUDA it is called right here: a child could not use the GPU, and there is
    nothing left to keep clean.
    """
    if torch.cuda.is_initialized():
        return function()
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = fork()
    if not pid:
        code = 1
        try:
            os.close(reading)
            die_with_parent(parent)
            torch.set_num_threads(torch.get_num_threads())  # thread pools do not outlive a fork: make new ones
            try:
                answer = pickle.dumps((True, function()))
            except BaseException as error:
                keep_place(error)
                answer = pickle.dumps((False, error))
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(answer)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            answer = pipe.read()
    except BaseException:  # Ctrl-C: the child must not outlive what it was for
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.waitpid(pid, 0)
    if not answer:
        raise RuntimeError("a helper process was killed before it could answer")
    good, value = pickle.loads(answer)
    if not good:
        raise value
    return value
