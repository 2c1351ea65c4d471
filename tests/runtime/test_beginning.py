"""Where a run begins."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import UserError
from sennit.runtime.load import load_run
from tests.runtime.runs import recipe, run


@pytest.mark.parametrize("placed", [{"engine": "plain"}, {"workers": 2}], ids=["plain", "pipeline"])
def test_a_run_that_ended_is_not_begun_anew_where_its_checkpoints_are_gone(
    placed: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    run(recipe(steps=4), out, **placed)
    record = {name: (out / name).read_bytes() for name in ("losses.jsonl", "result.json")}
    shutil.rmtree(out / "checkpoints")
    with pytest.raises(UserError, match="the result of 4 subnets, and no checkpoint"):
        run(recipe(steps=4), out, resume=True, **placed)
    assert record == {name: (out / name).read_bytes() for name in record}
    with pytest.raises(UserError, match="has a result, and no checkpoint any more"):
        load_run(out)
    (out / "result.json").unlink()  # as a run that was killed before its first checkpoint leaves it
    with pytest.raises(UserError, match="has no checkpoint yet"):
        load_run(out)
    assert run(recipe(steps=4), out, resume=True, **placed)["steps"] == 4


def test_a_run_that_never_trains_had_no_checkpoint(tmp_path: Path) -> None:
    run(recipe(steps=4), tmp_path / "run", workers=2, device="virtual")
    with pytest.raises(UserError, match="has no checkpoint yet"):
        load_run(tmp_path / "run")


def test_who_asks_for_less_than_there_is_is_told_where_the_number_comes_from(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(recipe(steps=6), out, engine="plain")
    with pytest.raises(UserError, match=r"6 finished subnets, more than the 4 .* give --steps 6 or more \(without"):
        run(recipe(steps=6), out, engine="plain", resume=True, steps=4)
