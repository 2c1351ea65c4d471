"""`sennit profile`: what it writes is a plan for `train`, and costs for virtual devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path


def test_a_profile_is_written_and_used(call: Callable, workplace: Path) -> None:
    done = call("profile", "r.toml", "--out", "p.json")
    assert done.exit == 0, done.err
    assert done.out.splitlines()[0].split()[:3] == ["kind", "layers", "forward"]
    assert done.out.splitlines()[-1] == "written to p.json"
    held = json.loads((workplace / "p.json").read_text())
    assert held["format"] == "sennit.profile/1" and held["micro_batch"] == 4
    assert {"stem", "head", "blocks.0.mlp"} <= set(held["steps"])
    one = call("train", "r.toml", "--steps", "12", "--out", "one", "--json").json
    two = call("train", "r.toml", "--steps", "12", "--out", "two", "--workers", "2", "--plan", "p.json", "--json").json
    assert one["weights_sha256"] == two["weights_sha256"]
    assert call("verify", "two", "--workers", "1,3", "--json").json["equal"]
    virtual = "train r.toml --steps 12 --out v --workers 2 --device virtual --waits p.json --json"
    assert call(*virtual.split()).exit == 0


def test_it_shows_without_writing(call: Callable, workplace: Path) -> None:
    before = set(workplace.iterdir())
    held = call("profile", "r.toml", "--json").json
    assert held["out"] is None and held["kinds"]
    assert set(workplace.iterdir()) == before


def test_what_it_refuses(call: Callable, workplace: Path) -> None:
    (workplace / "p.json").write_text("mine")
    done = call("profile", "r.toml", "--out", "p.json")
    assert done.exit == 2 and "is there already" in done.err
    assert (workplace / "p.json").read_text() == "mine"
    done = call("profile", "r.toml", "--device", "cuda")
    assert done.exit in (0, 2) and (done.exit == 0 or "--device cuda needs a GPU" in done.err)
    done = call("profile", "nothing.toml")
    assert done.exit == 2
