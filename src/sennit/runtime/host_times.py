"""What tasks and messages cost a host beside the computation, measured with virtual devices.

    wait  ▓▓▓▓▓▓▓▓▒▒ ▓▓▓▓▓▓▓▓▒▒             ▒ `task`: what a task lasts longer than its wait
                    └┘ `gap` to the next task that was ready
                     └─ message ──▶ ▓▓▓▓▓   `message`: the gap to a task that an idle worker starts for it, less `gap`

A simulation on a cluster with these (`cluster`) says how long virtual devices will take. They depend on how many
workers share the cores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from sennit.profile.costs import read_costs
from sennit.recipe import CheckpointRule, Placement, Recipe
from sennit.runtime.forecast import RecipeLoad, forecast
from sennit.runtime.placing import plans_of
from sennit.runtime.request import Request
from sennit.runtime.scheduling import settled
from sennit.runtime.train import train
from sennit.schedule.order import Task
from sennit.simulate.cluster import Cluster, Link
from sennit.trace.events import read_call
from sennit.trace.span import Span

SUBNETS = 24


@dataclass(frozen=True)
class HostTimes:
    """Seconds of a task beside its wait, between two tasks, and of a message; means."""

    task: float
    gap: float
    message: float

    @property
    def cluster(self) -> Cluster:
        """Workers of such a host."""
        return Cluster(links=(Link(latency=self.message),), host_s=self.task + self.gap)


def host_times(recipe: Recipe, workers: int, waits: Path) -> HostTimes:
    """Measure, in a short run of `recipe` with bulks of 8, GPipe's order and another seed.

    What a subnet costs once (its program is recorded, it is cut) is part of the gaps, so M is the recipe's.

    Args:
        waits: file of the virtual devices' waits.
    """
    recipe = replace(
        recipe, steps=SUBNETS, sync="bulk:8", clip="layer:1.0", seed=recipe.seed + 1,
        checkpoint=CheckpointRule(every=10**6), evaluate=replace(recipe.evaluate, every=0),
        allow_nondeterministic=False,
    )  # fmt: skip
    placement = Placement(workers=workers, device="virtual", waits=str(waits), schedule="gpipe")
    with tempfile.TemporaryDirectory() as folder:
        train(Request(recipe=recipe, placement=placement, out=Path(folder) / "run"))
        spans = [span for span in read_call(Path(folder) / "run" / "trace.jsonl").spans if span.kind in "FB"]
    held, simulated = settled(recipe, placement), list[Span]()
    told = read_costs(waits, recipe.built)
    forecast(RecipeLoad(recipe, held, plans_of(recipe.built, held, waits=told), told, SUBNETS), watch=simulated.append)
    return times_of(spans, {_task(span): span.end - span.start for span in simulated})


def times_of(spans: Sequence[Span], waits: Mapping[str, float]) -> HostTimes:
    """Of a recorded run.

    Args:
        waits: seconds of each task, by its text (`str(Task)`).
    """
    ended = {_task(span): span.end for span in spans}
    gaps, hops = list[float](), list[float]()
    for worker in {span.worker for span in spans}:
        mine = sorted((span for span in spans if span.worker == worker), key=lambda span: span.start)
        for before, span in pairwise(mine):
            if span.ready < before.end:
                gaps.append(span.start - before.end)
            elif ended.get(span.by, 0.0) > before.end:
                hops.append(span.start - ended[span.by])
    gap = _mean(gaps)
    longer = _mean(span.end - span.start - waits[_task(span)] for span in spans)
    return HostTimes(longer, gap, max(0.0, _mean(hops) - gap))


def _task(span: Span) -> str:
    return str(Task(span.kind, span.seq_id, span.micro_batch, span.run))  # type: ignore[arg-type]


def _mean(values: Iterable[float]) -> float:
    """Without the largest hundredth, which a machine with other work shows now and then; 0 of nothing."""
    held = sorted(values)
    held = held[: len(held) - len(held) // 100]
    return sum(held) / len(held) if held else 0.0
