"""`Handing`: gradients of one run and micro-batch, on their way to those who step their groups.

    layer ─ gradients ─▶ all of a group, lying as its parameters do, and stepped here?
                           yes ──▶ added up at once, while the device computes the layers before
                           no ───▶ when the task ends, to others in few messages

To add up what captured layers lend takes the host about as long as to launch one, and the device hardly any time.
Behind a task, the device waits for all of that. A task that is tried again gives the same again: what has been added up
by then stays, and nothing is stepped before the task ends, so that its loss can be looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import Tensor

from sennit.memory.gradients import Laid
from sennit.program.cut import Run
from sennit.program.step import Step
from sennit.runtime.fold import Part, Use
from sennit.runtime.stepping import Stepping
from sennit.runtime.subnet import Subnet


class Handing:
    """Of one task.

    Args:
        stepping: of the worker that runs it.
        frozen: groups that do not train.
    """

    def __init__(
        self, subnet: Subnet, run: Run, micro_batch: int, stepping: Stepping, frozen: Collection[str]
    ) -> None:  # fmt: skip
        self.subnet, self.micro_batch, self.stepping, self.groups = subnet, micro_batch, stepping, stepping.groups
        self.parts: dict[str, dict[Use, Tensor | None]] = {
            group: {} for group in subnet.read_by_run[run.index] if group not in frozen
        }
        self.added: dict[str, bool] = {}
        """Groups that have been added up, and whether nothing of them is missing any more."""

    def begin(self) -> None:
        """The task begins, or is tried again: what was lent before is not there any more."""
        self.parts = {group: {} for group in self.parts}

    def take(self, step: Step, part: Part) -> None:
        """What a step gives. All of a group that no other step of the run uses is added up at once."""
        groups = self.groups.of_step(step)[0]
        if isinstance(part, Laid) and len(groups) == 1 and len(part) == len(self.groups.by_name[groups[0]].names):
            (group,) = groups
            if self._here(group):
                if group not in self.added:
                    self._add(group, part)
                return
        self._put(part)

    def end(self, part: Part) -> None:
        """All that has not been taken."""
        self._put(part)
        for group in self.parts:
            if group not in self.added and self._here(group):
                self._add(group, self.parts[group])

    def elsewhere(self) -> dict[str, Mapping[Use, Tensor | None]]:
        """Parts of groups that other workers step."""
        return {group: part for group, part in self.parts.items() if not self._here(group)}

    def complete(self) -> None:
        """Let groups that have all their gradients be stepped."""
        for group in self.parts:
            if self.added.get(group):
                self.stepping.all_in(self.subnet, group)

    def _put(self, part: Part) -> None:
        for use, grad in part.items():
            self.parts[self.groups.of_name[use[0]].name][use] = grad

    def _here(self, group: str) -> bool:
        return self.subnet.owner[group] == self.stepping.rank

    def _add(self, group: str, part: Part) -> None:
        self.added[group] = self.stepping.add(self.subnet, group, self.micro_batch, part)
