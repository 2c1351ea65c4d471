"""Links, memory, swaps and host time: timelines drawn by hand, and the file that describes a cluster."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from sennit.errors import UserError
from sennit.schedule.action import Action
from sennit.schedule.csp import CspOrder
from sennit.schedule.gpipe import gpipe
from sennit.schedule.listed import ListOrder
from sennit.schedule.order import Order
from sennit.simulate.channels import Channels
from sennit.simulate.cluster import Cluster, Link, read_cluster
from sennit.simulate.drawing import draw
from sennit.simulate.engine import Simulation
from sennit.simulate.load import Cost, Piece
from sennit.simulate.outcome import Outcome
from sennit.simulate.space_load import SpaceLoad
from sennit.simulate.space_run import SpaceRun
from sennit.supernet.bulk import AspSync
from sennit.trace.span import Span
from tests.simulate.rules import Fixed

ONE = Cost(1.0, 1.0, 1.0, 1.0)


def two(m: int, subnets: int = 1, *, out: float = 0.0, held: float = 0.0, swap: float = 0.0) -> Fixed:
    """Two runs on two workers."""
    pieces = tuple(Piece(r, (), ONE, out_bytes=out, held_bytes=held, swap_bytes=swap) for r in range(2))
    return Fixed(2, m, (pieces,) * subnets)


def run(load: Fixed, cluster: Cluster, orders: list[Order] | None = None) -> tuple[Outcome, list[Span]]:
    spans: list[Span] = []
    held: list[Order] = orders or [CspOrder() for _ in range(load.workers)]
    return Simulation(load, held, AspSync(), 8, cluster=cluster, watch=spans.append).run(), spans


def rows(spans: list[Span]) -> list[str]:
    return [line.split("  ", 1)[1] for line in draw(spans).splitlines()]


def test_a_channel_carries_one_message_after_the_other() -> None:
    """2 s a message: the second leaves worker 0 when the first has arrived."""
    _, spans = run(two(2, out=4.0), Cluster(links=(Link(bandwidth=2.0),)))
    assert rows(spans) == [
        "0F0 0F1  .   .   .   .   .  0B0  .  0B1",
        " .   .   .  1F0 1B0 1F1 1B1  .   .   .",
    ]
    second = next(span for span in spans if span[1:5] == ("F", 0, 1, 1))
    assert (second.left, second.ready, second.cause, second.by) == (2.0, 5.0, "value", "0F0.1")


def test_both_directions_may_share_a_channel() -> None:
    """The first gradient waits until the second value has passed, and so does the second one for the first."""
    _, spans = run(two(2, out=4.0), Cluster(links=(Link(bandwidth=2.0, medium="half"),)))
    assert rows(spans) == [
        "0F0 0F1  .   .   .   .   .  0B0  .  0B1",
        " .   .   .  1F0 1B0 1F1 1B1  .   .   .",
    ]
    _, spans = run(two(3, out=4.0), Cluster(links=(Link(bandwidth=2.0, medium="half"),)))
    assert rows(spans) == [
        "0F0 0F1 0F2  .   .   .   .   .   .  0B0  .  0B1  .  0B2",
        " .   .   .  1F0 1B0 1F1 1B1 1F2 1B2  .   .   .   .   .",
    ]


def test_latency_delays_a_message_but_not_the_next_one() -> None:
    _, spans = run(two(2, out=4.0), Cluster(links=(Link(bandwidth=4.0, latency=2.0),)))
    assert rows(spans) == [
        "0F0 0F1  .   .   .   .   .   .   .  0B0  .  0B1",
        " .   .   .   .  1F0 1B0 1F1 1B1  .   .   .   .",
    ]


def test_one_medium_for_all_workers() -> None:
    """Two pipelines side by side, on workers 0 to 1 and 2 to 3: duplex links do not meet, a shared one does."""
    pieces = [tuple(Piece(k + r, (), ONE, out_bytes=4.0) for r in range(2)) for k in (0, 2)]
    load = Fixed(4, 1, tuple(pieces))
    apart = run(load, Cluster(links=(Link(bandwidth=2.0),)))[0].makespan
    shared = run(load, Cluster(links=(Link(bandwidth=2.0, medium="shared"),)))[0].makespan
    assert (apart, shared) == (8.0, 10.0)  # four messages of 2 s in turn: 1 + 2 + 2, then 2 tasks, 2 back, 1


def test_the_first_link_that_holds_both_counts() -> None:
    near, far = Link(between=(0, 1), bandwidth=8.0), Link(bandwidth=1.0)
    channels = Channels(Cluster(links=(near, far)))
    assert channels.send(0, 1, 8.0, now=0.0) == 1.0
    assert channels.send(1, 2, 8.0, now=0.0) == 8.0
    with pytest.raises(UserError, match="no link of the cluster holds workers 1 and 2"):
        Channels(Cluster(links=(near,))).send(1, 2, 8.0, now=0.0)


def test_the_host_takes_its_time_for_every_task() -> None:
    """Half a second before each second of work: 4 tasks, and a bubble that counts the work alone."""
    outcome, spans = run(two(1), Cluster(host_s=0.5))
    assert [span.end for span in spans] == [1.5, 3.0, 4.5, 6.0]
    assert outcome.bubble == pytest.approx(1 - 4 / 12)


def test_layers_come_from_the_host() -> None:
    """2 s for each subnet's layers on each worker, one after the other; nothing is computed before."""
    _, spans = run(two(1, subnets=2, swap=4.0), Cluster(swap=Link(bandwidth=2.0)))
    starts = {span[1:5]: span.start for span in spans}
    assert starts["F", 0, 0, 0] == 2 and starts["F", 1, 0, 0] == 4
    shared = run(two(1, subnets=2, swap=4.0), Cluster(swap=Link(bandwidth=2.0, medium="shared")))[1]
    assert {span[1:5]: span.start for span in shared}["F", 1, 0, 0] == 6  # third of four on the host's one link


