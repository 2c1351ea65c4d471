"""How a worker ends that does not end by itself: a peer is gone, or an error whose cause is known."""

from __future__ import annotations

import select
import time
import traceback

from sennit.data.loader import loader_death
from sennit.errors import BudgetError, RunError, SubnetError, UserError
from sennit.runtime.control import Line, PeerGone
from sennit.runtime.dryrun import names_nondeterminism
from sennit.runtime.full import is_full, short
from sennit.runtime.transport import shared_gpus
from sennit.runtime.usercode import place_in_user_code
from sennit.runtime.worker import Worker

FULL = (
    "the device of worker {rank} is full at {where}, also after everything that could leave it has left ({why}). Use a "
    "lower --in-flight, a --budget (or a lower one), or more micro_batches in the recipe, which makes it another recipe"
)

FULL_AT_START = (
    "its device is full before anything has run ({why}). Other programs hold its memory, or --budget asks for more "
    "than it has; see `nvidia-smi`"
)


def hear_out(worker: Worker) -> None:
    """Run, and turn the end of a peer into silence: the launcher knows, and will say what to do."""
    try:
        while not worker.stopped:
            try:
                worker.run()
            except (BudgetError, SubnetError) as error:
                halt(worker, error)
    except PeerGone as gone:
        if gone.peer == "launcher":
            raise
        await_end(worker.launcher)


def await_end(launcher: Line) -> None:
    """A peer is gone. Wait for what the launcher does about it: whoever ends first is taken for the one that failed."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        select.select([launcher], [], [], 0.1)
        try:
            if any(kind == "stop" for kind, *_ in launcher.receive()):
                return
        except PeerGone:
            return


def halt(worker: Worker, error: BudgetError | SubnetError) -> None:
    """A subnet is too large to be let in here, or its program is refused. Those before it are finished, as before one
    whose loss is not finite; under `bulk:K` those before its bulk."""
    y = error.seq_id // worker.share.bulk * worker.share.bulk
    worker.entry.halt = min(worker.entry.halt, y)
    worker.entry.limit = min(worker.entry.limit, y)
    worker.report(("short" if isinstance(error, BudgetError) else "unfit", y, str(error)))


def order_at_fault(error: BaseException) -> str | None:
    """What to say if an order of the user's raised it, told of a task or asked for one; else None."""
    asked = (Worker.give.__code__, Worker.given_back.__code__)
    place = place_in_user_code(error)
    if place is None or not any(frame.f_code in asked for frame, _ in traceback.walk_tb(error.__traceback__)):
        return None
    return (
        f"the schedule: {place} raised {type(error).__name__}: {error}. docs/own_schedule.md says what an order is told"
    )


def explain(worker: Worker | None, error: BaseException) -> UserError | RunError | None:
    """What to say of failures whose cause is known.

    Args:
        worker: None while it is being made.
    """
    if isinstance(error, UserError):
        return error
    if (order := order_at_fault(error)) is not None:
        return RunError(order)
    if worker is None:
        return RunError(FULL_AT_START.format(why=short(error))) if is_full(error) else None
    if (died := loader_death(error)) is not None:
        return died
    if is_full(error):
        told = FULL.format(rank=worker.rank, where=worker.tasks.where or "its start", why=short(error))
        if shared_gpus(worker.share.placement.workers, worker.share.gpus):
            told += ". Workers share a GPU here, and fewer --workers leave more for each"
        return RunError(told)
    if names_nondeterminism(error):
        return UserError(
            f"step {worker.tasks.where!r} uses an operator without a deterministic kernel: "
            f"{str(error).splitlines()[0][:200]}. Replace it, or set allow_nondeterministic = true in the recipe; "
            "such a run is not comparable"
        )
    return None
