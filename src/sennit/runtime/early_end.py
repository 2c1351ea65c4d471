"""`EarlyEnd`: what a run that ends early leaves behind, and says of it.

a loss that is not finite, a program that is refused ─▶ the state before that subnet is saved, if it can still be had
anything else                                        ─▶ the last checkpoint
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sennit.errors import HaltError, NanLossError, SpaceError, SubnetError
from sennit.runtime import checkpoint
from sennit.runtime.facts import Facts
from sennit.runtime.refusal import told
from sennit.runtime.runfolder import RunFolder
from sennit.runtime.segment import Engine
from sennit.supernet.not_finite import advice
from sennit.trace.access import forget_from
from sennit.words import counted


class EarlyEnd:
    """Of one run.

    Args:
        losses: of all subnets that are finished; others append to it.
        save: makes a checkpoint of an engine's state, in which so many subnets are finished.
    """

    def __init__(
        self, facts: Facts, folder: RunFolder, losses: Sequence[float], save: Callable[[Engine, int], None]
    ) -> None:
        self.facts, self.folder, self.losses, self.save = facts, folder, losses, save
        self.bulk = facts.request.recipe.sync_rule.bulk(facts.request.placement.workers)

    def after_refusal(self, engine: Engine, error: SubnetError) -> SpaceError:
        """What to raise for a subnet whose program is refused, with the state before it saved."""
        y, virtual = error.seq_id // self.bulk * self.bulk, self.facts.virtual
        if not y or virtual:
            return told(error, "nothing had been trained yet" if not y else "--device virtual trains nothing")
        if self.bulk > 1 or len(self.losses) != y or not engine.cut_before(y):
            return told(error, self.kept())  # within a bulk, buffers have moved
        return told(error, f"the state before it is kept in {self._saved(engine, y)}")

    def after_halt(self, engine: Engine, error: HaltError) -> HaltError:
        """What to raise for a subnet that cannot be finished, with the state before it saved."""
        y = error.seq_id
        if len(self.losses) == y and not y % self.bulk and engine.cut_before(y):
            kept = f"the state before subnet {y} is kept in {self._saved(engine, y)}"
        else:
            kept = f"later subnets had gone on already, so the cut before it could not be formed; {self.kept()}"
        if isinstance(error, NanLossError):
            what = advice(self.facts.request.recipe, y, error.micro_batch, self.bulk)
            return NanLossError(f"{error}; {kept}. {what}", y, error.micro_batch)
        return type(error)(f"{error}; {kept}", y)

    def kept(self) -> str:
        """What there is to go on with."""
        found, resume = checkpoint.folders(self.folder.checkpoints), self.facts.resume(self.folder.path)
        if not found and not self.losses:
            return "nothing had been trained yet"
        if not found:
            return (
                f"there is no checkpoint yet, so {resume} starts from the beginning; lower [checkpoint] every to have "
                "one earlier"
            )
        return f"the last checkpoint is {found[-1]}; go on with {resume}, by the same recipe and code"

    def given_up(self) -> str:
        """What a run says that did not wait for the subnets in flight."""
        return f"ended at once, after {len(self.losses):,} of {counted(self.facts.end, 'subnet')}; {self.kept()}"

    def _saved(self, engine: Engine, y: int) -> str:
        forget_from(self.folder.access, y)
        self.save(engine, y)
        return f"{self.folder.path}/checkpoints/{y:08d}"
