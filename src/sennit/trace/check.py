"""The independent checker: from the access log alone, was every dependency kept (contract, rule 10)?

It shares no code with what it checks: not the scheduler, not `Sync`, not the recorded programs. What it knows
is in `Rules`, five facts of the recipe and the run. It derives who depends on whom from the lines, never from
their order.

    strict      subnet y sees what the latest subnet before y that uses the group has written
    delayed:K   always-shared groups: y sees version y-K; gradient x is written once, when x+K-1 has finished
    frozen      always-shared groups: version -1, never written
    bulk:K      y sees what the latest subnet of an earlier bulk that uses the group has written; of each bulk only the
                last user of a group writes it
    asp         what a forward sees is anybody's guess, but somebody wrote it; with stashing its backward sees the same
    buffers     written in forward in order of (subnet, micro-batch), each seeing the one before
    complete    each subnet, all its micro-batches, forward and backward, one write to each group it read
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sennit.trace.access import Access, Version
from sennit.trace.rules import Rules as Rules
from sennit.trace.rules import Violation as Violation

_PHASES = {"F": "forward", "B": "backward", "U": "optimizer step"}


def check(accesses: Iterable[Access], rules: Rules) -> list[Violation]:
    """All violations in a log, by rule and subnet; empty if every dependency was kept."""
    checker = _Checker(rules)
    for access in accesses:
        checker.add(access)
    checker.finish()
    return checker.found


@dataclass
class _Group:
    """The accesses to one group, by subnet."""

    reads: dict[int, list[Access]] = field(default_factory=lambda: defaultdict(list))
    writes: dict[int, list[Access]] = field(default_factory=lambda: defaultdict(list))

    @property
    def users(self) -> list[int]:
        return sorted({*self.reads, *self.writes})


class _Checker:
    def __init__(self, rules: Rules) -> None:
        self.rules, self.lag = rules, rules.lag
        self.parameters: dict[str, _Group] = defaultdict(_Group)
        self.buffers: dict[str, _Group] = defaultdict(_Group)
        self.found: list[Violation] = []
        self.seen: set[int] = set()
        self.end = rules.end or 0

    def report(self, rule: str, group: str, seq: int, message: str) -> None:
        self.found.append(Violation(rule, group, seq, message))

    # -- line by line

    def add(self, a: Access) -> None:
        moving = not isinstance(a.version, int)
        wrong = self._malformed(a, moving)
        if wrong:
            self.report("line", a.group, a.seq, f"{_said(a)}: {wrong}")
            return
        if a.seq >= self.rules.first:
            self.seen.add(a.seq)
        group = (self.buffers if moving else self.parameters)[a.group]
        (group.reads if a.rw == "R" else group.writes)[a.seq].append(a)

    def _malformed(self, a: Access, moving: bool) -> str:
        m = self.rules.micro_batches
        late = (self._delay(a.group) or 1) - 1 if a.rw == "W" else 0
        if a.seq < self.rules.first - late:
            return f"the log starts at subnet {self.rules.first}"
        if a.phase == "U" and a.micro != -1:
            return "an optimizer step belongs to no micro-batch (micro must be -1)"
        if a.phase != "U" and not 0 <= a.micro < m:
            return f"there are {m} micro-batches"
        if a.rw == "W" and a.phase != ("F" if moving else "U"):
            return f"{'buffers' if moving else 'parameters'} are not written in the {_PHASES[a.phase]}"
        if moving and a.phase == "U":
            return "an optimizer step has nothing to do with buffers"
        if a.group in (self.parameters if moving else self.buffers):
            return "the same group was logged with versions of the other kind"
        return ""

    # -- group by group

    def finish(self) -> None:
        if self.rules.end is None:
            self.end = max(self.seen, default=-1) + 1
        for name, group in sorted(self.parameters.items()):
            self._parameter_reads(name, group)
            self._parameter_writes(name, group)
            self._passes(name, group, backward=not self._frozen(name))
        for name, group in sorted(self.buffers.items()):
            if self._frozen(name):
                self._frozen_buffers(name, group)
            else:
                self._buffer_order(name, group)
            self._passes(name, group, backward=False)
        self._gaps()

    def _frozen(self, name: str) -> bool:
        return self.rules.shared == "frozen" and name in self.rules.always

    def _delay(self, name: str) -> int | None:
        return self.lag if name in self.rules.always else None

    def _finished(self, seq: int) -> bool:
        return seq < self.end

    def _parameter_reads(self, name: str, group: _Group) -> None:
        users, first, delay = group.users, self.rules.first, self._delay(name)
        base = first - 1 if first == 0 or name in self.rules.always else None
        for seq in sorted(group.reads):
            before = users[: bisect_left(users, seq // self.rules.bulk * self.rules.bulk)]
            for a in group.reads[seq]:
                if self._frozen(name):
                    self._expect(a, -1, "it is frozen")
                elif delay is not None:
                    self._expect(a, max(seq - delay, -1), f"it is delayed by {delay}")
                elif self.rules.asp:
                    if isinstance(a.version, int) and a.version >= first and a.version not in group.writes:
                        self.report("read", name, seq, f"{_said(a)}, which nobody wrote")
                elif before:
                    what = f"{seq}" if self.rules.bulk == 1 else f"the bulk of {seq}"
                    self._expect(a, before[-1], f"subnet {before[-1]} is the last before {what} that uses it")
                elif base is not None:
                    self._expect(a, base, "no subnet before uses it")
                elif not (isinstance(a.version, int) and -1 <= a.version < first):
                    self.report("read", name, seq, f"{_said(a)}: the log starts at {first}, nothing was written")
                else:  # whoever wrote it before the log began: all must agree
                    base = a.version

    def _expect(self, a: Access, version: Version, why: str) -> None:
        if a.version != version:
            self.report("read", a.group, a.seq, f"{_said(a)}, must see {_shown(version)}: {why}")

    def _parameter_writes(self, name: str, group: _Group) -> None:
        wait = (self._delay(name) or 1) - 1
        seqs = {*group.users, *range(max(0, self.rules.first - wait), self.rules.first)}
        for seq in sorted(seqs):
            writes = group.writes.get(seq, [])
            least = 1 if seq + wait < self.end and not self._frozen(name) and self._steps(group, seq) else 0
            most = least if self.rules.end is None or self._frozen(name) else 1
            if not least <= len(writes) <= most:
                times = f"wrote {name} {len(writes)} times, must be {least}"
                self.report("write", name, seq, f"subnet {seq} {times}")
            if writes and seq >= self.rules.first and seq not in group.reads:
                self.report("gap", name, seq, f"subnet {seq} wrote {name} and did not read it")
            for a in writes[:most]:
                if a.version != seq:
                    self.report("write", name, seq, f"{_said(a)}, must write {seq}")

    def _steps(self, group: _Group, seq: int) -> bool:
        """Whether a user of a group is the one that writes it: of a bulk, the last."""
        users, end = group.users, (seq // self.rules.bulk + 1) * self.rules.bulk
        return users[bisect_left(users, end) - 1] == seq if seq in users else True

    def _passes(self, name: str, group: _Group, *, backward: bool) -> None:
        """Each step that used the group: each micro-batch once forward and once backward, same version.

        Frozen groups and buffers may have no backward (`backward=False`): then none at all.
        """
        for seq, reads in sorted(group.reads.items()):
            seen: dict[tuple[str, str, int], list[Access]] = defaultdict(list)
            for a in reads:
                seen[a.step, a.phase, a.micro].append(a)
            back = {a.step for a in reads if a.phase == "B"}
            for step in sorted({a.step for a in reads if a.phase != "U"}):
                wanted = backward or step in back
                for micro in range(self.rules.micro_batches):
                    f, b = seen.get((step, "F", micro), []), seen.get((step, "B", micro), [])
                    self._pass(name, seq, step, micro, f, b, backward=wanted)

    def _pass(
        self, name: str, seq: int, step: str, micro: int, f: list[Access], b: list[Access], *, backward: bool
    ) -> None:
        place = f"step {step} of subnet {seq}, micro-batch {micro}"
        for phase, accesses, wanted in (("F", f, True), ("B", b, backward)):
            if len(accesses) > 1:
                self.report("pair", name, seq, f"{place} read {name} twice in the {_PHASES[phase]}")
            elif not accesses and wanted and self._finished(seq):
                self.report("gap", name, seq, f"{place} did not read {name} in the {_PHASES[phase]}")
        if b and not f:
            self.report("pair", name, seq, f"{place} had a backward on {name} without a forward")
        elif b and f and f[0].version != b[0].version and self.rules.asp != "none":
            versions = f"{_shown(f[0].version)} in the forward, {_shown(b[0].version)} in the backward"
            self.report("pair", name, seq, f"{place} read {name} in version {versions}")

    # -- buffers

    def _frozen_buffers(self, name: str, group: _Group) -> None:
        for reads in group.reads.values():
            for a in reads:
                self._expect(a, (-1, -1), "it is frozen")
        for seq, writes in group.writes.items():
            self.report("write", name, seq, f"{_said(writes[0])}, but it is frozen")

    def _buffer_order(self, name: str, group: _Group) -> None:
        first, m = self.rules.first, self.rules.micro_batches
        reads: dict[tuple[int, int], list[Access]] = defaultdict(list)
        writes: dict[tuple[int, int], list[Access]] = defaultdict(list)
        for into, of in ((reads, group.reads), (writes, group.writes)):
            for accesses in of.values():
                for a in accesses:
                    if a.phase == "F":
                        into[a.seq, a.micro].append(a)
        before: tuple[int, int] | None = (-1, -1)
        if first:  # the writer before the log is known only if every subnet writes
            before = (first - 1, m - 1) if name in self.rules.always else None
        for key in sorted({*reads, *writes}):
            place = f"subnet {key[0]}, micro-batch {key[1]}"
            r, w = Counter(a.step for a in reads[key]), Counter(a.step for a in writes[key])
            for step in sorted({*r, *w}):
                if (r[step], w[step]) != (1, 1) and (self._finished(key[0]) or max(r[step], w[step]) > 1):
                    times = f"read it {r[step]} times and wrote it {w[step]} times, must be once each"
                    self.report("order", name, key[0], f"buffers {name}: step {step} of {place} {times}")
            for a in writes[key]:
                if a.version != key:
                    self.report("write", name, key[0], f"{_said(a)}, must write {_shown(key)}")
            # Several steps of one micro-batch may use a module: the first sees the write before, the others
            # that of this micro-batch.
            foreign = [a for a in reads[key] if a.version != key]
            if before is None and foreign and foreign[0].version < (first, 0):  # type: ignore[operator]
                before = foreign[0].version  # type: ignore[assignment]
            for a in foreign:
                if a.version != before:
                    self._expect(a, before or (first, -1), "that was the write before")
            if len(foreign) != 1 and reads[key]:
                text = f"{len(foreign)} steps of {place} saw the write before, must be one"
                self.report("order", name, key[0], f"buffers {name}: {text}")
            before = key

    # -- the whole

    def _gaps(self) -> None:
        if self.rules.end is None and not self.seen:
            self.report("gap", "", self.rules.first, "the log holds no accesses")
        every = range(self.rules.first, self.end)
        for seq in every:
            if seq not in self.seen:
                self.report("gap", "", seq, f"subnet {seq} does not appear in the log")
        for name in sorted(self.rules.always):
            moving = name.endswith("#buffers")
            group = (self.buffers if moving else self.parameters).get(name, _Group())
            users = set(group.users)
            for seq in every:
                if seq in self.seen and seq not in users and not (moving and self._frozen(name)):
                    self.report("gap", name, seq, f"subnet {seq} did not use {name}, which every subnet shares")


def _shown(version: Version) -> str:
    return str(version) if isinstance(version, int) else f"[{version[0]}, {version[1]}]"


def _said(a: Access) -> str:
    """The line in words."""
    did = "read" if a.rw == "R" else "wrote"
    micro = f", micro-batch {a.micro}" if a.micro >= 0 else ""
    return (
        f"subnet {a.seq}{micro} {did} {a.group} in version {_shown(a.version)} "
        f"({_PHASES[a.phase]}, step {a.step}, worker {a.worker})"
    )
