"""The checker passes right logs and catches every single mistake in them."""

from __future__ import annotations

import ast
import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from access_logs import ALWAYS, HEAD, STEM, SUBNETS, right_log
from msgspec.structs import replace

from sennit.errors import UserError
from sennit.trace import check as module
from sennit.trace.access import Access
from sennit.trace.check import Rules, check

SHARED = ("strict", "delayed:2", "delayed:3", "frozen")


def rules(m: int = 2, shared: str = "strict", first: int = 0, end: int | None = len(SUBNETS)) -> Rules:
    return Rules(micro_batches=m, shared=shared, always=ALWAYS, first=first, end=end)


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("m", [1, 2, 3])
def test_right_logs_pass_in_any_order_of_lines(shared: str, m: int) -> None:
    log = right_log(m=m, shared=shared)
    assert check(log, rules(m, shared)) == []
    assert check(log, rules(m, shared, end=None)) == []
    random.Random(m).shuffle(log)
    assert check(log, rules(m, shared)) == []


def mutations(a: Access) -> Iterator[tuple[str, list[Access]]]:
    """Every way in which one line can be wrong. (Which worker did it is not a dependency.)"""
    yield "left out", []
    yield "twice", [a, a]
    yield "another subnet", [replace(a, seq=a.seq + 1)]
    yield "before", [replace(a, seq=a.seq - 1)]
    yield "another micro-batch", [replace(a, micro=a.micro + 1)]
    yield "micro-batch before", [replace(a, micro=a.micro - 1)]
    yield "another group", [replace(a, group="b.0" if a.group != "b.0" else "a.0")]
    yield "another step", [replace(a, step=a.step + "x")] if a.phase != "U" else []
    yield "read for write", [replace(a, rw="W" if a.rw == "R" else "R")]
    for phase in "FBU":
        if phase != a.phase:
            yield f"phase {phase}", [replace(a, phase=phase)]  # type: ignore[arg-type]
    if isinstance(a.version, int):
        yield "newer", [replace(a, version=a.version + 1)]
        yield "older", [replace(a, version=a.version - 1)]
        yield "initial", [replace(a, version=-1 if a.version != -1 else 0)]
        yield "a pair", [replace(a, version=(a.version, 0))]
    else:
        seq, micro = a.version
        yield "other micro", [replace(a, version=(seq, micro + 1))]
        yield "older micro", [replace(a, version=(seq, micro - 1))]
        yield "other subnet", [replace(a, version=(seq + 1, micro))]
        yield "older subnet", [replace(a, version=(seq - 1, micro))]
        yield "a number", [replace(a, version=seq)]


@pytest.mark.parametrize("shared", SHARED)
def test_every_single_mutation_is_caught(shared: str) -> None:
    log = right_log(SUBNETS[:4], shared=shared)
    missed = []
    for i, access in enumerate(log):
        for what, wrong in mutations(access):
            if not check([*log[:i], *wrong, *log[i + 1 :]], rules(shared=shared, end=4)):
                missed.append((what, access))
    assert missed == []


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("shared", SHARED)
def test_a_subnet_that_writes_what_it_has_not_read_is_caught(shared: str, m: int) -> None:
    """All reads of a group by a subnet, or by one micro-batch of it, are missing, and its write is there."""
    log = right_log(m=m, shared=shared)
    written = {(a.group, a.seq) for a in log if a.phase == "U"}
    read = {(a.group, a.seq, a.micro) for a in log if a.rw == "R" and (a.group, a.seq) in written}
    assert read or shared == "frozen"
    for group, seq, micro in read:
        without = [a for a in log if (a.group, a.seq, a.micro, a.rw) != (group, seq, micro, "R")]
        assert check(without, rules(m, shared)), (group, seq, micro)
        without = [a for a in log if (a.group, a.seq, a.rw) != (group, seq, "R")]
        assert check(without, rules(m, shared)), (group, seq)


def test_an_asynchronous_read_of_what_nobody_wrote_is_caught() -> None:
    """It may see any version, but there must be one."""
    asynchronous = dataclasses.replace(rules(), asp="none")
    log = right_log()
    assert not check(log, asynchronous)
    wrong = [replace(a, version=9999) if a.group == "stem" and a.seq == 3 and a.rw == "R" else a for a in log]
    assert {(v.rule, v.seq) for v in check(wrong, asynchronous)} == {("read", 3)}
    later = [replace(a, version=4) if a.group == "stem" and a.seq == 3 and a.rw == "R" else a for a in log]
    assert not check(later, asynchronous)


def test_stale_read_is_told_in_words() -> None:
    log = right_log()
    at = next(i for i, a in enumerate(log) if a.group == "b.1" and a.seq == 3 and a.phase == "F")
    log[at] = replace(log[at], version=0)
    messages = [str(v) for v in check(log, rules())]
    assert messages[0] == (
        "subnet 3, micro-batch 0 read b.1 in version 0 (forward, step b.1, worker 0), must see 2: "
        "subnet 2 is the last before 3 that uses it"
    )
    assert "read b.1 in version 0 in the forward, 2 in the backward" in messages[1]


