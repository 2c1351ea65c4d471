"""Hand-made access logs that are right, written from the words of the contract and from nothing else."""

from __future__ import annotations

from sennit.trace.access import Access

Subnets = list[list[tuple[str, str, str | None]]]
"""Per subnet its steps: `(step, parameter group, buffer group or None)`."""

STEM, HEAD = ("stem", "stem", None), ("head", "head", None)

SUBNETS: Subnets = [
    [STEM, ("a.0", "a.0", None), ("b.1", "b.1", "b.1#buffers"), HEAD],
    [STEM, ("a.1", "a.1", None), ("b.0", "b.0", None), HEAD],
    [STEM, ("a.0", "a.0", None), ("b.1", "b.1", "b.1#buffers"), ("b.1@1", "b.1", "b.1#buffers"), HEAD],
    [STEM, ("a.1", "a.1", None), ("b.1", "b.1", "b.1#buffers"), HEAD],
    [STEM, ("a.0", "a.0", None), ("b.0", "b.0", None), HEAD],
    [STEM, ("a.0", "a.0", None), ("b.1", "b.1", "b.1#buffers"), HEAD],
]
ALWAYS = frozenset({"stem", "head"})


def right_log(
    subnets: Subnets = SUBNETS, m: int = 2, shared: str = "strict", always: frozenset[str] = ALWAYS
) -> list[Access]:
    """What a correct run logs, one subnet after the other."""
    kind, _, k = shared.partition(":")
    last: dict[str, int] = {}
    moved: dict[str, tuple[int, int]] = {}
    log: list[Access] = []

    def version(group: str, seq: int) -> int:
        if group in always and kind == "frozen":
            return -1
        if group in always and kind == "delayed":
            return max(seq - int(k), -1)
        return last.get(group, -1)

    for seq, steps in enumerate(subnets):
        groups = list(dict.fromkeys(group for _, group, _ in steps))
        for j in range(m):
            for step, group, buffers in steps:
                log.append(Access(0, step, group, seq, j, "F", "R", version(group, seq)))
                if buffers is not None:
                    log.append(Access(0, step, buffers, seq, j, "F", "R", moved.get(buffers, (-1, -1))))
                    log.append(Access(0, step, buffers, seq, j, "F", "W", (seq, j)))
                    moved[buffers] = (seq, j)
            for step, group, _ in reversed(steps):
                log.append(Access(1, step, group, seq, j, "B", "R", version(group, seq)))
        for group in groups:
            if group in always and kind == "frozen":
                continue
            if group in always and kind == "delayed":
                if seq - int(k) + 1 >= 0:
                    x = seq - int(k) + 1
                    log.append(Access(0, group, group, x, -1, "U", "W", x))
                continue
            log.append(Access(0, group, group, seq, -1, "U", "W", seq))
            last[group] = seq
    return log
