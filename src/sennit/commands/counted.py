"""What a call counted beside its time, in words: layers that come and go, graphs, hosts, a device that was full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sennit.commands.output import figure
from sennit.words import counted

SHOWN, MUCH = 0.02, 0.1
"""Parts of the workers' time, from which on loading is shown, and something is said of it."""


def counted_rows(call: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Rows of a table, for what there is.

    Args:
        call: `result.json`, or one of its `earlier`.
    """
    rows: list[tuple[str, str]] = []
    if slots := call.get("slots"):
        rate = slots.get("hit_rate")
        hits = "no reads" if rate is None else f"{100 * rate:.1f} % of reads were there already"
        moved = f"{_mib(slots['fetched_bytes'])} fetched, {_mib(slots['written_bytes'])} written back"
        rows.append(("layers", f"{hits}, {moved}, {_seconds(slots['stall_s'])} waited for layers"))
    if graphs := call.get("graphs"):
        steps = f"{graphs['replayed_steps']:,} steps replayed, {graphs['eager_steps']:,} run eagerly"
        kept = f"; {graphs['kept_steps']:,} of the replayed kept what they made" if "kept_steps" in graphs else ""
        rows.append(("graphs", f"{graphs['captured']:,} captured; {steps}{kept}"))
    if (hosts := call.get("hosts")) and "pushes" in hosts:
        pushed = f"{hosts['pushes']:,} versions pushed ({_mib(hosts['pushed_bytes'])})"
        other = f"{_mib(hosts['tensor_bytes'])} of values and gradients, {_mib(hosts['gathered_bytes'])} at cuts"
        rows.append(("hosts", f"{hosts['hosts']}: {pushed}, {other}; {_seconds(hosts['stall_s'])} waited for pushes"))
    if (loading := call.get("loading_s")) and (workers := call.get("workers")):
        share = loading / (workers * call["seconds"])
        if share >= SHOWN:
            more = "; more --loaders load them beside" if share >= MUCH else ""
            rows.append(("data", f"{share:.0%} of the workers' time went by with loading batches{more}"))
    if again := call.get("tasks_run_again"):
        rows.append(("full", f"a device was: {counted(again, 'task')} ran again"))
    return rows


def subnets_of(call: Mapping[str, Any]) -> str:
    """Which subnets a call ran: `subnets 17 to 39`."""
    first, last = call["first"], call["steps"] - 1
    return f"subnet {first}" if first == last else f"subnets {first} to {last}"


def workers_of(call: Mapping[str, Any]) -> str:
    """`plain loop`, or how many workers there were."""
    if call.get("engine") == "plain":
        return "plain loop"
    workers, replicas = call["workers"], call.get("replicas") or 1
    return f"{counted(workers, 'worker')}{f', {replicas} a stage' if replicas > 1 else ''}"


def took(call: Mapping[str, Any]) -> str:
    """Seconds, rate and bubble of a call."""
    rate = "" if call.get("subnets_per_s") is None else f", {call['subnets_per_s']:.3g} subnets/s"
    bubble = "" if call.get("bubble") is None else f", bubble {call['bubble']:.2f}"
    return f"{call['seconds']:.1f} s{rate}{bubble}"


def _mib(count: float) -> str:
    return f"{figure(count / 2**20)} MiB" if count else "nothing"


def _seconds(seconds: float) -> str:
    return f"{figure(float(seconds))} s"
