"""A host that launches what its device computes: by hand, and what holds for any case."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sennit.schedule.csp import CspOrder
from sennit.schedule.order import Task
from sennit.simulate.launched import Launched, Launches
from sennit.simulate.load import Cost, Piece
from sennit.supernet.sync import CspSync, Shared
from sennit.trace.span import Span
from tests.simulate.cases import Drawn, drawn
from tests.simulate.rules import Fixed, violations

NOTHING = Launches()


def kind(launches: Launches) -> type[Launched]:
    class Given(Launched):
        def __init__(self, *given: object, **more: object) -> None:
            super().__init__(*given, **more)  # type: ignore[arg-type]
            self.begin(launches)

    return Given


def run(load: Fixed, launches: Launches, in_flight: int = 1, split: bool = False) -> dict[str, tuple[float, float]]:
    spans: list[Span] = []
    orders: list[CspOrder] = []
    sync = CspSync((), Shared.parse("strict"))
    simulation = kind(launches)(load, orders, sync, in_flight, split=split, apart=True, watch=spans.append)
    orders += [CspOrder(simulation.awaited) for _ in range(load.workers)]
    simulation.run()
    tasks = ((s, Task(s.kind, s.seq_id, s.micro_batch, s.run)) for s in spans)  # type: ignore[arg-type]
    return {str(task) if s.kind != "U" else f"U{s.seq_id}": (s.start, s.end) for s, task in tasks}


def chain(*costs: Cost, layers: int = 1, step: float = 0.0) -> tuple[Piece, ...]:
    return tuple(Piece(r, (f"{r}",), cost, layers=layers, step=step) for r, cost in enumerate(costs))


def test_a_quick_device_waits_inside_of_tasks_and_a_slow_one_hides_its_host() -> None:
    """
    time      0   1   2   3   4   5   6   7   8   9  10  11
    host 0    F   F   F   B   B   B                            3 layers of 1 each
    device 0  F   F   F   B   B   B   B   B   B   U   U        F takes 0.5, and ends with its last launch; B takes 6
    host 0                            U                        launched while B is computed
    """
    load = Fixed(1, 1, (chain(Cost(0.5, 6.0, 3.0, 3.0), layers=3, step=2.0),))
    shown = run(load, Launches(forward_layer=1.0, backward_layer=1.0, step=1.0))
    assert shown == {"0F0.0": (0, 3), "0B0.0": (3, 9), "U0": (9, 11)}


def test_what_comes_from_another_worker_is_launched_before_it_is_there() -> None:
    """
    time      0   1   2   3   4   5   6   7
    host 0    F                                      launched at 1
    device 0  F   F   F   F
    host 1        F   F                              from 1 on: the device waits for what comes
    device 1                  F   B   B              F takes 1, and nothing of its launches is seen
    host 1            B   B
    """
    load = Fixed(2, 1, (chain(Cost(4.0, 1.0, 1.0, 1.0), Cost(1.0, 2.0, 1.0, 1.0), layers=1),))
    launches = Launches(task=0.5, forward_layer=0.5, backward_layer=1.5)
    assert run(load, launches) == {"0F0.0": (0, 4.5), "1F0.0": (4.5, 5.5), "1B0.0": (5.5, 7.5), "0B0.0": (7.5, 8.5)}


def test_halves_steps_and_subnets_have_prices_of_their_own() -> None:
    """A host that is what everybody waits for: 2 subnets, each let in (8), F (1 + 2), I (1 + 4), W (1 + 4), U (16)."""
    load = Fixed(1, 1, tuple(chain(Cost(0.0, 0.0, 0.0, 0.0), step=1.0) for _ in range(2)))
    launches = Launches(task=1, forward_layer=2, input_layer=4, weight_layer=4, step=12, step_group=3, subnet=8)
    shown = run(load, launches, split=True)
    ends = [shown[name][1] for name in ("0F0.0", "0I0.0", "0W0.0", "U0", "0F1.0", "0I1.0", "0W1.0", "U1")]
    assert ends == [11, 16, 21, 37, 48, 53, 58, 74]


def test_gradients_of_weights_are_launched_when_a_device_is_idle() -> None:
    """
    host 0    ▒▒.......▒WW.    ▒ 1 before the first launch, which is all of F and I; W takes 2 to launch
    device 0  .FFFFIIII.WWW    a forward that comes while I is computed would go before W
    """
    load = Fixed(1, 1, (chain(Cost(4.0, 7.0, 4.0, 3.0), step=0.0),))
    launches = Launches(task=1.0, weight_layer=2.0)
    assert run(load, launches, split=True) == {"0F0.0": (0, 5), "0I0.0": (5, 9), "0W0.0": (9, 13)}


@settings(max_examples=80, deadline=None, derandomize=True)
@given(drawn())
def test_hosts_that_take_no_time_change_nothing(case: Drawn) -> None:
    assert case.run(kind(NOTHING)) == case.run()


@settings(max_examples=80, deadline=None, derandomize=True)
@given(drawn(), st.sampled_from([0.125, 1.0, 4.0]), st.booleans())
def test_everything_runs_once_in_its_order_and_hosts_have_the_time(case: Drawn, seconds: float, layers: bool) -> None:
    """But for steps, of which the checker knows how long they take; they are drawn above."""
    stream = tuple(tuple(replace(piece, step=0.0) for piece in pieces) for pieces in case.load.stream)
    case = replace(case, load=replace(case.load, stream=stream), cluster=replace(case.cluster, host_s=0.0))
    launches = Launches(
        task=seconds / 8, forward=seconds / 4, backward=seconds / 4, step=seconds, step_group=seconds / 2,
        **dict.fromkeys(("forward_layer", "backward_layer", "input_layer", "weight_layer"), seconds * layers),
    )  # fmt: skip
    outcome, spans = case.run(kind(launches))
    found = [said for said in violations(case.case, spans) if " takes " not in said]
    assert not found
    tasks = [span for span in spans if span.kind != "U"]
    for worker in range(case.load.workers):
        mine = [span for span in tasks if span.worker == worker]
        host = sum(launches.task + launches.of(span.kind, 1) for span in mine)
        assert outcome.makespan >= host - 1e-9
    for span in tasks:
        piece = case.load.stream[span.seq_id][span.run]
        assert span.end - span.start >= piece.cost["FBIW".index(span.kind)] - 1e-9


@pytest.mark.parametrize("kinds", ["F", "B", "I", "W"])
def test_launches_of_a_task_are_those_of_its_layers(kinds: str) -> None:
    launches = Launches(forward=1, backward=2, forward_layer=10, backward_layer=20, input_layer=30, weight_layer=40)
    assert launches.of(kinds, 3) == {"F": 31, "B": 62, "I": 92, "W": 122}[kinds]


def test_a_subnet_is_let_in_while_a_device_computes() -> None:
    """
    time      0 .. 8   9  10  11  12 .. 19  20  21  22 .. 26
    host 0    in  F1  B1  U1  in  ..  F2                        8 to let a subnet in, 1 to launch
    device 0      F1  ..  ..  ..  B1  ..  ..  U1  ..  F2        F takes 4, B 8, U 2

    The host has launched U1 at 11, long before it ends, and lets the next subnet in: it has launched F2 at 20.
    """
    load = Fixed(1, 1, tuple(chain(Cost(4.0, 8.0, 1.0, 1.0), step=2.0) for _ in range(2)))
    shown = run(load, Launches(forward_layer=1.0, backward_layer=1.0, step=1.0, subnet=8.0))
    assert shown["0F0.0"] == (0, 12) and shown["U0"] == (20, 22)
    assert shown["0F1.0"] == (22, 26)


def test_a_subnet_is_let_in_when_the_last_host_has_launched() -> None:
    """
    host 0     F .1 .... B .1 U 1                    its device ends last, and was launched long before
    host 1     F .1 B .1 U 30 ─────────────┤ in 5    lets in when it is done with all 30 groups
    """
    pieces = (
        Piece(0, ("0",), Cost(1.0, 27.0, 1.0, 1.0), layers=1, step=1.0),
        Piece(1, tuple(f"1{n}" for n in range(30)), Cost(1.0, 1.0, 0.5, 0.5), layers=1, step=1.0),
    )
    launches = Launches(forward_layer=0.1, backward_layer=0.1, step_group=1.0, subnet=5.0)
    shown = run(Fixed(2, 1, (pieces, pieces)), launches)
    launched = 5.0 + 0.1 + 0.1 + 0.1 + 30.0  # let in, F, F, B, U of the second worker
    assert shown["0F1.0"][1] >= launched + 5.0 + 1.0
