"""A forked worker's life: its ends of the lines, its store and channel, and how it tells of an error."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sennit.data.loader import die_with_parent
from sennit.errors import RunError, UserError
from sennit.memory.cpu import CpuStore
from sennit.memory.device import HostDevice
from sennit.memory.store import HostStore
from sennit.memory.virtual import VirtualStore
from sennit.runtime.budget import with_budget
from sennit.runtime.channel import Arena, Channel, SharedMemoryChannel
from sennit.runtime.collecting import collect_seldom
from sennit.runtime.control import Line, PeerGone
from sennit.runtime.ending import await_end, explain, hear_out
from sennit.runtime.share import DeviceStore, Share
from sennit.runtime.usercode import calls_of
from sennit.runtime.worker import Worker
from sennit.trace.access import AccessLog


def run_worker(
    rank: int, share: Share, lines: dict[int, Line], arenas: list[Arena], launcher: Line, others: list[Line],
    logs: Path, parent: int,
) -> None:  # fmt: skip
    """Life of a forked worker; never returns.

    Args:
        lines: to the other workers.
        others: lines of other processes, to be closed here.
    """
    code = 1
    try:
        die_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's to handle
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for line in others:
            line.close()
        collect_seldom()
        code = _work(rank, share, lines, arenas, launcher, logs)
    except BaseException:
        sys.stderr.write(traceback.format_exc())
    finally:
        os._exit(code)


def _work(rank: int, share: Share, lines: dict[int, Line], arenas: list[Arena], launcher: Line, logs: Path) -> int:
    from sennit.recipe import use_recipe

    use_recipe(share.recipe)
    worker: Worker | None = None
    try:
        if share.placement.device == "cuda":
            from sennit.runtime.gpu import gpu_worker

            log = AccessLog(logs, rank)
            worker = gpu_worker(rank, share, lines, arenas, launcher, log)
        else:
            channel: Channel
            if share.hosts is None:
                channel = SharedMemoryChannel(rank, lines, arenas)
            else:
                from sennit.runtime.hosts.worker import far_channel

                channel, logs = far_channel(rank, share, lines, arenas, launcher, logs)
            log = AccessLog(logs, rank)
            if share.parts.channel is not None:
                channel = share.parts.channel(channel)
            store = (share.parts.store or _store_of(rank, share))(share.host)
            worker = Worker(rank, share, store, channel, lines.values(), launcher, log, torch.device("cpu"))
        launcher.send(("ready",))
        hear_out(worker)
        worker.channel.close()
        log.close()
        worker.recorder.close()
        return 0
    except PeerGone as gone:
        if worker is None and gone.peer != "launcher":  # while they met
            await_end(launcher)
        return 1
    except BaseException as error:
        _report(launcher, worker, error)
        return 1


def _store_of(rank: int, share: Share) -> Callable[[HostStore], DeviceStore]:
    """The slots of a worker without a GPU."""
    if share.placement.device == "virtual":
        return VirtualStore
    return lambda host: with_budget(rank, share, CpuStore(host), HostDevice)


def _report(launcher: Line, worker: Worker | None, error: BaseException) -> None:
    """Tell the launcher, and wait until it has been said."""
    known = explain(worker, error)
    if isinstance(known, RunError):
        error = known
    if isinstance(known, UserError):
        told: dict[str, Any] = {"kind": "user", "text": str(known)}
    else:
        place = ""
        if worker is not None and (task := worker.tasks.task) is not None:
            pass_ = "forward" if task.kind == "F" else "backward"
            place = (
                f" in the {pass_} of subnet {task.seq_id}, micro-batch {task.micro_batch}, step {worker.tasks.where!r}"
            )
        told = {
            "kind": "raised", "text": f"{type(error).__name__}: {error}"[:2000], "place": place,
            "trace": calls_of(error),
        }  # fmt: skip
        if isinstance(error, RunError):  # says it all: a full disk
            told.update(text=str(error), place="", trace="")
    with contextlib.suppress(PeerGone):
        launcher.send(("error", told))
        deadline = time.monotonic() + 2.0
        while not launcher.flush() and time.monotonic() < deadline:
            select.select([], [launcher], [], 0.05)
