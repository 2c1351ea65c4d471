"""Chimera (Li and Hoefler 2021): two pipelines in opposite directions, so that each fills the other's bubbles.

    4 workers, 4 micro-batches: 0 and 2 go down (stage s on worker s), 1 and 3 go up (stage s on worker 3 - s)
    worker 0  0F0 0F2  .  3F1 3B1 3F3 3B3 0B0  .  0B2
    worker 1   .  1F0 2F1 1F2 2F3 2B1 1B0 2B3 1B2  .
    worker 2   .  1F1 2F0 1F3 2F2 2B0 1B1 2B2 1B3  .
    worker 3  0F1 0F3  .  3F0 3B0 3F2 3B2 0B1  .  0B3

Every worker has two stages, and every stage two workers: their gradients are added as those of any two micro-batches
are. The order is that of section 3.1: in slots of one forward or one backward, micro-batch i of a direction enters at

    2 (i mod D/2) + 2 D floor(i / (D/2))         goes forward on stage s at  + s,  back at  + 2 D - 1 - s

which leaves no two tasks of a worker in one slot if D is even. If it is odd, ties go to the downward direction.
"""

from __future__ import annotations

from sennit.schedule.action import Action
from sennit.schedule.listed import listed
from sennit.schedule.policy import Policy
from sennit.schedule.setting import Setting


def chimera(worker: int, workers: int, micro_batches: int) -> list[Action]:
    """The order of one worker, which holds stage `worker` going down and stage D - 1 - `worker` going up."""
    half = max(1, workers // 2)
    slots: list[tuple[int, int, Action]] = []
    for j in range(micro_batches):
        i, up = divmod(j, 2)
        stage = workers - 1 - worker if up else worker
        enters = 2 * (i % half) + 2 * workers * (i // half)
        slots.append((enters + stage, up, Action(stage, "F", j)))
        slots.append((enters + 2 * workers - 1 - stage, up, Action(stage, "B", j)))
    return [action for _, _, action in sorted(slots)]


def place(setting: Setting, stage: int, number: int) -> int:
    """Even micro-batches of a round go down, odd ones up."""
    return setting.workers - 1 - stage if number % 2 else stage


POLICY = Policy(
    order=listed(lambda worker, setting, number: chimera(worker, setting.workers, number)),
    place=place,
    per_micro_batch=True,
    stages=lambda setting: setting.workers,
)