def test_a_forward_waits_for_memory() -> None:
    """Worker 0 has room for two: the oldest, and one more. Without a limit it would go on with 0F2 at once."""
    outcome, spans = run(two(3, held=1.0), Cluster(memory_bytes=(2.0, 9.0)))
    assert rows(spans) == [
        "0F0 0F1  .  0B0 0F2 0B1  .  0B2",
        " .  1F0 1B0 1F1 1B1 1F2 1B2  .",
    ]
    third = next(span for span in spans if span[1:5] == ("F", 0, 2, 0))
    assert (third.ready, third.cause, third.of, third.by) == (4.0, "admitted", "memory", "0B0.0")
    assert outcome.peak_bytes == [2.0, 1.0]
    free = rows(run(two(3, held=1.0), Cluster())[1])
    assert free[0].split()[:3] == ["0F0", "0F1", "0F2"]


def test_a_fixed_order_that_needs_more_memory_than_there_is() -> None:
    orders: list[Order] = [ListOrder(gpipe(k, 3), 3) for k in range(2)]
    with pytest.raises(UserError, match=r"worker 0 has: it holds 2 of 2 bytes when the turn of forward 0F0\.2 comes"):
        run(two(3, held=1.0), Cluster(memory_bytes=2.0), orders)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "held"), [("1f1b", [12, 9, 6, 3]), ("gpipe", [48] * 4), ("pipedream", [12, 9, 6, 3])])
def test_a_fixed_order_needs_what_its_list_holds(name: str, held: list[float], seed: int) -> None:
    """4 workers x 3 layers of 1 byte a micro-batch: 1F1B has 4, 3, 2, 1 under way, whatever subnets share; GPipe all 16
    of a bulk. With so much memory it runs as without a limit, with less it is refused."""
    space = SpaceLoad(
        blocks=12, candidates=72, workers=4, micro_batches=4, subnets_wanted=24, seed=seed, release="stage",
        held_bytes=4.0,
    )  # fmt: skip
    free = SpaceRun(space=space, schedule=name, cluster=Cluster()).simulate()
    assert free.peak_bytes == held
    enough = Cluster(memory_bytes=tuple(map(float, held)))
    assert SpaceRun(space=space, schedule=name, cluster=enough).simulate() == free
    for worker in range(4):
        less = replace(enough, memory_bytes=tuple(size - 1 * (k == worker) for k, size in enumerate(held)))
        with pytest.raises(UserError, match=f"worker {worker} has"):
            SpaceRun(space=space, schedule=name, cluster=less).simulate()


def test_one_micro_batch_must_fit() -> None:
    with pytest.raises(UserError, match=r"worker 0 has 0\.5 bytes for activations, .* subnet 0 needs 1"):
        run(two(1, held=1.0), Cluster(memory_bytes=0.5))