def test_the_published_rule_shows_as_stale_reads() -> None:
    """Algorithm 2 asks whether the earlier subnet has left this stage, so a later one may read too early."""
    log = []
    for a in right_log():
        stale = a.group == "a.0" and a.seq == 5 and a.rw == "R"
        log.append(replace(a, version=2) if stale else a)
    found = check(log, rules())
    assert {v.rule for v in found} == {"read"} and {v.seq for v in found} == {5}


def test_wrong_policy_is_a_violation() -> None:
    for shared in SHARED:
        for other in SHARED:
            found = check(right_log(shared=shared), rules(shared=other))
            assert bool(found) == (shared != other), (shared, other)


def test_wrong_number_of_micro_batches() -> None:
    assert check(right_log(m=3), rules(2)) and check(right_log(m=2), rules(3))


@pytest.mark.parametrize("seq", range(len(SUBNETS)))
def test_a_subnet_that_is_missing_altogether(seq: int) -> None:
    log = [a for a in right_log() if a.seq != seq]
    assert check(log, rules())


def test_an_always_shared_group_must_be_used_by_all() -> None:
    log = [a for a in right_log(shared="delayed:2") if not (a.group == "stem" and a.seq == 5)]
    found = check(log, rules(shared="delayed:2"))
    assert [(v.rule, v.group, v.seq) for v in found] == [("gap", "stem", 5)]
    strict = rules(shared="strict")
    assert check([a for a in right_log() if a.group != "head"], strict)


def test_an_empty_log_does_not_pass() -> None:
    assert next(v.message for v in check([], rules(end=None))) == "the log holds no accesses"
    assert check([], rules(end=3))


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("first", [1, 3])
def test_a_log_that_starts_later(shared: str, first: int) -> None:
    log = right_log(shared=shared)
    wait = int(shared.partition(":")[2] or 1) - 1
    late = [a for a in log if a.seq >= first or (a.phase == "U" and a.group in ALWAYS and a.seq >= first - wait)]
    assert check(late, rules(shared=shared, first=first)) == []
    for i, access in enumerate(late):
        for what, wrong in mutations(access):
            if what in ("left out", "twice", "read for write", "another micro-batch"):
                mutated = [*late[:i], *wrong, *late[i + 1 :]]
                assert check(mutated, rules(shared=shared, first=first)), (what, access)


def test_readers_of_an_unknown_earlier_write_must_agree() -> None:
    subnets = [[STEM, ("a.0", "a.0", None), HEAD]] * 3
    log = [a for a in right_log(subnets, m=2) if a.seq >= 2]
    told = Rules(2, always=frozenset(), first=2, end=3)
    assert check(log, told) == []
    assert check([replace(a, version=0) if a.rw == "R" else a for a in log], told) == []
    log[0] = replace(log[0], version=0)
    assert check(log, told)
    assert check([replace(a, version=2) if a.rw == "R" else a for a in log], told)


def test_unfinished_subnets_may_be_incomplete_but_not_wrong() -> None:
    log = right_log()
    begun = [a for a in log if a.seq < 5 or a.phase == "F"]
    assert check(begun, rules(end=5)) == []
    assert check(begun, rules(end=6))
    wrong = [replace(a, version=3) if a.seq == 5 and a.group == "a.0" else a for a in begun]
    assert {v.rule for v in check(wrong, rules(end=5))} == {"read"}


def test_unflushed_delayed_gradients_are_no_gap_and_early_ones_are_wrong() -> None:
    log = right_log(shared="delayed:3")
    assert max(a.seq for a in log if a.group == "stem" and a.rw == "W") == 3
    early = Access(0, "stem", "stem", 4, -1, "U", "W", 4)
    assert check([*log, early], rules(shared="delayed:3", end=None))


def test_frozen_buffers_never_move() -> None:
    subnets = [[("bn", "bn", "bn#buffers")]] * 2
    told = Rules(1, "frozen", frozenset({"bn", "bn#buffers"}))
    log = [a for a in right_log(subnets, 1, "frozen", frozenset({"bn"})) if not a.group.endswith("#buffers")]
    assert check(log, told) == []
    assert check([*log, Access(0, "bn", "bn#buffers", 0, 0, "F", "R", (-1, -1))], told) == []
    assert check([*log, Access(0, "bn", "bn#buffers", 1, 0, "F", "R", (0, 0))], told)
    assert check([*log, Access(0, "bn", "bn#buffers", 0, 0, "F", "W", (0, 0))], told)


def test_unknown_policy_is_refused() -> None:
    for text in ("delayed:1", "delayed", "strikt", "delayed:x"):
        with pytest.raises(UserError, match=r"shared must be strict, delayed:K"):
            check([], Rules(1, text))


def test_the_checker_is_independent() -> None:
    """It imports nothing of what it checks."""
    folder = Path(module.__file__).parent
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                ours = name.startswith("sennit")
                assert not ours or name.startswith("sennit.trace") or name == "sennit.errors", (file, name)
