"""Profiles as files, and what runs of steps cost by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sennit.errors import UserError
from sennit.profile.profile import FORMAT, Kind, Profile, is_profile, read_profile
from sennit.simulate.load import Cost

MLP = Kind(name="Mlp", forward=1.0, backward=2.0, input=1.5, weight=0.75, step=0.25, held_bytes=64)
CONV = Kind(name="Conv", forward=4.0, backward=8.0, input=4.0, weight=4.0)
PROFILE = Profile(device="cpu", micro_batch=16, kinds=[MLP, CONV], steps={"a": 0, "b": 1, "c": 0})


def test_a_run_costs_what_its_steps_cost() -> None:
    assert PROFILE.of(["a", "b", "shape#0"]) == Cost(5.0, 10.0, 5.5, 4.75)
    assert PROFILE.of([]) == Cost(0.0, 0.0, 0.0, 0.0)
    assert PROFILE.kind("c") is MLP


def test_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "p.json"
    PROFILE.write(path)
    assert is_profile(path)
    assert read_profile(path) == PROFILE


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "sennit.cuts/1"}, "is no profile .* make one with `sennit profile`"),
        ({"steps": {"a": 2}}, "step 'a' is of kind 2, and there are 2"),
        ({"steps": {"a": -1}}, "step 'a' is of kind -1"),
        ({"kinds": [{**vars(MLP), "forward": -1}, vars(CONV)]}, r"kinds\[0\].forward must be at least 0"),
        ({"kinds": [{"name": "Mlp"}], "steps": {}}, "forward"),
        ({"more": 1}, "more"),
        ({"micro_batch": "16"}, "micro_batch"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    PROFILE.write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(UserError, match=said):
        read_profile(path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the profile"):
        PROFILE.write(tmp_path / "file" / "p.json")


def test_other_files_are_none(tmp_path: Path) -> None:
    for text in ("", "[]", "{", json.dumps({"format": 1})):
        (tmp_path / "x").write_text(text)
        assert not is_profile(tmp_path / "x")
    assert not is_profile(tmp_path / "nothing")
    assert FORMAT == "sennit.profile/1"
