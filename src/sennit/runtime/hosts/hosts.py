"""`Hosts`: which worker is on which host."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from sennit.errors import UserError
from sennit.recipe import Placement, Recipe


@dataclass(frozen=True)
class Hosts:
    """Workers in turn, as evenly as can be: 5 workers on 2 hosts are 0 1 | 2 3 4.

    Attributes:
        here: this host; host 0 is in command.
        count: how many hosts there are.
        workers: on all of them.
        offset: what this host's `time.monotonic` shows when host 0's shows nought, seconds.
    """

    here: int
    count: int
    workers: int
    offset: float = 0.0

    @cached_property
    def begins(self) -> list[int]:
        """Of each host, its first worker."""
        return [host * self.workers // self.count for host in range(self.count)]

    def of(self, worker: int) -> int:
        """The host of a worker."""
        return bisect_right(self.begins, worker) - 1

    def on(self, host: int) -> range:
        """The workers of a host."""
        return range(self.begins[host], [*self.begins, self.workers][host + 1])


def refuse(recipe: Recipe, placement: Placement, engine: str, count: int) -> None:
    """Refuse what does not run on several hosts yet.

    Raises:
        UserError: what, and what to do instead.
    """
    said = f"on {count} hosts"
    if engine != "pipeline":
        raise UserError(f"--engine {engine} is a loop in one process; {said} start it without torchrun")
    if placement.device != "cpu":
        raise UserError(f"{said}, --device {placement.device} does not run yet; use --device cpu, or one host")
    if placement.budget:
        raise UserError(
            f"--budget {placement.budget:g} does not run {said} yet: versions from other hosts come past the slots of "
            "a device; leave it out, or use one host"
        )
    if recipe.sync_rule.kind == "asp" or recipe.sync_rule.behind:
        raise UserError(f"sync = {recipe.sync!r} does not run {said} yet; use 'csp' or 'bulk:K', or one host")
    if placement.workers < count:
        raise UserError(
            f"--workers {placement.workers}: it counts the workers of all hosts, and each of {count} needs one; use at "
            f"least --workers {count}, or fewer hosts"
        )
