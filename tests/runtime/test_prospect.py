"""What a run could have taken, worked out from spans whose truth is known: those of a simulation."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from sennit.profile.quick import block_order
from sennit.profile.waits import Waits
from sennit.program.step import Step
from sennit.recipe import Placement, Recipe
from sennit.runtime.forecast import RecipeLoad, forecast
from sennit.runtime.messages import Messages
from sennit.runtime.placing import plans_of
from sennit.runtime.prospect import Prospect, gaining, prospect
from sennit.runtime.scheduling import settled
from sennit.simulate.cluster import Cluster, Link
from sennit.simulate.load import Cost
from sennit.trace.span import Span
from tests.runtime.runs import recipe as small_recipe

STRAND = Path(__file__).parents[2] / "acceptance" / "schedules"
DEPTH = 6
RECIPE = Recipe(
    space="strand.py:Strand", data="strand.py:Points", batch_size=8, steps=40, micro_batches=2, base=str(STRAND),
    space_args={"depth": DEPTH, "candidates": 3}, optimizer={"name": "sgd"},
)  # fmt: skip
PLACEMENTS = (
    Placement(workers=3), Placement(workers=2, chunks=2, split=True, release="layer"),
    Placement(workers=2, schedule="naspipe", in_flight=3),
)  # fmt: skip


def simulated(
    placement: Placement, cluster: Cluster | None = None, recipe: Recipe = RECIPE, per: float = 1.0
) -> tuple[list[Span], float]:
    """Spans of a run, and its bubble.

    Args:
        per: seconds of a block's forward.
    """
    held = settled(recipe, placement)
    waits = Waits({f"blocks.{i}": Cost(per, 2 * per, per, per) for i in range(DEPTH)})
    load = RecipeLoad(recipe, held, plans_of(recipe.built, held, waits=waits), waits, recipe.steps)
    spans: list[Span] = []
    return spans, forecast(load, cluster, watch=spans.append).bubble


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_finds_the_bubble_again(placement: Placement) -> None:
    spans, bubble = simulated(placement)
    found = prospect(RECIPE, placement, spans)
    assert found is not None
    assert found.bubble == pytest.approx(bubble) == found.with_messages and not found.messages
    assert 0.0 <= found.bubble_at_bound <= found.bubble
    assert found.binds in ("dependencies", "devices")
    assert found.subnets == RECIPE.steps


def test_levers_are_what_a_run_with_them_would_be() -> None:
    spans, _ = simulated(Placement(workers=3))
    found = prospect(RECIPE, Placement(workers=3), spans)
    assert found is not None
    assert found.levers["--split"] == pytest.approx(simulated(Placement(workers=3, split=True))[1])
    assert found.levers["--in-flight 12"] == pytest.approx(simulated(Placement(workers=3, in_flight=12))[1])
    assert list(found.levers.values()) == sorted(found.levers.values())
    assert {"micro_batches = 4", 'sampler = "fair"', "--chunks 2", "--release layer"} <= found.levers.keys()


def test_a_call_that_went_on_is_looked_at_where_it_was() -> None:
    spans, bubble = simulated(Placement(workers=3))
    later = [span for span in spans if span.seq_id >= 20]
    found = prospect(RECIPE, Placement(workers=3), later)
    assert found is not None
    assert found.bubble == pytest.approx(bubble)


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_said_of_what_did_not_run(workers: int) -> None:
    spans = simulated(Placement(workers=2))[0] if workers == 1 else []
    assert prospect(RECIPE, Placement(workers=workers), spans) is None


def test_a_step_is_told_from_the_backward() -> None:
    """Where the gradient leaves before the step, the bound knows it, and the bubble is found again."""
    placement = Placement(workers=3)
    held = settled(RECIPE, placement)
    waits = Waits({f"blocks.{i}": Cost(1.0, 2.0, 1.0, 1.0) for i in range(DEPTH)})
    stepping = {f"blocks.{i}": 0.5 for i in range(2, DEPTH)}  # the first worker sends no gradient: its step is not seen
    load = RecipeLoad(RECIPE, held, plans_of(RECIPE.built, held, waits=waits), waits, RECIPE.steps, stepping)
    spans: list[Span] = []
    outcome = forecast(load, watch=spans.append)
    found = prospect(RECIPE, placement, spans)
    assert found is not None
    assert found.bubble == pytest.approx(outcome.bubble)
    assert found.bubble_at_bound <= found.bubble
    whole = replace(
        load, waits=Waits({b: c._replace(whole=2.0 + stepping.get(b, 0.0)) for b, c in waits.blocks.items()})
    )
    assert forecast(replace(whole, stepping={})).makespan > outcome.makespan


def test_branches() -> None:
    branched = small_recipe(
        space="static_nets.py:Opened", data="static_nets.py:Data", loss_name="cross_entropy", batch_size=12, steps=4
    )
    held = settled(branched, Placement(workers=2, release="layer"))
    costs = Waits(dict.fromkeys(branched.built.covering[0].blocks, Cost(1.0, 2.0, 1.0, 1.0)))
    load = RecipeLoad(branched, held, plans_of(branched.built, held, waits=costs), costs, 4)
    spans: list[Span] = []
    forecast(load, watch=spans.append)
    found = prospect(branched, Placement(workers=2, release="layer"), spans)
    assert found is not None
    assert 0.0 < found.bubble_at_bound <= found.bubble


def test_words() -> None:
    found = Prospect(100, 0.5, 0.25, "dependencies", {"--split": 0.3, "--chunks 2": 0.499})
    assert found.lines() == [
        "  simulated, 100 subnets: bubble 0.50; no order of these tasks goes below 0.25 (dependencies)",
        "  from 0.50 with one change: --split 0.30",
    ]
    assert len(replace(found, levers={}).lines()) == 1
    assert gaining(found.levers, found.bubble) == {"--split": 0.3}
    assert gaining({"--split": 0.3351, "--chunks 2": 0.3349}, 0.3449) == {"--chunks 2": 0.3349}, (
        "0.34 is no less than 0.34"
    )


# -- messages


SLOW = Cluster(links=(Link(latency=2.0),))
"""A message takes as long as two blocks."""


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_what_messages_cost_is_found_again(placement: Placement) -> None:
    found = Messages.of(simulated(placement, SLOW)[0], placement.workers)
    assert (found.latency, found.start) == pytest.approx((2.0, 0.0)) and found.on_the_way > 0.05 and not found.late
    fast = Messages.of(simulated(placement)[0], placement.workers)
    assert (fast.start, fast.latency, fast.on_the_way, fast.late) == pytest.approx((0.0, 0.0, 0.0, 0.0))


def test_a_worker_that_is_late_is_told_from_one_that_was_busy() -> None:
    spans = [
        Span(0, "F", 0, 0, 0, 0.0, 1.0),
        Span(0, "F", 0, 1, 0, 1.25, 2.0, ready=0.0, cause="order"),
        Span(1, "F", 0, 0, 1, 1.75, 3.0, ready=1.5, left=1.0, cause="value", by="0F0.0"),
        Span(1, "F", 0, 1, 1, 3.0, 4.0, ready=3.0, left=2.0, cause="value", by="0F0.1"),  # noticed after its task
    ]
    found = Messages.of(spans, 2)
    assert found.latency == pytest.approx(0.5)
    assert found.start == pytest.approx((0.25 + 0.25 + 0.0) / 3)


def test_where_messages_dominate_it_is_said_and_what_adds_to_them_is_not_offered() -> None:
    """More chunks were offered, which are more messages, by a simulation in which these took no time."""
    placement = Placement(workers=3, chunks=2)
    spans, bubble = simulated(placement, SLOW)
    found = prospect(RECIPE, placement, spans)
    assert found is not None and found.with_messages is not None
    assert found.bubble == pytest.approx(simulated(placement)[1], abs=0.01)
    assert found.with_messages == pytest.approx(bubble, abs=0.05) and found.with_messages > 2 * found.bubble
    assert "fewer workers or chunks" in found.messages and found.messages in "".join(found.lines())
    offered = gaining(found.levers, found.with_messages)
    assert "--chunks 1" in offered and "--release layer" not in offered
    for change, options in (("--chunks 1", {"chunks": 1}), ("--release layer", {"release": "layer"})):
        with_it = simulated(replace(placement, **options), SLOW)[1]
        assert found.levers[change] == pytest.approx(with_it, abs=0.05)


def test_fewer_workers_are_offered_only_if_they_are_faster() -> None:
    crowded = Placement(workers=6)
    slow = prospect(RECIPE, crowded, simulated(crowded, Cluster(links=(Link(latency=20.0),)))[0])
    fast = prospect(RECIPE, crowded, simulated(crowded)[0])
    assert slow is not None and fast is not None
    assert "--workers 5" in slow.levers and "--workers 5" not in fast.levers


def test_messages_that_others_hide_are_not_blamed() -> None:
    placement = Placement(workers=3)
    spans, _ = simulated(placement, Cluster(links=(Link(latency=0.01),), host_s=0.001))
    found = prospect(RECIPE, placement, spans)
    assert found is not None and not found.messages


def test_words_with_messages() -> None:
    found = Prospect(100, 0.1, 0.05, "devices", {"--chunks 3": 0.45, "--chunks 1": 0.3}, 0.4, "messages ...", 2)
    assert found.lines() == [
        "  simulated, 100 subnets: bubble 0.10, with messages 0.40; with 2 in flight no order of these tasks goes "
        "below 0.05 (devices)",
        "  messages ...",
        "  from 0.40 with one change: --chunks 1 0.30",
    ]


class Uneven:
    """Candidate i of a block takes i seconds forward: means over a block hide how much stages of a subnet differ."""

    def of_steps(self, steps: Iterable[Step]) -> Cost:
        seconds = sum(float((step.labels and step.name.rpartition(".")[2]) or 0) for step in steps)
        return Cost(seconds, 2 * seconds, seconds, seconds)


def test_candidates_that_differ_are_told_apart() -> None:
    """Was simulated with the mean of each block, and found half of the bubble."""
    held = settled(RECIPE, Placement(workers=3))
    costs, built = Uneven(), RECIPE.built
    mean = Waits({block: Cost(1.0, 2.0, 1.0, 1.0) for block in block_order(built)})
    spans: list[Span] = []
    true = forecast(
        RecipeLoad(RECIPE, held, plans_of(built, held, waits=mean), costs, RECIPE.steps), watch=spans.append
    )
    flat = forecast(RecipeLoad(RECIPE, held, plans_of(built, held, waits=mean), mean, RECIPE.steps))
    found = prospect(RECIPE, Placement(workers=3), spans)
    assert found is not None
    assert found.bubble == pytest.approx(true.bubble, abs=0.02)
    assert abs(flat.bubble - true.bubble) > 0.05
