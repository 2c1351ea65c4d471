"""A recorded run, simulated again: the same times, also where a task gives away what it makes before it ends."""

from itertools import pairwise
from pathlib import Path

import pytest

from sennit.profile.quick import block_order
from sennit.profile.waits import Waits
from sennit.recipe import Placement, Recipe
from sennit.runtime.forecast import RecipeLoad, forecast
from sennit.runtime.placing import plans_of
from sennit.runtime.repeated import Recorded
from sennit.runtime.scheduling import settled
from sennit.simulate.load import Cost
from sennit.trace.events import name_of
from sennit.trace.span import Span
from tests.runtime.runs import recipe
from tests.runtime.test_sync_rules import CHAIN

STRAND = Path(__file__).parents[2] / "acceptance" / "schedules"


def load_of(depth: int, steps: int, m: int, placement: Placement, candidates: int = 1) -> RecipeLoad:
    recipe = Recipe(
        space="strand.py:Strand", data="strand.py:Points", batch_size=8, steps=steps, micro_batches=m, base=str(STRAND),
        space_args={"depth": depth, "candidates": candidates}, optimizer={"name": "sgd"},
    )  # fmt: skip
    held = settled(recipe, placement)
    waits = Waits({f"blocks.{i}": Cost(1.0 + i / 8, 2.0, 1.0, 1.0) for i in range(depth)})
    return RecipeLoad(recipe, held, plans_of(recipe.built, held, waits=waits), waits, steps)


@pytest.mark.parametrize(
    "placement",
    [Placement(workers=3), Placement(workers=2, chunks=2, split=True, release="layer"), Placement(workers=2)],
    ids=str,
)
def test_a_simulation_recorded_is_itself(placement: Placement) -> None:
    load = load_of(6, 9, 2, placement, candidates=3)
    spans: list[Span] = []
    makespan = forecast(load, watch=spans.append).makespan
    again: list[Span] = []
    assert forecast(load, watch=again.append, recorded=Recorded.of(spans)).makespan == pytest.approx(makespan)
    assert [name_of(span) for span in again] == [name_of(span) for span in spans]


def test_a_gradient_leaves_before_the_step() -> None:
    """Both subnets take the same layers. A backward sends its gradient 1 s before it ends, and then steps:

    time       0  1  2  3  4  5  6  7  8  9  10 11
    worker 0   F0 .  .  .  B0 B0 F0 .  .  .  B0 B0
    worker 1   .  F1 B1 B1 B1 .  .  F1 B1 B1 B1 .
    """
    spans = [
        Span(0, "F", 0, 0, 0, 0, 1), Span(1, "F", 0, 0, 1, 1, 2, 1, 1, "value", "", "0F0.0"),
        Span(1, "B", 0, 0, 1, 2, 5, 2, 2, "gradient", "loss", "1F0.0"),
        Span(0, "B", 0, 0, 0, 4, 6, 4, 4, "gradient", "", "1B0.0"),
        Span(0, "F", 1, 0, 0, 6, 7, 6, 6, "version", "blocks.0.0", "0B0.0"),
        Span(1, "F", 1, 0, 1, 7, 8, 7, 7, "value", "", "0F1.0"),
        Span(1, "B", 1, 0, 1, 8, 11, 8, 8, "gradient", "loss", "1F1.0"),
        Span(0, "B", 1, 0, 0, 10, 12, 10, 10, "gradient", "", "1B1.0"),
    ]  # fmt: skip
    again: list[Span] = []
    load = load_of(2, 2, 1, Placement(workers=2))
    assert forecast(load, watch=again.append, recorded=Recorded.of(spans)).makespan == 12
    found = sorted((span.worker, span.start, span.end, name_of(span)) for span in again)
    assert found == sorted((span.worker, span.start, span.end, name_of(span)) for span in spans)

    late = [replace_left(span, 5.0) if name_of(span) == "0B0.0" else span for span in spans]
    assert forecast(load, recorded=Recorded.of(late)).makespan == 13


def replace_left(span: Span, left: float) -> Span:
    return span._replace(start=left, end=left + 2, ready=left, left=left)


def test_a_version_is_there_before_its_task_ends() -> None:
    held = Recorded.of(
        [
            Span(0, "B", 0, 0, 0, 4, 6, 4, 4, "gradient", "", "1B0.0"),
            Span(1, "F", 1, 0, 0, 5.5, 7, 5.5, 5.5, "version", "blocks.0.0", "0B0.0"),
            Span(1, "F", 1, 1, 0, 7.5, 8, 5.75, 5.75, "version", "blocks.1.0", "0B0.0"),
        ]
    )
    assert held.stepped == {"0B0.0": 0.25}  # the last of them counts: a run's versions come together
    assert held.sent == {}


@pytest.mark.parametrize("placement", [Placement(workers=2), Placement(workers=2, schedule="chimera")], ids=str)
def test_batch_norms_are_written_in_turn(placement: Placement) -> None:
    """A lever that lets micro-batches overtake one another at a batch norm would promise what no run can do."""
    made = recipe(**{**CHAIN, "micro_batches": 2, "steps": 6})
    held = settled(made, placement)
    waits = Waits(dict.fromkeys(block_order(made.built), Cost(1.0, 2.0, 1.0, 1.0)))
    load = RecipeLoad(made, held, plans_of(made.built, held, waits=waits), waits, made.steps)
    spans: list[Span] = []
    forecast(load, watch=spans.append)
    moved: dict[str, list[tuple[float, float, int, int]]] = {}
    stream = list(load.subnets())
    for span in spans:
        for group in stream[span.seq_id][span.run].moves if span.kind == "F" else ():
            moved.setdefault(group, []).append((span.start, span.end, span.seq_id, span.micro_batch))
    assert any(len(turns) > 2 for turns in moved.values())
    for turns in moved.values():
        turns.sort()
        assert [turn[2:] for turn in turns] == sorted(turn[2:] for turn in turns)
        assert all(a[1] <= b[0] for a, b in pairwise(turns))
