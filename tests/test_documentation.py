"""What the documentation shows can be done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sennit.schedule.action import compact, read_csv
from sennit.schedule.one_f_one_b import one_f_one_b
from sennit.simulate.space_load import SpaceLoad
from sennit.simulate.space_run import SpaceRun
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_sync_rules import CHAIN

PAGE = Path(__file__).parents[1] / "docs" / "own_schedule.md"


@pytest.fixture
def order(tmp_path: Path) -> str:
    """The class of the page, as a user saves it."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 40
    (tmp_path / "deepest.py").write_text(code)
    return f"{tmp_path / 'deepest.py'}:Deepest"


def test_an_order_of_ones_own_is_simulated_to_the_figures_shown(order: str) -> None:
    space = SpaceLoad(blocks=48, candidates=72, workers=4, micro_batches=4, subnets_wanted=160, release="stage")
    found = SpaceRun(space=space, schedule=order).report()
    assert f"bubble {found['bubble']:.3f}: {found['tasks']:,} tasks" in PAGE.read_text()
    bound = f"goes below {found['bubble_at_bound']:.3f}; {found['binds']} bind"
    assert f"with {found['in_flight']} in flight no order of these tasks {bound}" in PAGE.read_text()
    for lever in found["levers"][:5]:
        assert re.search(rf"│ {lever['change']} *│ bubble {lever['bubble']:.3f} │", PAGE.read_text()), lever


def test_it_runs_and_changes_no_bit(order: str, tmp_path: Path) -> None:
    made = recipe(**{**CHAIN, "steps": 8})
    plain = run(made, tmp_path / "plain", engine="plain")
    assert hashes(run(made, tmp_path / "run", workers=2, schedule=order)) == hashes(plain)


def test_the_table_of_actions_is_1f1b() -> None:
    (table,) = re.findall(r"(?:^    \d[FBIW]\d.*\n)+", PAGE.read_text(), re.MULTILINE)
    found = read_csv("\n".join(line.strip() for line in table.strip().splitlines()))
    assert {worker: compact(row) for worker, row in found.items()} == {w: one_f_one_b(w, 2, 4) for w in range(2)}
