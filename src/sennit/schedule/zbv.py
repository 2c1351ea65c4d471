"""ZB-V (Qi et al. 2023, section 6): two chunks per worker in a V, weight gradients in the gaps.

    worker k of D holds stages k (going down the V) and 2D - 1 - k (coming up)

    F0 × 2(D-k)-1 │ F1 F0 × k │ F1 I1 W1 × D-k │ F0 I0 W0 F1 I1 W1 × ... │ I0 I1 × k │ I0 W0 × D-k │ W1 × k │ W0 × k

With fewer micro-batches than 2D - 1 the pattern is made for 2D - 1 and the others left out.
"""

from __future__ import annotations

from sennit.schedule.action import Action, Kind
from sennit.schedule.listed import listed
from sennit.schedule.policy import Policy
from sennit.schedule.setting import Setting


def zbv(worker: int, workers: int, micro_batches: int) -> list[Action]:
    """The order of one worker."""
    made = max(2 * workers - 1, micro_batches)
    up, down = workers - worker, worker
    pattern = ["F0"] * (2 * up - 1) + ["F1", "F0"] * down + ["F1", "I1", "W1"] * up
    full = made - (2 * up - 1) - down  # rounds that still have a forward of chunk 0 to start
    pattern += ["F0", "I0", "W0", "F1", "I1", "W1"] * full
    drained = made - down - up - full  # rounds in which only chunk 1 goes forward
    pattern += ["I0", "W0", "F1", "I1", "W1"] * drained
    pattern += ["I0", "I1"] * down + ["I0", "W0"] * up + ["W1"] * down + ["W0"] * down
    stages = (worker, 2 * workers - 1 - worker)
    counts: dict[str, int] = {}
    order: list[Action] = []
    for name in pattern:
        j = counts[name] = counts.get(name, -1) + 1
        kind: Kind = name[0]  # type: ignore[assignment]
        if j < micro_batches:
            order.append(Action(stages[int(name[1])], kind, j))
    return order


def place(setting: Setting, stage: int, number: int) -> int:
    """Down the V and up again."""
    return min(stage, 2 * setting.workers - 1 - stage)


POLICY = Policy(
    order=listed(lambda worker, setting, number: zbv(worker, setting.workers, number)),
    split=True,
    place=place,
    stages=lambda setting: 2 * setting.workers,
)
