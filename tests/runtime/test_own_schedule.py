"""Workers run an order from a file as they run ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from sennit.errors import RunError, UserError
from sennit.schedule.action import write_csv
from sennit.schedule.one_f_one_b import one_f_one_b
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN
from tests.schedule.test_own import MINE


def test_a_class_and_a_table_change_no_bit(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    made = recipe(sync="bulk:4", **{**CHAIN, "steps": 8})
    m = made.micro_batches
    (tmp_path / "order.csv").write_text(write_csv({w: one_f_one_b(w, 2, 4 * m) for w in range(2)}))
    plain = run(made, tmp_path / "plain", engine="plain")
    for name in ("mine.py:Ready", "order.csv"):
        result = run(made, tmp_path / f"run {name}", workers=2, schedule=str(tmp_path / name))
        assert hashes(result) == hashes(plain), name
        assert not violations(tmp_path / f"run {name}"), name


@pytest.mark.parametrize(
    ("name", "said"), [("Twice", r"gave 0F0.0, which is not ready"), ("Raises", r"ZeroDivisionError")]
)
def test_an_order_that_is_wrong_ends_the_run_and_says_why(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    with pytest.raises((UserError, RunError), match=said):
        run(recipe(**CHAIN), tmp_path / "run", workers=2, schedule=f"{tmp_path / 'mine.py'}:{name}")
