"""One rank of a pipeline of torch's own, over all static networks and schedules; gradients go to a file.

python -m tests.runtime.torch_pipe RANK FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from tests.runtime.runs import recipe

M, BATCH = 4, 12
SCHEDULES: dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def static(name: str) -> Any:
    """The recipe of one network: one step of plain gradient descent."""
    return recipe(
        space=f"static_nets.py:{name}", data="static_nets.py:Data", loss_name="cross_entropy", batch_size=BATCH,
        micro_batches=M, steps=1, lr=0.5, clip="none", optimizer={"name": "sgd"},
    )  # fmt: skip


class Second(nn.Module):
    """The second half of `Opened` as torch wants it: one module."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held

    def forward(self, x: Tensor) -> Tensor:
        branches, last = self.held[0], self.held[1]
        return last(torch.tanh(branches.a(x)) * torch.sigmoid(branches.b(x)) + branches.c(x))


def main(rank: int, folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=2)
    found: dict[tuple[str, str], dict[str, Tensor | None]] = {}
    for name in names:
        for schedule, kind in SCHEDULES.items():
            made = static(name)
            torch.manual_seed(7)
            model = made.build_model()
            (task,) = made.tasks(1)
            x = torch.cat([x for x, _ in task.micro_batches])
            y = torch.cat([y for _, y in task.micro_batches])
            half: Any = (model.first, model.second)[rank]
            module = Second(half) if name == "Opened" and rank else half
            stage = PipelineStage(module, rank, 2, torch.device("cpu"))
            steps = kind(
                stage, M, loss_fn=lambda o, t, made=made, task=task: made.loss(o, t, task, 0), scale_grads=False
            )
            steps.step(*(() if rank else (x,)), **({"target": y} if rank else {}))
            prefix = "second" if rank else "first"
            found[name, schedule] = {f"{prefix}.{n}": p.grad for n, p in half.named_parameters()}
    torch.save(found, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
