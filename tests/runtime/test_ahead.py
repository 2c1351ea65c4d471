"""Programs that another process has recorded are those that the worker would have, and nobody depends on them."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import UserError
from sennit.program.recordings import Recordings
from sennit.recipe import Recipe
from sennit.runtime.ahead import Ahead
from sennit.trace.events import read_call
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_budget import share_of
from tests.runtime.test_engines import CASES, violations
from tests.runtime.test_per_subnet import profile_of
from tests.runtime.test_sync_rules import CHAIN

BESIDE: dict[str, Any] = {**CHAIN, "steps": 16}
SPACES: dict[str, dict[str, Any]] = {
    "sink": {},
    "chain": CHAIN,
    "functions": {**BESIDE, "space": "beside.py:Turned"},
    "translation": {
        "space": "nlp.c3", "space_args": {"d": 16, "layers": 3, "vocab": 80, "max_length": 64}, "data": "pairs",
        "data_args": {"lengths": [8, 16, 24], "rows_multiple": 3}, "loss_name": "smoothed_token_cross_entropy",
        "batch_size": 96,
    },
}  # fmt: skip
FITTING = 5
"""How many archs of a wrong space are drawn before the first that does not fit."""

OWN = {name: {**BESIDE, "space": f"beside.py:{name}"} for name in ("WithObject", "WithFunction", "WithEqual")}


@pytest.fixture
def asked(request: pytest.FixtureRequest) -> Iterator[tuple[Recipe, Ahead, list[dict[str, Any]]]]:
    """A recipe, its process, and the archs of subnets that it has been asked for."""
    made = recipe(**request.param)
    made.built.groups  # noqa: B018 - records what covers the space, as is done before workers are forked
    before = children()
    ahead = Ahead(made.built, made.built.sampler(), [])
    feed = made.built.feed()
    archs = [feed.draw() for _ in range(12)]
    for seq_id in range(len(archs)):
        ahead.ask(seq_id, 0)
    yield made, ahead, archs
    ahead.close()
    assert children() == before


def children() -> set[str]:
    """Processes that this one has forked and not buried."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def wait_for(ahead: Ahead, seq_id: int) -> None:
    """Until it is known what comes."""
    while not ahead.settled(seq_id):
        select.select(ahead.open_lines(), [], [])


def never(*given: Any, **more: Any) -> Any:
    raise AssertionError("recorded here")


