"""NASPipe's Table 2 from kept results: order, what is compared with what, columns that are missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.table2_rows import HEAD, PAPER, columns, joined, missing, on_devices, table

KEPT = sorted((Path(__file__).parents[2] / "benchmarks" / "results").glob("table2_*.json"))


def result(*rows: dict[str, Any], gpus: tuple[str, ...] = ("H200",), torch: str = "2.11") -> dict[str, Any]:
    return {"commit": "c", "fingerprint": {"torch": torch, "gpus": list(gpus)}, "rows": list(rows)}


def row(space: str, engine: str = "pipeline", devices: int = 1, bits: str = "a", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "space": space, "engine": engine, "devices": devices, "gpus": devices, "batch": 64, "steps": 40,
        "parameters": 2e6, "bytes": 8e6, "setup_s": 1.0, "host_bytes": 3e9, "ms_per_subnet": 100.0,
        **{f"{what}_sha256": bits for what in ("weights", "optimizer", "losses")},
    }  # fmt: skip
    if engine == "pipeline":
        found |= {
            "largest": 512, "tried": {"128": "fits", "256": "fits", "512": "fits"}, "slots": {"hit_rate": 0.97},
            "timed": {"busy_ms_per_subnet": 90.0, "utilisation": 0.96, "bubble": 0.04},
            "counters": {"parameters in slots, bytes": 4e6, "device memory, most bytes": 5e9},
        }  # fmt: skip
    else:
        found["device_bytes"] = 6e9
    return {**found, **more}


def told(lines: list[str]) -> list[tuple[str, str]]:
    """(space, run) of each line below the head."""
    return [tuple(cell.strip() for cell in line.split("|")[1:3]) for line in lines[len(HEAD) :]]  # type: ignore[misc]


def test_rows_of_all_results_stand_in_the_papers_order() -> None:
    one = result(row("cv.c3", "plain"), row("cv.c3", devices=2), row("cv.c3"), row("digits"))
    other = result(row("nlp.c1"), row("nlp.c0"))
    assert told(table([one, other])) == [
        ("nlp.c0", "pipeline, D = 1"),
        ("nlp.c1", "paper, 8 GPUs"), ("nlp.c1", "pipeline, D = 1"),
        ("cv.c3", "paper, 8 GPUs"), ("cv.c3", "pipeline, D = 1"), ("cv.c3", "pipeline, D = 2"),
        ("cv.c3", "plain, D = 1"),
        ("digits", "pipeline, D = 1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tried", "largest", "shown"),
    [
        ({"128": "fits", "256": "fits"}, 256, "64 (256+)"),
        ({"128": "fits", "256": "the device is full"}, 128, "64 (128)"),
        ({"128": "the device is full"}, 64, "64 (64)"),
    ],
)
def test_the_largest_batch_has_a_plus_where_no_trial_failed(tried: dict[str, str], largest: int, shown: str) -> None:
    assert f"| {shown} |" in table([result(row("cv.c3", largest=largest, tried=tried))])[-1]


def compared(*results: dict[str, Any]) -> list[str]:
    return [r["compared"] for r in joined(results)]


def test_hashes_are_those_of_the_plain_loop_of_the_same_training() -> None:
    plain = row("cv.c3", "plain")
    assert compared(result(row("cv.c3"), plain)) == ["equal", "reference"]
    assert compared(result(row("cv.c3")), result(plain)) == ["equal", "reference"]  # ran in another command
    assert compared(result(row("cv.c3"), plain, gpus=("H200", "H200")), result()) == ["equal", "reference"]
    assert compared(result(row("cv.c3"), gpus=("H200", "H200")), result(plain)) == ["equal", "reference"]
    for changed in ("weights_sha256", "optimizer_sha256", "losses_sha256"):
        assert compared(result({**row("cv.c3"), changed: "b"}, plain)) == ["DIFFERENT", "reference"]
    told_none = {name: value for name, value in row("cv.c3").items() if not name.endswith("_sha256")}
    assert compared(result(told_none, plain)) == ["DIFFERENT", "reference"]


def test_the_plain_loop_of_another_training_or_machine_is_no_reference() -> None:
    for other in (
        result(row("cv.c3", "plain", batch=128)), result(row("cv.c3", "plain", steps=20)),
        result(row("cv.c2", "plain")),
        result(row("cv.c3", "plain"), gpus=("L4",)), result(row("cv.c3", "plain"), torch="2.13"),
        result({**row("cv.c3", "plain"), "why": "full"}),
    ):  # fmt: skip
        assert "no reference" in compared(result(row("cv.c3")), other)


def test_the_plain_loop_of_the_same_result_comes_first() -> None:
    later = result(row("cv.c3", bits="b"), row("cv.c3", "plain", bits="b"))
    for results in (result(row("cv.c3", "plain")), later), (later, result(row("cv.c3", "plain"))):
        assert compared(*results)[0] == "equal"


def test_missing_columns_are_named() -> None:
    whole = row("cv.c3")
    assert missing(whole) == []
    for key, names in {
        "largest": ["largest"], "slots": ["hits"], "timed": ["utilisation", "exec s", "bubble"],
        "counters": ["cached", "device memory"], "host_bytes": ["host memory"],
    }.items():  # fmt: skip
        less = {name: value for name, value in whole.items() if name != key}
        assert missing(less) == names
    assert missing(row("cv.c3", slots={"hit_rate": float("nan")})) == ["hits"]
    assert missing(row("cv.c3", "plain")) == [] == missing({"space": "cv.c3", "why": "full"})
    plain = columns(row("cv.c3", "plain"))
    assert plain["exec s"] == 0.1 and plain["device memory"] == 6e9 and plain["bubble"] is None


def test_what_does_not_fit_is_a_row() -> None:
    host = {"space": "nlp.c0", "batch": 64, "parameters": 8e9, "bytes": 32e9, "why": "the host has too little"}
    budget = {**host, "space": "nlp.c1", "devices": 2, "why": "too small"}
    lines = table([result(host, budget)])
    assert "does not run: the host has too little" in lines[2] and "does not run: too small" in lines[4]
    assert {line.count("|") for line in lines} == {14}
    assert on_devices(host, 1) and on_devices(host, 2)
    assert on_devices(budget, 2) and not on_devices(budget, 1)


def test_workers_that_share_a_gpu_are_no_two_devices() -> None:
    assert on_devices(row("cv.c3", devices=2), 2) and not on_devices(row("cv.c3", devices=2, gpus=1), 2)
    assert not on_devices(row("cv.c3", "plain"), 1) and not on_devices(row("cv.c3", engine="plain", why="full"), 1)


def test_the_kept_results_make_a_table() -> None:
    assert KEPT
    lines = table(json.loads(file.read_text()) for file in KEPT)
    assert {line.count("|") for line in lines} == {14}
    assert [s for s, run in told(lines) if run.startswith("paper")] == list(PAPER)
