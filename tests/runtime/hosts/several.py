"""Runs on several hosts, each a launcher of its own, forked here, on loopback."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sennit.recipe import Placement, Recipe
from sennit.runtime.hosts.guest import follow
from sennit.runtime.hosts.meeting import Meeting
from sennit.runtime.hosts.wire import KEY_BYTES, listen
from sennit.runtime.refuse import check
from sennit.runtime.request import Request
from sennit.runtime.train import train

GOOD, FAILED = 0, 3
"""How other launchers end: as they should, or with an error, which they have written down."""

Guest = Callable[[Request, Meeting], None]


@contextmanager
def guests(request: Request, count: int, notes: Path, guest: Guest = follow) -> Iterator[tuple[Meeting, list[int]]]:
    """The meeting of host 0 with others, and their process ids. They are buried at the end, and leave `notes/HOST`.

    Args:
        guest: what another launcher does.
    """
    listener, key = listen(), secrets.token_bytes(KEY_BYTES)
    address = ("127.0.0.1", listener.getsockname()[1])
    notes.mkdir(exist_ok=True)
    pids: list[int] = []
    for host in range(1, count):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                listener.close()
                with Meeting.join(host, count, address, key) as meeting:
                    guest(request, meeting)
                code = GOOD
            except BaseException as error:
                (notes / str(host)).write_text(f"{type(error).__name__}: {error}")
                code = FAILED
            finally:
                os._exit(code)
        pids.append(pid)
    codes: list[int] = []
    try:
        with Meeting.await_others(count, listener, key, 30.0) as meeting:
            yield meeting, pids
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    finally:
        if not codes:
            signal.alarm(20)  # rather than to wait for ever for one that does not end
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
            signal.alarm(0)
        (notes / "codes").write_text(repr(codes))


def request_of(made: Recipe, out: Path, steps: int | None = None, resume: bool = False, **placement: Any) -> Request:
    request = Request(recipe=made, placement=Placement(**placement), out=out, steps=steps, resume=resume)
    check(request)
    return request


def run_on(
    hosts: int, made: Recipe, out: Path, steps: int | None = None, resume: bool = False, guest: Guest = follow,
    **placement: Any,
) -> dict[str, Any]:  # fmt: skip
    """Train on several hosts; the result is host 0's."""
    request = request_of(made, out, steps, resume, **placement)
    with guests(request, hosts, out.with_name(out.name + ".guests"), guest) as (meeting, _):
        meeting.brief(request)
        return train(replace(request, meeting=meeting))


def codes(out: Path) -> str:
    """How the other launchers ended."""
    return (out.with_name(out.name + ".guests") / "codes").read_text()