@pytest.mark.parametrize("asked", SPACES.values(), ids=SPACES, indirect=True)
def test_what_comes_is_what_would_be_recorded_here(
    asked: tuple[Recipe, Ahead, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, ahead, archs = asked
    alone = Recordings(made.built.skeleton)
    example, other = made.built.example
    for arch in made.built.recordings.structure.covering():
        alone.program(arch, example, other)
    wanted = [alone.program(arch, example, other) for arch in archs]
    for seq_id in range(len(archs)):
        wait_for(ahead, seq_id)
    assert ahead.wanted and len(ahead.came) == len(archs)
    monkeypatch.setattr(made.built.recordings.recorder, "record", never)
    for seq_id, arch in enumerate(archs):
        assert ahead.hand_over(seq_id) == arch
        program = made.built.program(arch)
        assert program == wanted[seq_id] and program is made.built.program(dict(arch))
        for step, same in zip(program.steps, wanted[seq_id].steps, strict=True):
            assert step.entries == same.entries and step.direct == same.direct
            if step.kind == "call":
                assert step.target == same.target and hash(step.target) == hash(same.target)
    assert ahead.counters() == {"programs recorded beside": len(archs)}


@pytest.mark.parametrize("asked", OWN.values(), ids=OWN, indirect=True)
def test_programs_that_cannot_be_pickled_are_recorded_here(asked: tuple[Recipe, Ahead, list[dict[str, Any]]]) -> None:
    made, ahead, archs = asked
    for seq_id, arch in enumerate(archs):
        wait_for(ahead, seq_id)
        assert ahead.hand_over(seq_id) is None
        assert made.built.program(arch).steps
    assert not ahead.wanted and not ahead.open_lines()
    ahead.ask(99, 0)
    assert ahead.settled(99), "nobody is asked any more"


@pytest.mark.parametrize("asked", [SPACES["sink"]], indirect=True)
@pytest.mark.parametrize("after", [0, 3])
def test_a_killed_process_leaves_all_to_the_worker(
    after: int, asked: tuple[Recipe, Ahead, list[dict[str, Any]]]
) -> None:
    made, ahead, archs = asked
    for seq_id, arch in enumerate(archs):
        if seq_id == after:
            os.kill(ahead.pid, signal.SIGKILL)
        ahead.ask(50 + seq_id, 0)
        wait_for(ahead, seq_id)
        assert ahead.hand_over(seq_id) in (arch, None)
        assert made.built.program(arch).steps
    assert not ahead.wanted


@pytest.mark.parametrize("asked", [SPACES["chain"]], indirect=True)
def test_a_program_that_comes_too_late_is_not_kept(asked: tuple[Recipe, Ahead, list[dict[str, Any]]]) -> None:
    _, ahead, archs = asked
    for seq_id in range(len(archs) - 1):
        ahead.hand_over(seq_id)
    wait_for(ahead, len(archs) - 1)
    assert set(ahead.came) == {len(archs) - 1} == set(ahead.asked)


# -- in runs: a worker that waits for each program shows that they are used, and that others would not change a bit


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers wait for programs, which real ones never do."""
    real = Ahead.hand_over

    def hand_over(self: Ahead, seq_id: int) -> Any:
        wait_for(self, seq_id)
        return real(self, seq_id)

    monkeypatch.setattr(Ahead, "hand_over", hand_over)


def beside(folder: Path) -> float:
    """How many programs came from other processes."""
    counters = read_call(folder / "trace.jsonl").counters
    return sum(c.value for c in counters if c.counter == "programs recorded beside")


@pytest.mark.parametrize("case", ["strict", "fair", "bulk", "learning"])
def test_the_bits_of_a_run_without(case: str, tmp_path: Path, patient: None) -> None:
    made = recipe(**CASES[case])
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    for workers in (1, 2):
        for loaders in (0, 1):
            out = tmp_path / f"{workers}-{loaders}"
            assert hashes(run(made, out, workers=workers, loaders=loaders)) == plain, out.name
            assert not violations(out), out.name
            assert (beside(out) > 0) == (loaders > 0 and case != "learning"), out.name


@pytest.mark.parametrize("in_flight", [1, 4])
def test_the_bits_of_a_run_under_a_budget(in_flight: int, tmp_path: Path, patient: None) -> None:
    made = recipe(**BESIDE)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    budget = share_of(made)[0] * 1.5
    for workers in (1, 2):
        out = tmp_path / str(workers)
        assert hashes(run(made, out, workers=workers, loaders=1, budget=budget, in_flight=in_flight)) == plain
        assert not violations(out) and beside(out) > 0


def test_the_bits_of_a_run_with_cuts_that_follow_one_another(tmp_path: Path, patient: None) -> None:
    made = recipe(**BESIDE)
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    out = tmp_path / "cut"
    assert hashes(run(made, out, workers=2, loaders=1, plan=str(profile_of(BESIDE, tmp_path)))) == plain
    assert not violations(out) and beside(out) > 0


@pytest.mark.parametrize("space", OWN)
def test_a_run_whose_programs_cannot_be_pickled(space: str, tmp_path: Path, patient: None) -> None:
    changes = {**OWN[space], "steps": 32}  # the first 16 are known before workers are forked
    plain = hashes(run(recipe(**changes), tmp_path / "plain", engine="plain"))
    assert hashes(run(recipe(**changes), tmp_path / "run", workers=2, loaders=1)) == plain
    assert not beside(tmp_path / "run")


def test_a_run_whose_processes_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe()
    plain = hashes(run(made, tmp_path / "plain", engine="plain"))
    real = Ahead.hand_over

    def hand_over(self: Ahead, seq_id: int) -> Any:
        if seq_id == 6 and self.line is not None:
            os.kill(self.pid, signal.SIGKILL)
        return real(self, seq_id)

    monkeypatch.setattr(Ahead, "hand_over", hand_over)
    assert hashes(run(made, tmp_path / "run", workers=2, loaders=1)) == plain
    assert not children()


def test_a_wrong_space_gives_the_error_that_it_gives_without(tmp_path: Path, patient: None) -> None:
    made = recipe(**{**BESIDE, "space": "beside.py:Unfit", "seed": 154})
    feed = made.built.feed()
    drawn = [feed.draw() for _ in range(made.steps)]
    assert next(y for y, arch in enumerate(drawn) if arch["first"] != arch["second"]) == FITTING
    said: list[str] = []
    for loaders in (0, 1):
        with pytest.raises(UserError) as caught:
            run(made, tmp_path / str(loaders), workers=2, loaders=loaders, in_flight=1)
        said.append(str(caught.value).partition("\nstopped after")[0])
    assert "second" in said[0] and said[0] == said[1]
