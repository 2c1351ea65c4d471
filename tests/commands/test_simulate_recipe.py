"""`sennit simulate --recipe`: a recipe's own stream before it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sennit.profile.quick import block_order
from sennit.recipe import load_recipe

NO_LEVERS = ("--no-levers", "--json")


@pytest.fixture
def waits(workplace: Path) -> Path:
    """Every block takes 1 s forward and 2 s backward."""
    blocks = {
        block: {"forward": 1.0, "backward": 2.0} for block in block_order(load_recipe(workplace / "r.toml").built)
    }
    path = workplace / "waits.json"
    path.write_text(json.dumps({"format": "sennit.waits/1", "blocks": blocks}))
    return path


@pytest.fixture
def profile(workplace: Path, call: Callable) -> Path:
    assert call("profile", "r.toml", "--out", "p.json").exit == 0
    return workplace / "p.json"


def changed(profile: Path, **values: object) -> Path:
    path = profile.with_name("changed.json")
    path.write_text(json.dumps({**json.loads(profile.read_text()), **values}))
    return path


def test_one_worker_computes_all_the_time(call: Callable, waits: Path) -> None:
    blocks = len(json.loads(waits.read_text())["blocks"])
    found = call("simulate", "--recipe", "r.toml", "--waits", waits, "--workers", "1", *NO_LEVERS).json
    assert found["subnets"] == 40 and found["micro_batches"] == 3 and found["schedule"] == "csp"
    assert found["makespan"] == pytest.approx(40 * 3 * 3 * blocks) and found["bubble"] == pytest.approx(0.0)
    assert found["subnet_s"] == pytest.approx(3 * 3 * blocks)
    assert found["bound"] == pytest.approx(found["makespan"]) and found["tasks"] == 40 * 3 * 2


def test_it_is_what_virtual_workers_look_back_on(call: Callable, workplace: Path) -> None:
    """Both simulate the recipe's stream; a run's waits are those told, give or take what tasks cost its host."""
    blocks = block_order(load_recipe(workplace / "r.toml").built)
    even = {b: {"forward": 0.01, "backward": 0.02} for b in blocks}
    first = {b: {"forward": 0.04, "backward": 0.08} if b == blocks[0] else {"forward": 0.004} for b in blocks}
    for waits in (even, first):  # with the second, cuts that are not those of the waits would fit tasks to other blocks
        (workplace / "w.json").write_text(json.dumps({"format": "sennit.waits/1", "blocks": waits}))
        words = ("--waits", "w.json", "--workers", "2", "--json")
        ahead = call("simulate", "--recipe", "r.toml", *words, "--no-levers").json
        back = call("train", "r.toml", "--device", "virtual", *words).json["prospect"]
        assert ahead["bubble"] == pytest.approx(back["bubble"], abs=0.05)
        assert ahead["binds"] == back["binds"] and ahead["in_flight"] == back["in_flight"]


def test_each_lever_is_what_the_changed_command_gives(call: Callable, waits: Path) -> None:
    words = ("simulate", "--recipe", "r.toml", "--waits", waits, "--workers", "2")
    levers = {lever["change"]: lever for lever in call(*words, "--json").json["levers"]}
    assert {"--split", "--release layer", "--in-flight 8", "micro_batches = 6"} <= set(levers)
    assert sorted(levers.values(), key=lambda lever: lever["subnet_s"]) == list(levers.values())
    for change in ("--split", "--release layer", "--in-flight 8"):
        found = call(*words, *change.split(), *NO_LEVERS).json
        assert levers[change]["bubble"] == found["bubble"] and levers[change]["subnet_s"] == found["subnet_s"]
        assert levers[change]["recipe"] is False
    assert levers["micro_batches = 6"]["recipe"] is True
    shown = call(*words).out
    assert f"{1e3 * levers['micro_batches = 6']['subnet_s']:.3g} ms, bubble" in shown and "ms a subnet" in shown


def test_steps_count_and_bytes_are_sent(call: Callable, profile: Path) -> None:
    words = ("simulate", "--recipe", "r.toml", "--workers", "2", "--split", *NO_LEVERS, "--waits")
    kinds = json.loads(profile.read_text())["kinds"]
    plain = call(*words, profile).json
    slow = changed(profile, kinds=[{**kind, "step": kind["step"] + 1.0} for kind in kinds])
    assert call(*words, slow).json["makespan"] > plain["makespan"] + 40
    large = changed(profile, kinds=[{**kind, "out_bytes": 10**9} for kind in kinds])
    assert call(*words, large).json["makespan"] == plain["makespan"]
    linked = call(*words, large, "--bandwidth", "1e9").json
    assert linked["makespan"] > plain["makespan"] + 40 and linked["bounds"]["links"] > 40
    done = call(*words, profile, "--memory", "1")
    assert done.exit == 2 and "give it more memory" in done.json["error"]


def test_a_profile_of_other_micro_batches_is_scaled_and_told_of(call: Callable, profile: Path) -> None:
    """The recipe has 12 samples in 3 micro-batches."""
    assert json.loads(profile.read_text())["micro_batch"] == 4
    words = ("simulate", "--recipe", "r.toml", "--workers", "2", *NO_LEVERS, "--waits")
    mine = call(*words, profile)
    assert "micro-batches" not in mine.err
    kinds = [{**kind, "step": 0.0} for kind in json.loads(profile.read_text())["kinds"]]
    whole, other = changed(profile, kinds=kinds), call(*words, changed(profile, kinds=kinds, micro_batch=8))
    assert "was measured with micro-batches of 8 samples, the recipe has 4: its times are scaled" in other.err
    whole = call(*words, changed(profile, kinds=kinds))
    assert other.json["makespan"] == pytest.approx(whole.json["makespan"] / 2)
    trained = call("train", "r.toml", "--workers", "2", "--plan", changed(profile, micro_batch=8), "--steps", "15")
    assert trained.exit == 0 and "the recipe has 4: its times are taken as they are" in trained.err
    words = ("train", "r.toml", "--device", "virtual", "--workers", "2", "--steps", "3", "--waits")
    assert "its times are scaled" in call(*words, changed(profile, micro_batch=8)).err


def test_a_bulk_steps_once_and_frozen_layers_never(call: Callable, workplace: Path, profile: Path) -> None:
    kinds = json.loads(profile.read_text())["kinds"]
    alone = [{**kind, "forward": 0.0, "backward": 0.0, "input": 0.0, "weight": 0.0, "step": 1.0} for kind in kinds]
    waits, text = changed(profile, kinds=alone), (workplace / "r.toml").read_text()
    words = ("simulate", "--recipe", "r.toml", "--waits", waits, "--workers", "1", *NO_LEVERS)
    found = dict[str, float]()
    for rule in ('sync = "csp"', 'sync = "bulk:40"', 'shared = "frozen"'):
        (workplace / "r.toml").write_text(f"{rule}\n{text}")
        found[rule] = call(*words).json["makespan"]
    built = load_recipe(workplace / "r.toml").built
    frozen, groups = built.always[0], built.groups
    steps = {step.name: step for program in built.covering for step in program.steps if step.params}
    always = [name for name, step in steps.items() if set(groups.of_step(step)[0]) <= frozen]
    assert found['sync = "bulk:40"'] < found['sync = "csp"'] / 4
    assert always and found['shared = "frozen"'] == pytest.approx(found['sync = "csp"'] - 40 * len(always))


def test_fewer_micro_batches_are_what_the_changed_recipe_gives(call: Callable, workplace: Path, profile: Path) -> None:
    """10 samples in 4 micro-batches are at most 3 in one, and 5 in each of 2: doubling them says 6."""
    text = (workplace / "r.toml").read_text().replace("batch_size = 12", "batch_size = 10")
    (workplace / "r.toml").write_text(text.replace("micro_batches = 3", "micro_batches = 4"))
    (workplace / "half.toml").write_text(text.replace("micro_batches = 3", "micro_batches = 2"))
    words = ("--waits", profile, "--workers", "2", "--json")
    levers = {lever["change"]: lever for lever in call("simulate", "--recipe", "r.toml", *words).json["levers"]}
    found = call("simulate", "--recipe", "half.toml", *words, "--no-levers").json
    assert levers["micro_batches = 2"]["subnet_s"] == pytest.approx(found["subnet_s"])


def test_orders_and_traces(call: Callable, workplace: Path, waits: Path) -> None:
    words = ("simulate", "--recipe", "r.toml", "--waits", waits, "--workers", "2", "--schedule", "gpipe")
    (workplace / "r.toml").write_text((workplace / "r.toml").read_text() + 'sync = "bulk:4"\n')
    found = call(*words, *NO_LEVERS, "--trace", "t.jsonl", "--csv", "t.csv").json
    assert found["schedule"] == "gpipe" and found["sync"] == "bulk:4" and found["subnets"] == 40
    assert len((workplace / "t.csv").read_text().splitlines()) == 2
    assert f"{found['tasks']:,} on 2 workers" in call("report", "t.jsonl").out


@pytest.mark.parametrize("use", ["simulate --recipe r.toml --waits", "train r.toml --plan"])
def test_profiles_that_cannot_be_meant_are_refused(call: Callable, profile: Path, use: str) -> None:
    """A profile without samples divided by zero; one of a space with the same names was used without a word."""
    kinds = json.loads(profile.read_text())["kinds"]
    rows: list[tuple[dict, str]] = [
        ({"micro_batch": 0}, "micro_batch must be at least 1 sample, got 0"),
        ({"kinds": [{**kind, "parameter_bytes": kind["parameter_bytes"] + 8} for kind in kinds]}, "of another space"),
        ({"kinds": [{**kind, "forward": 1e300} for kind in kinds]}, "kinds[0].forward must be at least 0 and at most"),
        ({"kinds": [kinds[0], {**kinds[1], "forward": "fast"}, *kinds[2:]]}, "kinds[1].forward = 'fast': Expected a"),
    ]
    rows.append(({"kinds": [{**kind, "out_bytes": 10**400} for kind in kinds]}, "kinds[0].out_bytes must be at least"))
    for values, said in rows:
        done = call(*use.split(), changed(profile, **values), "--workers", "2")
        assert done.exit == 2 and said in done.err, said
    profile.write_text("[" * 5000 + "]" * 5000)
    assert call(*use.split(), profile, "--workers", "2").exit == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "give --space NAME, choice blocks alone, or --recipe"),
        ("--space cv.c3 --recipe r.toml --waits waits.json", "give --space NAME, choice blocks alone, or --recipe"),
        ("--recipe r.toml", "measure it with `sennit profile r.toml --out FILE`, and give --waits FILE"),
        ("--recipe r.toml --waits none.json", "none.json"),
        ("--recipe none --waits waits.json", "cannot read recipe none"),
        ("--recipe r.toml --waits waits.json --sampler fair", "--sampler does not go with --recipe: the recipe"),
        ("--recipe r.toml --waits waits.json --sizes 2,4", "--sizes does not go with --recipe: it is of --space alone"),
        ("--recipe r.toml --waits waits.json -M 2", "-M does not go with --recipe"),
        ("--space cv.c3 --plan p.json", "--plan does not go with --space: it belongs to --recipe"),
        ("--recipe r.toml --waits waits.json --in-flight best", "--in-flight best is found with --space"),
        ("--recipe r.toml --waits waits.json --in-flight x", "--in-flight must be a number"),
        ("--recipe r.toml --waits waits.json --release all", "--release must be layer or stage"),
        ("--recipe r.toml --waits waits.json --workers 99", "use at most"),
        ("--recipe r.toml --waits waits.json --workers 2 --schedule tap", "--schedule tap runs under asp"),
        ("--recipe r.toml --waits waits.json --subnets 0", "--subnets must be at least 1, got 0"),
    ],
)
def test_refused(call: Callable, waits: Path, words: str, said: str) -> None:
    done = call("simulate", *words.split())
    assert done.exit == 2 and said in done.err and waits.exists()
