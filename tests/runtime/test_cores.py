"""Cores that may be used, and what is said of more workers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sennit.runtime import cores
from sennit.runtime.cores import Cores, crowded_words


@pytest.mark.parametrize(
    ("quota", "limit", "most"),
    [("max 100000", 4, 4), ("250000 100000", 2.5, 2), ("50000 100000", 0.5, 1), ("900000 100000", 4, 4), ("", 4, 4)],
)
def test_a_container_may_grant_less_than_there_is(
    quota: str, limit: float, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5, 7})
    if quota:
        (tmp_path / "cpu.max").write_text(quota + "\n")
    found = Cores.usable()
    assert (found.allowed, found.limit, found.most) == (4, limit, most)


@pytest.mark.parametrize(
    ("workers", "replicas", "hosts", "limit", "said"),
    [
        (2, 1, 1, 2, ""),
        (1, 1, 1, 0.5, ""),
        (3, 1, 1, 2, "3 workers share 2 cores .*; use --workers 2, or"),
        (2, 1, 1, 1, "2 workers share 1 core of .*; use --workers 1, or"),
        (3, 1, 1, 2.5, r"3 workers share 2\.5 cores .*; use --workers 2, or"),
        (6, 3, 1, 5, "6 workers share 5 cores .*; use --workers 3, or"),
        (4, 4, 1, 2, "4 workers share 2 cores .*; use fewer --workers, or"),
        (3, 1, 2, 2, "3 workers share 2 cores .*; use fewer --workers, or"),
    ],
)
def test_what_is_said(workers: int, replicas: int, hosts: int, limit: float, said: str) -> None:
    words = crowded_words(workers, replicas, hosts, Cores(8, limit))
    assert re.match(said, words) if said else not words
