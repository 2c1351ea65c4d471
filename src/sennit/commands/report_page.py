"""What `sennit report` puts on its page: of a run folder, or of a trace alone."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sennit.commands.counted import workers_of
from sennit.commands.output import figure
from sennit.commands.recorded import HASHES, Recorded
from sennit.trace.access import read_accesses
from sennit.trace.access_order import access_order
from sennit.trace.events import Trace, read_call, refuse_impossible, trace_beside
from sennit.trace.html import write_page
from sennit.trace.idle import Idleness
from sennit.trace.page_data import Content, Facts, page_data
from sennit.trace.perfetto import MOST_SPANS


def trace_of(recorded: Recorded) -> Trace | None:
    """The trace of a run's last call; none of a plain loop, or of a run that has just begun."""
    path = trace_beside(recorded.path / "access.jsonl")
    if recorded.run["engine"] == "plain" or not path.is_file() or not path.stat().st_size:
        return None
    trace = read_call(path, MOST_SPANS)
    refuse_impossible(path, trace)
    return trace


def run_content(
    recorded: Recorded, facts: Mapping[str, Any], rows: list[tuple[str, str]], trace: Trace | None
) -> Content:
    """A run.

    Args:
        facts: as `sennit report --json` gives them.
        rows: the table of the terminal.
    """
    run = recorded.run
    made_with = run["fingerprint"]
    access = recorded.path / "access.jsonl"
    last = facts["evaluations"][-1] if facts["evaluations"] else {}
    of_call = ", last call" if facts["last_call"].get("first") else ""
    tiles = [
        ("of the subnets", f"{facts['steps']} / {facts['of']}"),
        ("workers", workers_of(facts).removesuffix(" workers").removesuffix(" worker")),
        ("hosts", str(facts["hosts"]) if facts["hosts"] > 1 else ""),
        (f"subnets per second{of_call}", "" if facts["subnets_per_s"] is None else figure(facts["subnets_per_s"])),
        (f"bubble{of_call}", "" if facts["bubble"] is None else f"{facts['bubble']:.2f}"),
        *_counted_tiles(facts["last_call"], of_call),
        (f"mean loss of the last {facts['averaged']}", figure(facts["loss_last_mean"]) if facts["averaged"] else ""),
        (f"{last.get('metric')}, mean", "" if last.get("mean") is None else figure(last["mean"])),
    ]
    placement = [(name, _placed(name, value, run, trace)) for name, value in run["placement"].items()]
    told = [] if trace is None else [(name, _shown(name, value)) for name, value in trace.facts.items()]
    unhashed = "none: nothing is trained on virtual devices" if recorded.virtual else "none yet"
    own = facts["bubble"]
    return Content(
        title=f"{recorded.name}: {recorded.path}",
        subtitle=f"{facts['state']}; made with torch {made_with.get('torch')} on {made_with.get('cpu')}",
        tiles=[(name, value) for name, value in tiles if value],
        trace=trace,
        bubble_note="" if own is None else f"Without the time at cuts the run counts a bubble of {own:.3f}.",
        losses=[] if recorded.virtual else recorded.losses,
        evaluations=recorded.evaluations,
        layers=access_order(read_accesses(access)) if access.is_file() else {},
        facts=[
            Facts("Hashes", [(name, facts[name]) for name in HASHES if facts[name]] or [(unhashed, "")]),
            Facts("Placement", [*placement, *[(f"last call: {name}", value) for name, value in told]]),
            Facts("Summary", [(name, text) for name, text in rows if text]),
            Facts("Recipe", text=json.dumps(run["recipe"], indent=2)),
            Facts("Fingerprint", [(name, str(value)) for name, value in made_with.items()]),
        ],
    )


def _counted_tiles(call: Mapping[str, Any], of_call: str) -> list[tuple[str, str]]:
    """Of layers that come and go, and of steps that are replayed."""
    hits, graphs = (call.get("slots") or {}).get("hit_rate"), call.get("graphs") or {}
    steps = graphs.get("replayed_steps", 0) + graphs.get("eager_steps", 0)
    return [
        (f"reads that hit{of_call}", "" if hits is None else f"{hits:.3f}"),
        (f"steps replayed{of_call}", f"{graphs['replayed_steps'] / steps:.3f}" if steps else ""),
    ]


def trace_content(path: Path, trace: Trace) -> Content:
    """A trace without a run folder, as `sennit simulate --trace` writes it."""
    facts = trace.facts
    tiles = [
        ("tasks", f"{len(trace.spans) + trace.left_out:,}"),
        ("workers", str(trace.workers)),
        ("bubble", f"{Idleness.of(trace).bubble:.3f}"),
        ("bubble at the lower bound", _number(facts.get("bubble_at_bound"))),
        ("binds", str(facts.get("binds", ""))),
        ("schedule", str(facts.get("schedule", ""))),
    ]
    nested = {name: value for name, value in facts.items() if isinstance(value, dict | list)}
    plain = [(name, _shown(name, value)) for name, value in facts.items() if name not in nested]
    return Content(
        title=path.name,
        subtitle="a trace; times in seconds" if facts.get("unit") == "s" else "a simulation; times in its own unit",
        tiles=[(name, value) for name, value in tiles if value],
        trace=trace,
        facts=[
            Facts("Facts", plain),
            *(Facts(name, text=json.dumps(value, indent=2)) for name, value in nested.items() if value),
        ],
    )


def save(path: Path, content: Content) -> None:
    """Write the page.

    Raises:
        UserError: it cannot be written there.
    """
    write_page(path, page_data(content))


def idle_words(trace: Trace | None) -> str:
    """Where the time of the workers went, in a line."""
    if trace is None or not trace.spans:
        return ""
    idleness = Idleness.of(trace)
    shares = sorted(idleness.shares().items(), key=lambda item: -item[1])
    shown = [f"{what} {share:.1%}" for what, share in shares if share >= 0.0005]
    whose = "the worker's" if trace.workers == 1 else f"{trace.workers} workers'"
    return f"{idleness.bubble:.1%} of {whose} time: {', '.join(shown) or 'none'}"


def _placed(name: str, value: Any, run: Mapping[str, Any], trace: Trace | None) -> str:
    """An option of the placement. What was left open is shown as what the last call made of it, if that is known."""
    if value not in (None, "") and not (name == "in_flight" and value == 0):
        return str(value)
    if run["engine"] == "plain" and name in ("schedule", "in_flight"):
        return "none: the plain loop"
    chosen = None if trace is None else trace.facts.get(name)
    return "default" if chosen is None else f"{chosen} (default)"


def _shown(name: str, value: Any) -> str:
    if name == "began" and isinstance(value, int | float):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    return str(value)


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else ""