def test_two_ways_meet_on_a_worker() -> None:
    """Two stages, each on both workers: micro-batch 0 goes down, 1 goes up (Chimera)."""
    pieces = tuple(Piece(0, (), ONE, spread=(r, 1 - r)) for r in range(2))
    order = [Action(0, "F", 0), Action(1, "F", 1), Action(1, "B", 1), Action(0, "B", 0)]
    other = [Action(0, "F", 1), Action(1, "F", 0), Action(1, "B", 0), Action(0, "B", 1)]
    _, spans = run(Fixed(2, 2, (pieces,)), Cluster(), [ListOrder(order, 2), ListOrder(other, 2)])
    assert rows(spans) == ["0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1"]


TOML = """
host_s = 20e-6
memory_bytes = [16e9, 8e9]

[[links]]
between = [0, 1]
bandwidth = 12e9
latency = 5e-6
medium = "half"

[[links]]
bandwidth = 1e9

[swap]
bandwidth = 25e9
"""


def test_a_cluster_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(TOML)
    assert read_cluster(path) == Cluster(
        links=(Link(between=(0, 1), bandwidth=12e9, latency=5e-6, medium="half"), Link(bandwidth=1e9)),
        swap=Link(bandwidth=25e9), memory_bytes=(16e9, 8e9), host_s=20e-6,
    )  # fmt: skip
    assert Cluster().limits(2) == [math.inf] * 2 and Cluster(memory_bytes=3.0).limits(2) == [3.0, 3.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[links]]\nbandwith = 1.0", "did you mean 'bandwidth'"),
        ("[[links]]\nbandwidth = 0.0", "link 1: bandwidth must be above 0"),
        ("[[links]]\nbandwidth = nan", "link 1: bandwidth must be above 0 (inf: no limit), got nan"),
        ("[[links]]\nlatency = inf", "link 1: latency must be at least 0 and at most 1e+09 seconds, got inf"),
        ("[swap]\nlatency = nan", "latency must be at least 0"),
        ("memory_bytes = nan", "memory_bytes must be above 0 (inf: no limit), got nan"),
        ("memory_bytes = [1.0, 0.0]", "memory_bytes must be above 0 (inf: no limit), got 0"),
        ("host_s = inf", "host_s must be at least 0 and at most 1e+09 seconds, got inf"),
        ("host_s = 1e308", "host_s must be at least 0 and at most 1e+09 seconds, got 1e+308"),
        ("[[links]]\nmedium = 'air'", "duplex, half, shared"),
        ("host_s = -1.0", "host_s must be at least 0"),
        ("host_s = 'long'", "host_s"),
        ("links = 3", "links must be tables"),
        ("links = ", "cannot read the cluster"),
    ],
)
def test_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_cluster(path)
    assert said in str(error.value)


def test_what_has_no_limit_may_say_so() -> None:
    assert Link(bandwidth=math.inf).seconds(8.0) == 0 and Cluster(memory_bytes=math.inf).limits(1) == [math.inf]


@pytest.mark.parametrize("between", [(0, 4), (-1, 0)])
def test_a_link_between_workers_that_are_not_there(between: tuple[int, ...]) -> None:
    space = SpaceLoad(blocks=8, candidates=2, workers=4, micro_batches=1, subnets_wanted=1)
    cluster = Cluster(links=(Link(), Link(between=between)))
    with pytest.raises(UserError, match=r"link 2 of the cluster: between = .* the 4 workers are 0 to 3"):
        SpaceRun(space=space, cluster=cluster)


def test_what_is_swapped_needs_a_link_to_the_host() -> None:
    space = SpaceLoad(blocks=8, candidates=2, workers=4, micro_batches=1, subnets_wanted=1, swap_bytes=1.0)
    with pytest.raises(UserError, match=r"--swap-bytes 1 .* \[swap\] in a --cluster"):
        SpaceRun(space=space, cluster=Cluster())
    with pytest.raises(UserError, match=r"--swap-bytes: 8 bytes take 8e\+20 seconds"):
        SpaceRun(space=space, cluster=Cluster(swap=Link(bandwidth=1e-20)))


def test_memory_of_another_number_of_workers() -> None:
    with pytest.raises(UserError, match="names 2 workers, there are 3"):
        Cluster(memory_bytes=(1.0, 2.0)).limits(3)
