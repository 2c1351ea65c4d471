"""A budget: whether it holds what one subnet needs of a worker, found before anything runs; and the slots under it."""

from __future__ import annotations

from collections.abc import Callable

from sennit.errors import UserError
from sennit.memory.cpu import CpuStore
from sennit.memory.cuda import CudaStore
from sennit.memory.device import Device
from sennit.memory.eviction import LatestNextUse, LeastRecent, never
from sennit.memory.slots import SlotStore, too_little
from sennit.memory.stepped import Stepped
from sennit.memory.store import HostStore
from sennit.plan.plan import Plans
from sennit.runtime.share import DeviceStore, Share
from sennit.supernet.build import Built


def with_budget(rank: int, share: Share, kept: CpuStore | CudaStore, device: Callable[[], Device]) -> DeviceStore:
    """The store of a worker: slots beside one that keeps everything, or that one alone if there is no budget.

    On a GPU a layer that other workers use too has a slot, as under a budget: what is passed on, or written back and
    fetched, goes beside what is computed. There are slots for all then.
    """
    placement, host = share.placement, share.host
    budget = placement.budget_bytes
    if not placement.budget:
        wandering = any(host.comes_and_goes(group) for group in share.wandering)
        if placement.device != "cuda" or not wandering:
            return kept
        budget = sum(host.coming_and_going.values()) + host.spare()
    eviction = LatestNextUse(never) if placement.evict == "next-use" else LeastRecent()
    lone = {group: worker for group, worker in share.lone.items() if group in share.wandering}
    here = frozenset(group for group, worker in lone.items() if worker == rank)
    return SlotStore(kept, device(), share.wandering, budget, eviction, Stepped(here, frozenset(lone) - here))


def may_come(rank: int, built: Built, plans: Plans, host: HostStore) -> int:
    """Bytes of all layers, with their state, that a worker may use in a run."""
    used: set[str] = set()
    for program in built.covering:
        for step in program.steps:
            workers = plans.members(step.block)
            if workers is None or rank in workers:
                used.update(built.groups.of_step(step)[0])
    return sum(map(host.size, used))


def refuse_small_budget(built: Built, plans: Plans, host: HostStore, budget: int) -> None:
    """The largest subnet must fit on each worker, and the largest group once more, for its step.

    Raises:
        UserError: it does not.
    """
    shares = largest_shares(built, plans, host)
    share = max(shares, default=0)  # what is enough there is enough everywhere
    if shares and share + host.spare() > budget:
        raise UserError(too_little(f"on worker {shares.index(share)}", share, host.spare(), budget))


def largest_shares(built: Built, plans: Plans, host: HostStore) -> list[int]:
    """Per worker, bytes of the largest candidates of its blocks, and of what every subnet has. Empty if subnets are
    cut in different ways: then each is looked at when it comes in."""
    if not plans.static:
        return []
    always = built.always[0]
    held: list[set[str]] = [set() for _ in range(plans.workers)]
    largest: list[dict[str, int]] = [{} for _ in range(plans.workers)]
    for program in built.covering:
        found: dict[tuple[int, str], set[str]] = {}
        for step in program.steps:
            groups = {group for group in built.groups.of_step(step)[0] if host.comes_and_goes(group)}
            worker = plans.worker(0, 0, step.block)
            held[worker] |= groups & always
            found.setdefault((worker, step.block), set()).update(groups - always)
        for (worker, block), groups in found.items():
            size = sum(host.size(group) for group in groups)
            largest[worker][block] = max(largest[worker].get(block, 0), size)
    return [
        sum(host.size(group) for group in fixed) + sum(blocks.values())
        for fixed, blocks in zip(held, largest, strict=True)
    ]
