"""Samplers: counter-based, fair, from files, and learning with a fixed lag."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

import sennit as sn
from sennit.errors import RecipeError
from sennit.space.structure import Structure
from sennit.supernet.samplers import Fair, Feed, FromFile, Learning, Result, Sampler, Uniform, refuse_unrepeatable


class Net(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        inner = sn.LayerChoice([nn.Identity() for _ in range(3)], label="inner")
        self.four = sn.LayerChoice([inner, *[nn.Identity() for _ in range(3)]])
        self.keys = sn.LayerChoice({"a": nn.Identity(), "b": nn.Identity()})
        self.pick = sn.InputChoice(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return x


STRUCTURE = Structure(Net())
N = {"four": 4, "inner": 3, "keys": 2, "pick": 6}


def key(value: Any) -> str:
    return json.dumps(value)


@pytest.mark.parametrize("make", [Uniform, Fair])
def test_draws_depend_on_seed_and_seq_id_alone(make: Any) -> None:
    order = list(range(200))
    wanted = [make(STRUCTURE, 7).draw(y, []) for y in order]
    random.Random(0).shuffle(order)
    again = make(STRUCTURE, 7)
    assert all(again.draw(y, []) == wanted[y] for y in order)
    assert [make(STRUCTURE, 8).draw(y, []) for y in range(50)] != wanted[:50]
    assert all(STRUCTURE.canonical(arch) == arch for arch in wanted)
    assert all(("inner" in arch) == (arch["four"] == 0) for arch in wanted)


def test_uniform_is_uniform() -> None:
    sampler, n = Uniform(STRUCTURE, 1), 4000
    seen: dict[str, Counter[str]] = {label: Counter() for label in N}
    pairs: Counter[tuple[str, str]] = Counter()
    for y in range(n):
        arch = sampler.draw(y, [])
        for label, value in arch.items():
            seen[label][key(value)] += 1
        pairs[key(arch["four"]), key(arch["keys"])] += 1
    for label, counts in seen.items():
        total = sum(counts.values())
        expected = total / N[label]
        assert len(counts) == N[label]
        assert sum((c - expected) ** 2 / expected for c in counts.values()) < 25  # chi-square, <= 5 degrees
    assert all(abs(count - n / 8) < 5 * (n / 8) ** 0.5 for count in pairs.values()) and len(pairs) == 8


def test_fair_uses_every_option_once_a_round() -> None:
    sampler = Fair(STRUCTURE, 1)
    archs = [sampler.draw(y, []) for y in range(240)]
    for label in ("four", "keys", "pick"):
        n = N[label]
        rounds = [[key(a[label]) for a in archs[i : i + n]] for i in range(0, 240, n)]
        assert all(len(set(turn)) == n for turn in rounds)
        assert len({tuple(turn) for turn in rounds}) > min(len(rounds), 2) - 1
    assert len(sampler.orders) < 20  # old rounds are forgotten


# -- files


@pytest.mark.parametrize("lines", [False, True])
def test_archs_from_a_file_start_again_at_its_end(tmp_path: Path, lines: bool) -> None:
    archs = [Uniform(STRUCTURE, 0).draw(y, []) for y in range(3)]
    texts = [json.dumps({**arch, "inner": 1}) for arch in archs]  # inactive keys are dropped
    path = tmp_path / "archs.json"
    path.write_text("\n".join(texts) + "\n\n" if lines else f"[{', '.join(texts)}]")
    sampler = FromFile(STRUCTURE, path)
    wanted = [STRUCTURE.canonical({**arch, "inner": 1}) for arch in archs]
    assert [sampler.draw(y, []) for y in range(7)] == [wanted[y % 3] for y in range(7)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read the arch file .*: No such file"),
        ("", "holds no archs"),
        ("[]", "holds no archs"),
        ("[{]", "is neither a JSON list nor one JSON arch a line"),
        ("{'a': 1}", "is neither a JSON list nor one JSON arch a line"),
        ('[{"four": 1, "keys": "c", "pick": [0, 1]}]', r"arch 0 of .*arch\['keys'\] = 'c' is not an option"),
        ("[1]", "arch 0 of .*an arch is a flat dict"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "a.json").write_text(text)
    with pytest.raises(RecipeError, match=rf"sampler: .*{said}"):
        FromFile(STRUCTURE, tmp_path / "a.json")


# -- learning


def arch_for(n: int) -> dict[str, Any]:
    return {"four": n % 3 + 1, "keys": "ab"[n % 2], "pick": [0, 1]}


class Diary:
    """A strategy that writes down what it is told before each draw, and draws by it."""

    def __init__(self) -> None:
        self.told: list[list[int]] = []

    def __call__(self, space: Any, seed: int) -> Iterator[dict[str, Any]]:
        total = 0.0
        step = 0
        while True:
            new = yield arch_for(step + int(total))
            step += 1
            self.told.append([r.seq_id for r in new])
            total += sum(r.loss for r in new)


def feed(diary: Diary, lag: int) -> Feed:
    return Feed(Learning(STRUCTURE, None, 0, diary, "file.py:diary"), lag)


@pytest.mark.parametrize("lag", [1, 2, 5])
def test_a_draw_sees_exactly_the_results_up_to_its_lag(lag: int) -> None:
    diary = Diary()
    stream = feed(diary, lag)
    for y in range(20):
        while not stream.ready():
            raise AssertionError("all results are reported at once here")
        stream.draw()
        stream.report(Result(y, {}, 1.0))
    told: list[int] = []
    for y, new in enumerate(diary.told, 1):  # told[0] came with the draw of subnet 1
        told += new
        assert told == list(range(max(0, y - lag + 1)))


def test_a_draw_waits_for_results_that_come_in_any_order() -> None:
    diary = Diary()
    stream = feed(diary, 3)
    for _ in range(3):
        assert stream.ready()
        stream.draw()
    assert not stream.ready()
    stream.report(Result(2, {}, 0.0))
    stream.report(Result(1, {}, 0.0))
    assert not stream.ready()
    stream.report(Result(0, {}, 0.0))
    assert stream.ready()
    stream.draw()
    stream.report(Result(0, {}, 9.0))  # a late copy changes nothing
    stream.draw()
    assert diary.told == [[], [], [0], [1]]


@pytest.mark.parametrize("order", ["ahead", "at once", "late"])
def test_when_results_arrive_does_not_matter(order: str) -> None:
    losses = [((7 * y) % 5) * 0.75 for y in range(30)]
    stream = feed(Diary(), 4)
    archs: list[dict[str, Any]] = []
    unreported: list[int] = []
    for y in range(30):
        while not stream.ready():
            stream.report(Result(z := unreported.pop(0 if order != "late" else -1), {}, losses[z]))
        archs.append(stream.draw())
        unreported.append(y)
        if order == "ahead":
            stream.report(Result(z := unreported.pop(0), {}, losses[z]))
    wanted = feed(Diary(), 4)
    assert archs == [_drawn(wanted, y, losses) for y in range(30)]


def _drawn(stream: Feed, y: int, losses: list[float]) -> dict[str, Any]:
    arch = stream.draw()
    stream.report(Result(y, {}, losses[y]))
    return arch


@pytest.mark.parametrize("at", [0, 1, 3, 17])
def test_replay_goes_on_as_if_nothing_had_happened(at: int) -> None:
    losses = [((5 * y) % 7) * 0.5 for y in range(30)]
    one = feed(Diary(), 3)
    archs = [_drawn(one, y, losses) for y in range(30)]
    two = feed(Diary(), 3)
    two.replay(at, [Result(y, archs[y], losses[y]) for y in range(at)])
    assert [_drawn(two, y, losses) for y in range(at, 30)] == archs[at:]


def test_other_samplers_need_no_results() -> None:
    sampler: Sampler = Uniform(STRUCTURE, 3)
    stream = Feed(sampler, 2)
    stream.replay(5, [])
    assert stream.ready() and stream.draw() == sampler.draw(5, []) and stream.next_id == 6
    stream.report(Result(5, {}, 1.0))
    assert not stream.waiting


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (lambda space, seed: [arch_for(0)], "must return an iterator of archs, got"),
        (lambda space, seed: iter([arch_for(0)]), "ended after 1 archs; it must go on for all steps"),
        (lambda space, seed: iter([{"four": 9}]), r"subnet 0: arch\['four'\] = 9 is not an option"),
        (lambda space, seed: iter([{"for": 1}]), "subnet 0: arch has no choice 'for'"),
        (lambda: iter([]), r"is called as f\(space, seed\), which it does not take"),
    ],
)
def test_strategies_that_cannot_go_on(factory: Any, said: str) -> None:
    with pytest.raises(RecipeError, match=rf"sampler file.py:s,? ?{said}"):
        stream = Feed(Learning(STRUCTURE, None, 0, factory, "file.py:s"), 1)
        for y in range(3):
            stream.draw()
            stream.report(Result(y, {}, 0.0))


def test_a_sampler_that_does_not_repeat_itself_is_refused() -> None:
    """Drawing from a global generator, or going on where the last call has ended. One that draws from its seed is let
    be, as is one that ends: that is said where it ends."""
    shared = iter(range(99))

    def wild(space: Any, seed: int) -> Iterator[dict[str, Any]]:
        while True:
            yield {**arch_for(0), "keys": "a" if random.random() < 0.5 else "b"}

    def on(space: Any, seed: int) -> Iterator[dict[str, Any]]:
        return (arch_for(next(shared)) for _ in range(9))

    def keyed(space: Any, seed: int) -> Iterator[dict[str, Any]]:
        draw = random.Random(seed)
        while True:
            yield arch_for(draw.randrange(9))

    def made(factory: Any) -> Any:
        return lambda: Learning(STRUCTURE, None, 0, factory, "file.py:s")

    for factory in (wild, on):
        with pytest.raises(RecipeError, match=r"draws .* when it is called again.*random.Random\(seed\)"):
            for _ in range(9):  # four draws may agree by chance
                refuse_unrepeatable(made(factory), 8)
    refuse_unrepeatable(made(keyed), 8)
    refuse_unrepeatable(made(keyed), 1)


def test_a_plain_iterator_is_a_strategy_too() -> None:
    stream = Feed(Learning(STRUCTURE, None, 0, lambda space, seed: map(arch_for, range(9)), "file.py:s"), 2)
    assert [_drawn(stream, y, [0.0] * 9) for y in range(9)] == [arch_for(y) for y in range(9)]
