"""`prospect`: what a run could have taken. Its bubble simulated, a bound, what binds, and what one change would bring.

    trace ──▶ seconds of each step, forward and backward ──▶ the recipe's first subnets, simulated and bounded
          └─▶ seconds that messages took                 └──▶ the same with messages, and with one thing changed

Seconds are fitted to the subnets of the last call (`fitted`), so this is what the run tends to, without the time at
cuts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sennit.errors import UserError
from sennit.profile.costs import Costs
from sennit.recipe import Placement, Recipe
from sennit.runtime.forecast import forecast
from sennit.runtime.levers import ROWS, Seconds, levers, load_of
from sennit.runtime.messages import Messages
from sennit.runtime.placing import cut_by
from sennit.runtime.scheduling import in_flight_of, settled
from sennit.runtime.taken import taken
from sennit.runtime.usercode import blaming
from sennit.simulate.bounds import bounds
from sennit.trace.span import Span

SUBNETS = 100
"""Subnets that are simulated, and whose tasks are looked at."""

FARTHEST = 100_000
"""Subnet before which the call must have begun: the stream is drawn up to there."""


LEAST = 0.005
"""What a change must take off the bubble to be spoken of: less is shown as nothing."""


@dataclass(frozen=True)
class Prospect:
    """What a run could have been.

    Attributes:
        subnets: that were simulated.
        bubble: simulated, with what tasks took on average.
        bubble_at_bound: below which no order of these tasks can go with as many subnets in flight.
        binds: dependencies or devices.
        levers: change to the bubble simulated with it and with messages, the best first. Changes of the recipe train
            other weights.
        with_messages: the bubble simulated with what messages took, too; that is what levers are compared with.
        messages: what to say if these make up most of the run's bubble; else empty.
        in_flight: most subnets that were unfinished at once; None if it was not kept.
    """

    subnets: int
    bubble: float
    bubble_at_bound: float
    binds: str
    levers: dict[str, float]
    with_messages: float | None = None
    messages: str = ""
    in_flight: int | None = None

    def lines(self) -> list[str]:
        """For people."""
        told = [
            f"  simulated, {self.subnets} subnets: bubble {bubbles(self.bubble, self.with_messages)}; "
            f"{bounded(self.in_flight)} {self.bubble_at_bound:.2f} ({self.binds})"
        ]
        if self.messages:
            told.append(f"  {self.messages}")
        held = self.bubble if self.with_messages is None else self.with_messages
        better = [f"{change} {bubble:.2f}{_provided(change)}" for change, bubble in gaining(self.levers, held).items()]
        if better:
            told.append(f"  from {held:.2f} with one change: {', '.join(better)}")
        return told


def _provided(change: str) -> str:
    return f" ({ROWS})" if change.startswith("micro_batches") else ""


def bubbles(without: float, with_messages: float | None) -> str:
    """Both bubbles, where they are not the same."""
    if with_messages is None or f"{with_messages:.2f}" == f"{without:.2f}":
        return f"{without:.2f}"
    return f"{without:.2f}, with messages {with_messages:.2f}"


def bounded(in_flight: int | None) -> str:
    """What the bound is of: more subnets in flight, or other tasks, may go below it."""
    with_many = "" if in_flight is None else f"with {in_flight} in flight "
    return f"{with_many}no order of these tasks goes below"


def gaining(levers: Mapping[str, float], bubble: float) -> dict[str, float]:
    """Of some changes, and the bubble with each, those that bring something."""
    shown = round(bubble, 2)
    return {change: b for change, b in levers.items() if b < bubble - LEAST and round(b, 2) < shown}


def prospect(recipe: Recipe, placement: Placement, spans: Sequence[Span]) -> Prospect | None:
    """Look back on a run.

    Args:
        placement: as it was asked for.
        spans: of its last call.

    Returns:
        None if its stream is drawn by what it learns, it ran nothing, or began too late in the stream.
    """
    built = recipe.built
    tasks = [span for span in spans if span.kind in "FBIW"]
    first = min((span.seq_id for span in tasks), default=FARTHEST)
    if built.sampler().learning or first >= FARTHEST or placement.workers < 2:
        return None
    held = settled(recipe, placement)
    seconds = taken(recipe, held, tasks, first, SUBNETS)
    steps = min(SUBNETS, recipe.steps) // recipe.sync_rule.bulk(held.workers) * recipe.sync_rule.bulk(held.workers)
    if not steps:
        return None
    load = load_of(recipe, held, seconds, steps, cut_by=_cut_by(recipe, held, seconds))
    outcome, messages = forecast(load), Messages.of(spans, held.workers)
    delayed = forecast(load, messages.cluster)
    in_flight = in_flight_of(recipe, held)
    bound = bounds(load, recipe.built.sync(held.workers), in_flight, split=held.split)
    tried: dict[str, float] = {}
    for lever in levers(recipe, placement, seconds):
        try:
            with blaming(UserError, "elsewhere"):
                placed, cuts = settled(lever.recipe, lever.placement), _cut_by(lever.recipe, placement, lever.seconds)
                changed = load_of(lever.recipe, placed, lever.seconds, steps, cut_by=cuts)
                made = forecast(changed, messages.cluster)
        except UserError:
            continue
        if changed.workers == placement.workers or made.makespan < delayed.makespan:  # a bubble says nothing of fewer
            tried[lever.change] = made.bubble
    best_first = dict(sorted(tried.items(), key=lambda item: item[1]))
    lowest = min(bound.bubble, outcome.bubble)  # they may be equal but for rounding
    told = messages.words() if messages.dominate(outcome.bubble) else ""
    return Prospect(steps, outcome.bubble, lowest, bound.binds, best_first, delayed.bubble, told, in_flight)


def _cut_by(recipe: Recipe, placement: Placement, seconds: Seconds) -> Costs:
    """A run is cut by what it was told or has measured; where this one has neither, by what was found."""
    known = recipe.built.block_s or placement.waits is not None
    return cut_by(recipe.built, placement) if known else seconds.costs
