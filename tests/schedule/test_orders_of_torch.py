"""Our orders are torch's own, action by action."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch_schedules: Any = pytest.importorskip("torch.distributed.pipelining.schedules")

from sennit.schedule.action import Action, compact, read_csv, write_csv  # noqa: E402
from sennit.schedule.gpipe import gpipe  # noqa: E402
from sennit.schedule.interleaved import interleaved  # noqa: E402
from sennit.schedule.one_f_one_b import one_f_one_b  # noqa: E402
from sennit.schedule.zbv import zbv  # noqa: E402

SIZES = [(workers, m) for workers in (2, 4, 8) for m in (2, 4, 8)]


def computed(row: list[Any]) -> list[Action]:
    """A row of torch's, without waiting and communication."""
    return [Action.parse(str(a)) for a in row if a is not None and a.computation_type.value in ("F", "B", "I", "W")]


@pytest.mark.parametrize(("workers", "m"), SIZES)
def test_gpipe(workers: int, m: int) -> None:
    held = SimpleNamespace(_num_stages=workers, _n_microbatches=m)
    rows = torch_schedules.ScheduleGPipe._get_pipeline_order(held)
    for worker in range(workers):
        assert gpipe(worker, m) == computed(rows[worker])


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize(("workers", "m"), SIZES)
def test_interleaved_and_interleaved_zero_bubble(workers: int, m: int, chunks: int, split: bool) -> None:
    name = "ScheduleInterleavedZeroBubble" if split else "ScheduleInterleaved1F1B"
    per_round = m // max(1, m // workers)
    held = SimpleNamespace(
        n_local_stages=chunks, microbatches_per_round=per_round, pp_group_size=workers, _n_microbatches=m
    )
    for worker in range(workers):
        row = getattr(torch_schedules, name)._calculate_single_rank_operations(held, worker)
        assert interleaved(worker, workers, m, chunks, split=split) == computed(row)


@pytest.mark.parametrize(("workers", "m"), SIZES)
def test_zbv(workers: int, m: int) -> None:
    held = SimpleNamespace(pp_group_size=workers, _n_microbatches=m, num_stages=2 * workers)
    for worker in range(workers):
        row = torch_schedules.ScheduleZBVZeroBubble._calculate_single_rank_operations(held, worker)
        assert zbv(worker, workers, m) == computed(row)


class _Stage:
    """Stands for a stage of torch's, and writes down what its schedule makes it do."""

    def __init__(self, worker: int, workers: int) -> None:
        self.stage_index, self.num_stages, self.is_last = worker, workers, worker == workers - 1
        self.is_first, self.has_backward = not worker, True
        self.order: list[Action] = []

    def forward_one_chunk(self, j: int, *args: Any, **kwargs: Any) -> None:
        self.order.append(Action(self.stage_index, "F", j))

    def backward_one_chunk(self, j: int, *args: Any, **kwargs: Any) -> None:
        self.order.append(Action(self.stage_index, "B", j))

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: []  # sends, receives, scaling: nothing to do


@pytest.mark.parametrize(("workers", "m"), [(workers, m) for workers, m in SIZES if m >= workers])
def test_1f1b_is_what_torch_executes(workers: int, m: int) -> None:
    """Not what its table says: on the last rank that begins with micro-batch 1, and its own validator rejects it."""
    for worker in range(workers):
        stage = _Stage(worker, workers)
        schedule = torch_schedules.Schedule1F1B.__new__(torch_schedules.Schedule1F1B)
        vars(schedule).update(
            _stage=stage, _num_stages=workers, _n_microbatches=m, _has_backward=True, scale_grads=False,
            _stage_initialized=True, _stage_forward_initialized=True, _stage_backward_initialized=True,
            _loss_fn=lambda *given: 0.0, _internal_losses=[],
        )  # fmt: skip
        schedule._check_inputs = lambda *given: ([()] * m, [{}] * m)
        schedule._initialize_stage = lambda *given: None
        schedule._maybe_compute_loss = lambda *given: None
        schedule._maybe_get_loss = lambda *given: None
        schedule._update_losses = lambda *given: None
        schedule._step_microbatches([()] * m, [{}] * m, None, None)
        assert one_f_one_b(worker, workers, m) == stage.order


def test_the_table_that_torch_prints_for_1f1b_is_wrong_on_the_last_rank() -> None:
    """The reason why the test above does not compare with it. Once this fails, torch has been repaired."""
    held = SimpleNamespace(_num_stages=2, _n_microbatches=4)
    rows = torch_schedules.Schedule1F1B._get_pipeline_order(held)
    assert computed(rows[1])[0] == Action(1, "F", 1)
    assert one_f_one_b(0, 2, 4) == computed(rows[0])


def test_torch_reads_our_csv_and_we_read_its_actions() -> None:
    ours = {worker: interleaved(worker, 4, 8, 2, split=True) for worker in range(4)}
    text = write_csv(ours)
    parse = torch_schedules._Action.from_str
    for worker, line in enumerate(text.splitlines()):
        theirs = [parse(cell) for cell in line.split(",")]
        assert computed(theirs) == ours[worker]
        assert ",".join(map(str, theirs)) == line
    assert {worker: compact(row) for worker, row in read_csv(text).items()} == ours
