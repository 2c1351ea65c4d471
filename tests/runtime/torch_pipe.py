"""One rank of a pipeline of torch's own, over static networks and schedules; gradients go to a file.

python -m tests.runtime.torch_pipe RANK FOLDER NAMES [SCHEDULE]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from tests.runtime.runs import recipe

M, BATCH = 4, 12

SCHEDULES: dict[str, tuple[Any, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "gpipe": (ScheduleGPipe, ((0,), (1,))),
    "1f1b": (Schedule1F1B, ((0,), (1,))),
    "interleaved": (ScheduleInterleaved1F1B, ((0, 2), (1, 3))),
    "zero-bubble": (ScheduleInterleavedZeroBubble, ((0, 2), (1, 3))),
    "zbv": (ScheduleZBVZeroBubble, ((0, 3), (1, 2))),
}
"""Our name to torch's class, and the stages of both ranks."""

UNCUT = ("Opened", "Dropped", "Strided")
"""Networks of two parts for torch."""


def goes(name: str, schedule: str) -> bool:
    """Whether torch can run a network under a schedule."""
    return name not in UNCUT or len(SCHEDULES[schedule][1][0]) == 1


def static(name: str) -> Any:
    """The recipe of one network: one step of plain gradient descent."""
    return recipe(
        space=f"static_nets.py:{name}", data="static_nets.py:Data", loss_name="cross_entropy", batch_size=BATCH,
        micro_batches=M, steps=1, lr=0.5, clip="none", optimizer={"name": "sgd"},
    )  # fmt: skip


class Second(nn.Module):
    """The second half of `Opened` as torch wants it: one module."""

    def __init__(self, branches: Any, last: nn.Module) -> None:
        super().__init__()
        self.branches, self.last = branches, last

    def forward(self, x: Tensor) -> Tensor:
        held = self.branches
        return self.last(torch.tanh(held.a(x)) * torch.sigmoid(held.b(x)) + held.c(x))


def stages_of(name: str, model: Any, number: int) -> list[nn.Module]:
    """The network in two or four stages."""
    parts = list(model.parts)
    if name == "Opened":
        return [parts[0], Second(*parts[1:])]
    if len(parts) == number:
        return parts
    return [nn.Sequential(*parts[:2]), nn.Sequential(*parts[2:])]


def main(rank: int, folder: Path, names: list[str], only: str = "") -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=2)
    found: dict[tuple[str, str], dict[str, Tensor | None]] = {}
    for name in names:
        for schedule, (kind, layout) in SCHEDULES.items():
            if not goes(name, schedule) or only not in ("", schedule):
                continue
            made = static(name)
            torch.manual_seed(7)
            model = made.build_model()
            (task,) = made.tasks(1)
            x = torch.cat([x for x, _ in task.micro_batches])
            y = torch.cat([y for _, y in task.micro_batches])
            number = sum(len(own) for own in layout)
            modules = stages_of(name, model, number)
            stages = [PipelineStage(modules[s], s, number, torch.device("cpu")) for s in layout[rank]]
            steps = kind(
                stages if number > 2 else stages[0], M,
                loss_fn=lambda o, t, made=made, task=task: made.loss(o, t, task, 0), scale_grads=False,
            )  # fmt: skip
            last = number - 1 in layout[rank]
            steps.step(*((x,) if 0 in layout[rank] else ()), **({"target": y} if last else {}))
            own = {id(p) for s in layout[rank] for p in modules[s].parameters()}
            found[name, schedule] = {n: p.grad for n, p in model.named_parameters() if id(p) in own}
    torch.save(found, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].split(","), *sys.argv[4:])
