"""The shortest makespan of a tiny case, by trying every order of its tasks; knows nothing of engine and bounds."""

from __future__ import annotations

import math

from tests.simulate.rules import Case, Key

Waits = dict[Key, dict[Key, float]]
"""Task to what it waits for, and the time on the way."""


def waits(case: Case) -> Waits:
    """From the meaning of the rules, not from the engine."""
    found: Waits = {}
    last = case.last
    for y, pieces in enumerate(case.load.stream):
        sources = [(r - 1,) * (r > 0) if p.sources is None else p.sources for r, p in enumerate(pieces)]
        for r in range(len(pieces)):
            for j in range(case.load.micro_batches):
                forward: dict[Key, float] = {}
                for s in sources[r]:
                    forward["F", y, j, s] = _travel(case, ("F", y, j, s), ("F", y, j, r), y, s)
                if not sources[r]:
                    for x in range(y - case.in_flight + 1):
                        forward |= _all(case, x, range(len(case.load.stream[x])))
                for group in pieces[r].groups:
                    for x in case.included(y, group):
                        forward |= _all(case, x, [s for z, s in case.holders[group] if z == x])
                forward |= dict.fromkeys(turns_before(case, ("F", y, j, r)), 0.0)
                found["F", y, j, r] = forward
                back = "I" if case.split else "B"
                found[back, y, j, r] = {("F", y, j, r): 0.0}
                for q in (q for q in range(len(pieces)) if r in sources[q]):
                    found[back, y, j, r][back, y, j, q] = _travel(case, (back, y, j, q), (back, y, j, r), y, r)
                if case.split:
                    found[last, y, j, r] = {("I", y, j, r): 0.0}
    return found


def turns_before(case: Case, key: Key) -> list[Key]:
    """Forwards that write buffers of a forward's run before it."""
    _, y, j, r = key
    mine = set(case.piece(key).moves)
    return [
        ("F", x, i, s)
        for x in range(y + 1) for i in range(case.load.micro_batches) for s, piece in enumerate(case.load.stream[x])
        if mine & set(piece.moves) and (x, i, s) < (y, j, r)
    ]  # fmt: skip


def _all(case: Case, x: int, runs: object) -> dict[Key, float]:
    return {(case.last, x, j, r): 0.0 for r in runs for j in range(case.load.micro_batches)}  # type: ignore[attr-defined]


def _travel(case: Case, a: Key, b: Key, y: int, r: int) -> float:
    return case.cluster.seconds(case.worker(a), case.worker(b), case.load.stream[y][r].out_bytes)


def shortest(case: Case) -> float:
    """Over all orders in which tasks can be put one after another, each as early as it can (messages on free channels).

    Some schedule without needless waiting is optimal, and each comes from such an order.
    """
    held = waits(case)
    cost = {key: case.piece(key).cost["FBIW".index(key[0])] + case.cluster.host_s for key in held}
    best = math.inf

    def place(ends: dict[Key, float], left: dict[Key, float], free: dict[int, float], longest: float) -> None:
        nonlocal best
        if longest >= best:
            return
        if len(ends) == len(held):
            best = longest
            return
        for key, before in held.items():
            if key in ends or not before.keys() <= ends.keys():
                continue
            worker = case.worker(key)
            gone = left if key[0] in "BI" else ends  # gradients leave before the step, versions come with it
            start = max([free.get(worker, 0.0), *(gone[k] + travel for k, travel in before.items())])
            away = end = start + cost[key]
            kind, y, j, r = key
            if kind == case.last and all((kind, y, i, r) in ends for i in range(case.load.micro_batches) if i != j):
                end += case.piece(key).step
            place({**ends, key: end}, {**left, key: away}, {**free, worker: end}, max(longest, end))

    place({}, {}, {}, 0.0)
    return best
