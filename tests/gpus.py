"""GPUs in tests: hidden from the process of the tests, there in processes of their own.

    process of the tests   no GPU to be seen ── forks ──▶ workers on the CPU
           │ spawns
           ▼
    `apart`, `on_gpu`      all GPUs          ── forks ──▶ workers on GPUs, as long as this one has not started CUDA

A process that sees a GPU is soon unfit to fork workers, CPU workers too: the first `backward()` of CPU tensors makes
autograd's threads for GPUs ("Unable to handle autograd's threading in combination with fork-based multiprocessing"),
`torch.cuda.is_available()` and each step of Adam start the driver ("Cannot re-initialize CUDA in forked subprocess",
"CUDA error: initialization error"), and none of that shows in `torch.cuda.is_initialized()`. So a test that ran before
would decide whether another passes. Where no GPU can be seen nothing is started, and a test that means to use one right
here fails by itself: "No CUDA GPUs are available".
"""

from __future__ import annotations

import fcntl
import functools
import importlib
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from sennit.runtime.forked import in_child
from sennit.supernet.context import set_kernel_flags

VISIBLE = "CUDA_VISIBLE_DEVICES"
KEPT = "SENNIT_TESTS_CUDA_VISIBLE_DEVICES"
"""What `VISIBLE` was before; empty if it was not set. In the environment, for processes of pytest-xdist."""

needs_gpu = pytest.mark.gpu(count=1)
needs_two_gpus = pytest.mark.gpu(count=2)
needs_gpu_alone = pytest.mark.gpu(count=1, alone=True)
"""For tests that take all memory of the GPU: others, in other processes of pytest-xdist, wait meanwhile."""

TURNS = Path(tempfile.gettempdir()) / f"sennit-tests-gpu-{os.getuid()}.lock"


@contextmanager
def turn(*, alone: bool, lock: Path = TURNS) -> Iterator[None]:
    """While a test uses the GPU: beside others, or alone."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def hide() -> None:
    """Let this process, and those that it starts, see no GPU. Before anything looks for one."""
    if KEPT not in os.environ:
        os.environ[KEPT] = os.environ.get(VISIBLE, "all")
    os.environ[VISIBLE] = ""


def show() -> None:
    """Undo `hide`."""
    kept = os.environ.get(KEPT, "all")
    if kept == "all":
        os.environ.pop(VISIBLE, None)
    else:
        os.environ[VISIBLE] = kept


@functools.cache
def gpu_count() -> int:
    """How many GPUs this machine has for tests."""
    return in_child(_shown) if torch.backends.cuda.is_built() else 0


def _shown() -> int:
    show()
    return torch.cuda.device_count()


def settle() -> None:
    """One thread and deterministic kernels, as recipes have by default."""
    torch.set_num_threads(1)
    set_kernel_flags("fp32")


class GpuProcess:
    """A spawned process that sees the GPUs and calls what it is told to."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,))
        self.process.start()
        theirs.close()

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The result of `function(*arguments, **named)`, or what it raised."""
        self.line.send((function, arguments, named))
        try:
            good, value, place = self.line.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"the process with the GPUs ended with code {self.process.exitcode}") from None
        if not good:
            value.add_note(place)
            raise value
        return value

    def close(self) -> None:
        self.line.close()
        self.process.join()


def _serve(line: Connection) -> None:
    show()
    while True:
        try:
            function, arguments, named = line.recv()
        except EOFError:
            return
        settle()
        try:
            answer = True, function(*arguments, **named), ""
        except BaseException as error:  # a failed assertion and pytest's own included
            answer = False, error, traceback.format_exc()
        line.send(answer)


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it in a process that sees the GPUs and has not started CUDA, which workers ask for."""
    process = GpuProcess()
    try:
        return process.call(function, *arguments)
    finally:
        process.close()


_shared: list[GpuProcess] = []


def on_gpu(test: Callable[..., None]) -> Callable[..., None]:
    """A test whose body runs in the process that sees the GPUs, one for all such tests. It must not fork workers.

    Its arguments travel there, so fixtures must be plain values.
    """

    @functools.wraps(test)
    def there(**named: Any) -> None:
        if not _shared:
            _shared.append(GpuProcess())
        try:
            _shared[0].call(_body, test.__module__, test.__name__, **named)
        except BaseException:  # a kernel that failed may have spoilt it
            end()
            raise

    return needs_gpu(there)


def _body(module: str, name: str, /, **named: Any) -> None:
    getattr(importlib.import_module(module), name).__wrapped__(**named)


def end() -> None:
    """End the process of `on_gpu`."""
    while _shared:
        _shared.pop().close()
