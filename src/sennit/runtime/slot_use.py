"""`SlotUse`: which tasks may start under a budget, and what is fetched ahead.

order picks a forward ── room to pin what it reads? ──no──▶ aside, offered again
                                │ yes
                                ▼
    fetch what it reads, and pin it ──▶ fetch ahead what the next forwards read ──▶ run it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from sennit.errors import BudgetError, RunError, UserError
from sennit.memory.eviction import Key
from sennit.memory.upcoming import Upcoming, Use
from sennit.runtime.full import is_full
from sennit.runtime.reading import Reading
from sennit.runtime.share import DeviceStore
from sennit.runtime.subnet import Subnet
from sennit.schedule.order import Order, Task, is_fixed


class SlotUse:
    """Of one worker.

    Args:
        lowest: the lowest unfinished subnet of all workers, as far as is known.
        horizon: how many runs ahead are fetched.
    """

    def __init__(
        self, store: DeviceStore, reading: Reading, order: Order, lowest: Callable[[], int], horizon: int
    ) -> None:
        self.store, self.reading, self.order, self.lowest, self.horizon = store, reading, order, lowest, horizon
        self.upcoming = Upcoming()
        self.owing: dict[str, Subnet] = {}
        """Of each group, the last subnet here whose forward has read it."""
        store.foresee(self.next_use)
        self.forwards: dict[tuple[int, int], int] = {}
        """Of each run here, micro-batches whose forward has not begun."""
        self.aside: list[Task] = []
        """Forwards that there was no room for."""
        self.sought: dict[Use, list[str]] = {}
        """Of runs that were looked at ahead, groups that had to wait."""
        self.departed = 0
        """Slots that had been given up by then."""

    def foretell(self, seq_id: int, groups: Iterable[str]) -> None:
        """A subnet is drawn that will read these groups here.

        Raises:
            BudgetError: they do not fit. So early, those before it can still be finished.
        """
        if self.store.limited:
            held = list(groups)
            self.expect(seq_id, held)
            self.upcoming.foretell(seq_id, [(group, 0) for group in held])

    def expect(self, seq_id: int, groups: Iterable[str]) -> None:
        """A subnet reads these groups here.

        Raises:
            BudgetError: they do not fit.
        """
        try:
            self.store.expect(groups)
        except RunError as error:
            raise BudgetError(str(error), seq_id) from error

    def admit(self, subnet: Subnet) -> None:
        """A subnet is let in.

        Raises:
            BudgetError: what it reads here does not fit.
        """
        if not self.store.limited:
            try:
                self.store.expect(group for run, _ in subnet.own for group in subnet.read_by_run[run.index])
            except RuntimeError as error:
                if not is_full(error):
                    raise  # else whoever reads them makes room
            return
        groups: dict[int, tuple[str, ...]] = {}
        for run, _ in subnet.own:
            groups[run.index] = subnet.read_by_run[run.index]
            use = subnet.seq_id, run.index
            self.forwards[use] = self.forwards.get(use, 0) + 1
        self.expect(subnet.seq_id, {group for held in groups.values() for group in held})
        self.upcoming.admit(subnet.seq_id, {r: [(group, 0) for group in held] for r, held in groups.items()})

    def next_use(self, key: Key) -> float:
        """How late a slot is used next, as a number to compare. What is still to be stepped here comes first."""
        subnet = self.owing.get(key[0])
        if subnet is not None:
            if key[0] in subnet.unfinished:
                return -1.0
            del self.owing[key[0]]
        return self.upcoming.next_use(key)

    def waiting(self) -> list[Task]:
        """Forwards that may ask again."""
        aside, self.aside = self.aside, []
        return aside

    def room_for(self, task: Task, subnet: Subnet) -> bool:
        """Whether a task may start; a forward that may not is set aside.

        Raises:
            UserError: the order is a list, which goes on with nothing else.
        """
        if task.kind != "F" or not self.store.limited:
            return True
        groups = subnet.read_by_run[task.run]
        listed = is_fixed(self.order)
        if not self.store.may_run(groups, task.seq_id, None if listed else self.lowest()):
            if listed:
                raise UserError(
                    f"the budget is too little for this schedule: when the turn of forward {task} comes, the layers of "
                    "subnets under way leave no room for its own. Raise --budget, lower --in-flight, or take a "
                    "schedule that does not keep a fixed list (csp)"
                )
            self.aside.append(task)
            return False
        use = task.seq_id, task.run
        self.forwards[use] -= 1
        if not self.forwards[use]:
            del self.forwards[use]
            self.upcoming.begun(*use)
        return True

    def ready(self, task: Task, subnet: Subnet) -> None:
        """A task has become ready: count what it finds."""
        if task.kind == "F" and self.store.limited:
            for group in subnet.read_by_run[task.run]:
                self.store.ready(group, self.reading.version(group, task.seq_id))

    def begin(self, task: Task, subnet: Subnet) -> None:
        """A task begins. What it reads comes first, and only then what others will read."""
        if not self.store.limited:
            return
        if task.kind == "F":
            # what is there is pinned first, so that nothing of this comes in the place of something else of this
            for group in sorted(subnet.read_by_run[task.run], key=lambda group: not self.store.here(group)):
                self.store.bring(group, self.reading.version(group, task.seq_id))
                self.store.pin(group, task.seq_id)  # before the next one makes room for itself
                self.owing[group] = subnet
        self.look_ahead()

    def look_ahead(self) -> None:
        """Fetch what the next forwards read. An idle worker does this again and again: what is there or on its way is
        not looked for once more until a slot has been given up, which may be its own."""
        if not self.store.limited or not self.horizon:
            return
        before, self.departed = self.departed, self.store.departed()
        sought = self.sought if before == self.departed else {}
        self.sought = {
            (seq_id, run): [
                group
                for group in (sought[seq_id, run] if (seq_id, run) in sought else [group for group, _ in keys])
                if not self.store.ahead(group, self.reading.version(group, seq_id))
            ]
            for (seq_id, run), keys in islice(self.upcoming.coming(), self.horizon)
        }
