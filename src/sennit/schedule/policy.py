"""`Policy`: a way to order tasks, under a name. A new one here is a file with `POLICY` in it and a line in `MODULES`;
users name theirs by `file.py:Name`.

    name ──▶ Policy ──order(worker, setting)──▶ Order     asked by simulator and workers
                    ──place(setting, stage, number)──▶ worker     which worker has a stage of a micro-batch

A policy says in which order; what must be waited for is `Sync`'s business. Some orders make sense under some rules
only: a fixed list that goes on across steps would wait for ever for a version that comes later in the list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from sennit.errors import UserError
from sennit.plan.plan import Place
from sennit.schedule.order import Order
from sennit.schedule.setting import Setting
from sennit.supernet.resolve import is_file_name

MODULES: dict[str, str] = {
    "csp": "chain_order",
    "naspipe": "naspipe",
    "gpipe": "gpipe",
    "1f1b": "one_f_one_b",
    "interleaved": "interleaved",
    "zero-bubble": "zero_bubble",
    "zbv": "zbv",
    "chimera": "chimera",
    "pipedream": "pipedream",
    "tap": "tap",
}
"""Name to module of this package."""

Release = Literal["layer", "stage"]
"""What one run is, and so when a version is there: a layer, or all layers of a stage."""

Rule = Literal["csp", "bulk", "asp"]
"""Kinds of `SyncRule`."""


def looped(setting: Setting, stage: int, number: int) -> int:
    """Stages go round the workers."""
    return stage % setting.workers


def one_per_chunk(setting: Setting) -> int:
    """As many stages as workers have chunks in all."""
    return setting.workers * setting.chunks


def one_bulk(setting: Setting) -> int:
    """Subnets in flight of orders that finish a bulk before the next one."""
    return setting.bulk


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A way to order tasks.

    Attributes:
        order: worker and setting to the order of that worker.
        sync: the rule that it runs under unless told otherwise, as `SyncRule` spells it.
        rules: kinds of rule that it can run under.
        release: what a run is unless told otherwise.
        releases: what it may be. A fixed list knows stages only.
        split: backward in halves; None leaves it to the user.
        chained: whether its orders ask `Setting.chains`.
        chunked: whether a worker may have several chunks.
        warmed: whether a warm-up vector means something.
        in_flight: unfinished subnets unless told otherwise.
        place: setting, stage and `Setting.number` to the worker.
        per_micro_batch: whether `place` looks at the number.
        stages: how many the network is cut into.
    """

    order: Callable[[int, Setting], Order]
    sync: str = "bulk-per-worker"
    rules: tuple[Rule, ...] = ("csp", "bulk", "asp")
    release: Release = "stage"
    releases: tuple[Release, ...] = ("stage",)
    split: bool | None = False
    chained: bool = False
    chunked: bool = False
    warmed: bool = False
    in_flight: Callable[[Setting], int] = one_bulk
    place: Callable[[Setting, int, int], int] = looped
    per_micro_batch: bool = False
    stages: Callable[[Setting], int] = one_per_chunk

    def placed(self, setting: Setting) -> Place:
        """Who has a stage of a micro-batch of a subnet."""
        return lambda seq_id, micro_batch, stage: self.place(setting, stage, setting.number(seq_id, micro_batch))


def policy(name: str) -> Policy:
    """The policy of a name, of `file.py:Name` or of a CSV file (`schedule/own.py`).

    Raises:
        UserError: there is none.
    """
    if name not in MODULES:
        from sennit.schedule.own import policy_from_object, policy_from_table

        if is_file_name(name):
            return policy_from_object(name, list(MODULES))
        if name.endswith(".csv"):
            return policy_from_table(Path(name))
        raise UserError(
            f"there is no schedule {name!r}; there are {', '.join(MODULES)}, file.py:Name and files that end in .csv"
        )
    found = import_module(f"sennit.schedule.{MODULES[name]}").POLICY
    assert isinstance(found, Policy)
    return found
