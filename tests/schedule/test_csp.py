"""Readiness by events, and the order among ready tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sennit.schedule.csp import CspOrder
from sennit.schedule.order import Task
from sennit.schedule.ready import Ready


def test_backward_first_then_the_earliest_subnet() -> None:
    order = CspOrder()
    for task in [("F", 1, 0, 0), ("F", 0, 1, 0), ("B", 3, 0, 1), ("B", 2, 0, 0), ("B", 2, 0, 1)]:
        order.add(Task(*task))  # type: ignore[arg-type]
    assert [str(order.pop()) for _ in range(5)] == ["1B2.0", "0B2.0", "1B3.0", "0F0.1", "0F1.0"]
    assert order.pop() is None


@given(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=12), st.permutations(range(6)))
def test_a_task_is_ready_exactly_when_its_last_event_has_happened(needs: list[set[int]], told: list[int]) -> None:
    ready = Ready()
    tasks = {Task("F", y, 0, 0): need for y, need in enumerate(needs)}
    for task, need in tasks.items():
        ready.add(task, need)
    happened: set[int] = set()
    seen = set(ready.take())
    assert seen == {task for task, need in tasks.items() if not need}
    for event in told:
        ready.happened(event)
        happened.add(event)
        seen.update(ready.take())
        assert seen == {task for task, need in tasks.items() if need <= happened}
    assert not ready.missing and not list(ready.awaited())
