"""Where a run begins."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import UserError
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
    (out / "result.json").unlink()  # as a run that was killed before its first checkpoint leaves it
    assert run(recipe(steps=4), out, resume=True, **placed)["steps"] == 4
