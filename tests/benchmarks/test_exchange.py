"""What replicas send each other, in the prediction of the speed table."""

from __future__ import annotations

import pytest
from benchmarks.speed.costs import Prices
from benchmarks.speed.exchange import Exchange, exchange_of, group_sizes
from benchmarks.speed.predict import load_of, shapes_of

from sennit.profile.profile import Profile
from sennit.recipe import Placement
from tests.runtime.runs import recipe
from tests.runtime.test_replicas import NORMLESS

LINKS = {"host to host": 5.0, "device to host": 10.0, "device to device 1": 100.0}


def test_a_way_of_several_groups_by_hand() -> None:
    """Of 400 bytes a replica of two gets 200 of gradients and sends 200 of weights; one of four three times 100."""
    held = exchange_of("cuda", LINKS, 0.5)
    assert held == Exchange(100.0, 0.5)
    assert held.reach([100, 300], 2) == pytest.approx(2 * (0.5 + 2.0))
    assert held.reach([100, 300], 4) == pytest.approx(2 * (0.5 + 3.0))
    assert held.reach([100, 300], 1) == held.reach([], 2) == 0.0


@pytest.mark.parametrize(("device", "links"), [("cpu", LINKS), ("cuda", {**LINKS, "device to device 1": None})])
def test_nothing_is_said_of_ways_that_nobody_has_measured(device: str, links: dict[str, float | None]) -> None:
    assert exchange_of(device, {name: rate for name, rate in links.items() if rate is not None}, 0.5) is None


def test_groups_are_as_large_as_their_parameters() -> None:
    made = recipe(**NORMLESS)
    sizes = group_sizes(made)
    total = sum(p.numel() * p.element_size() for p in made.built.recordings.skeleton.parameters())
    assert sum(sizes.values()) == total and set(sizes) == {
        g.name for g in made.built.groups.all if g.kind == "parameters"
    }


def test_replicas_share_the_step_and_wait_for_what_the_others_stepped() -> None:
    made = recipe(**{**NORMLESS, "micro_batches": 4})
    shapes = shapes_of(made, 2)
    profile = Profile(device="cpu", micro_batch=1, kinds=[], steps={}, links=dict(LINKS))
    flat = Prices(profile, {shapes[0]: {}}, {shapes[0]: (1.0, 1.0)}, {})
    exchange = Exchange(100.0, 0.5)
    found = {}
    for replicas in (1, 2):
        held = load_of(made, Placement(workers=2, replicas=replicas), flat, shapes, 2, exchange=exchange)
        found[replicas] = [piece for pieces in held.subnets() for piece in pieces]
    assert all(not piece.reach for piece in found[1])
    assert all(piece.reach >= 1.0 for piece in found[2] if piece.groups)
