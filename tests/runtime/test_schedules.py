"""Workers run fixed orders: the same bits under every one of them, and the tasks of each worker in just that order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import UserError
from tests.runtime.runs import hashes, recipe, run
from tests.runtime.test_engines import violations
from tests.runtime.test_sync_rules import CHAIN

PLACED: dict[str, dict[str, Any]] = {
    "gpipe": {"workers": 3},
    "1f1b": {"workers": 3},
    "interleaved": {"workers": 2, "chunks": 2},
    "zero-bubble": {"workers": 3},
    "zbv": {"workers": 2},
    "chimera": {"workers": 4},
    "naspipe": {"workers": 3},
    "csp": {"workers": 2, "chunks": 3, "split": True},
}


@pytest.mark.parametrize("sync", ["csp", "bulk:4"])
def test_an_order_changes_no_bit(sync: str, tmp_path: Path) -> None:
    made = recipe(sync=sync, **{**CHAIN, "steps": 8, "clip": "global:1.0"})
    plain = run(made, tmp_path / "plain", engine="plain")
    for schedule, placed in PLACED.items():
        result = run(made, tmp_path / schedule, schedule=schedule, **placed)
        assert hashes(result) == hashes(plain), schedule
        assert not violations(tmp_path / schedule), schedule


@pytest.mark.parametrize(
    ("changes", "placed", "message"),
    [
        ({}, {"schedule": "fastest"}, r"there is no schedule 'fastest'; there are csp, naspipe, gpipe"),
        ({}, {"schedule": "tap"}, r"--schedule tap runs under asp, the recipe says 'csp'"),
        ({}, {"schedule": "tap"}, r'write sync = "asp:none" and allow_nondeterministic = true .* no global clip'),
        ({"sync": "asp:none"}, {"schedule": "tap"}, r"depends on times: set allow_nondeterministic = true"),
        ({"sync": "asp:stash"}, {"schedule": "csp"}, r"depends on times: set allow_nondeterministic = true"),
        ({"sync": "asp:stash"}, {"schedule": "naspipe"}, r"depends on times: set allow_nondeterministic = true"),
        ({}, {"schedule": "chimera", "chunks": 2}, r"fixes the number of chunks; leave out --chunks 2"),
        ({}, {"schedule": "chimera", "split": True}, r"leave out --split, or take zero-bubble"),
        ({}, {"schedule": "chimera", "plan": "cuts.json"}, r"the plan cuts.json has it on one; leave out --plan"),
        ({"sync": "asp:stash"}, {"schedule": "chimera"}, r"'asp:stash' reads whatever is there.*use sync = 'csp'"),
        ({}, {"schedule": "gpipe", "split": True}, r"leave out --split, or take zero-bubble"),
        ({}, {"schedule": "gpipe", "chunks": 2}, r"fixes the number of chunks; leave out --chunks 2"),
        ({}, {"schedule": "1f1b", "release": "layer"}, r"knows stages only; leave out --release layer"),
        ({}, {"chunks": 9, "workers": 2}, r"2 workers x 9 chunks need as many blocks, the space has 7; use at most 3"),
    ],
)
def test_what_does_not_go_together_is_refused(
    changes: dict[str, Any], placed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        run(recipe(**{**CHAIN, **changes}), tmp_path / "run", **{"workers": 2, **placed})
    assert not (tmp_path / "run").exists()


def test_a_subnet_that_does_not_pass_every_stage_is_named(tmp_path: Path) -> None:
    (tmp_path / "cuts.json").write_text(json.dumps({"format": "sennit.cuts/1", "cuts": [[2, 2]]}))
    with pytest.raises(
        UserError, match=r"every stage once, on workers \[0, 1, 2\]; subnet 0 passes \[0, 2\].*--schedule csp"
    ):
        run(recipe(**CHAIN), tmp_path / "run", workers=3, schedule="gpipe", plan=str(tmp_path / "cuts.json"))
