"""Runs of `kill.sh`: writes OUT/figures.json."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HASHES = ("weights_sha256", "optimizer_sha256", "losses_sha256")
MARK = "SENNIT_ACCEPTANCE_MARK"
GRACE_S = 2.0
"""How long after the end of the launcher anything may still be there, seconds. It takes milliseconds."""
LONGEST_S = 12.0
"""No kill waits longer than this for its moment, seconds; a slow machine then has more kills in one run."""
PATIENCE_S = 20.0
"""How long the launcher may take to notice, seconds."""
EXPLAINED = ("was killed by signal", "a process that loads data has died", "helper process was killed")
BELONGS = {
    "run.json", "result.json", "losses.jsonl", "access.jsonl", "trace.jsonl", "trace.json", "checkpoints", "lock"
}  # fmt: skip
WORKERS = (1, 2, 3, 4)


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def numbers(folder: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdecimal()]
    except OSError:
        return []


def sockets_of(pids: list[int]) -> set[str]:
    """Inodes of the sockets that these processes have open."""
    found = set()
    for pid in pids:
        for fd in numbers(f"/proc/{pid}/fd"):
            try:
                link = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            if link.startswith("socket:["):
                found.add(link[8:-1])
    return found


def listening() -> set[str]:
    """Inodes of all listening TCP sockets."""
    rows = (line.split() for name in ("tcp", "tcp6") for line in read(f"/proc/net/{name}").decode().splitlines()[1:])
    return {row[9] for row in rows if row[3] == "0A"}


class Running:
    """`sennit train` in processes that are known by a mark in their environment."""

    def __init__(self, out: Path, words: list[str], log: Path) -> None:
        self.mark, self.out = uuid.uuid4().hex, out
        self.segments = set(os.listdir("/dev/shm"))
        self.log = log
        with log.open("wb") as errors, log.with_suffix(".json").open("wb") as answer:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sennit", "train", *words, "--out", str(out), "--json"],
                stdout=answer, stderr=errors, env={**os.environ, MARK: self.mark},
            )  # fmt: skip

    def pids(self) -> list[int]:
        """Those that live, the launcher among them."""
        wanted = f"{MARK}={self.mark}".encode()
        return [pid for pid in numbers("/proc") if wanted in read(f"/proc/{pid}/environ").split(b"\0")]

    def result(self) -> dict[str, Any] | None:
        """Wait; None if it failed."""
        code = self.process.wait()
        return json.loads(self.log.with_suffix(".json").read_text()) if code == 0 else None

    def has_answered(self) -> bool:
        return self.log.with_suffix(".json").stat().st_size > 0

    def said(self) -> str:
        return self.log.with_suffix(".json").read_text() or self.log.read_text()[-600:]


def depth(pid: int, top: int) -> str:
    """launcher, worker (its child) or loader (a child of that)."""
    held = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    parent = int(held[1]) if len(held) > 1 else 0
    return "launcher" if pid == top else "worker" if parent == top else "loader"


@dataclass
class Figures:
    wanted: int
    good: int = 0
    runs: int = 0
    different: int = 0
    failed: int = 0
    seconds_worker: float = 0.0
    seconds_loader: float = 0.0
    seconds_exit: float = 0.0
    unexplained: int = 0
    processes: int = 0
    ports: int = 0
    locks: int = 0
    segments: int = 0
    files: int = 0
    kinds: dict[str, int] = field(default_factory=dict)


def kill_one(run: Running, draw: random.Random, figures: Figures) -> str | None:
    """SIGKILL to one process, and a look at what is left. None: the run had ended."""
    pids = run.pids()
    kinds: dict[str, list[int]] = {}
    for pid in sorted(pids):
        kinds.setdefault(depth(pid, run.process.pid), []).append(pid)
    if run.process.poll() is not None or not kinds:
        return None
    kind = draw.choice(sorted(kinds))
    ports = sockets_of(pids) & listening()
    begin = time.monotonic()
    try:
        os.kill(draw.choice(kinds[kind]), signal.SIGKILL)
    except ProcessLookupError:
        return None
    deadline, stopped, trained = begin + PATIENCE_S, 0.0, subnets(run.out)
    while run.process.poll() is None and time.monotonic() < deadline:  # it is our child: reap it
        if not stopped and run.pids() == [run.process.pid] and run.has_answered():
            stopped = time.monotonic() - begin
        if time.monotonic() > deadline - PATIENCE_S / 2 and (now := subnets(run.out)) > trained:
            deadline, trained = time.monotonic() + PATIENCE_S, now  # it goes on without what was killed
        time.sleep(0.005)
    deadline = time.monotonic() + GRACE_S
    while run.pids() and time.monotonic() < deadline:
        time.sleep(0.005)
    took = time.monotonic() - begin
    stopped = stopped or took
    if run.process.poll() == 0:
        return None  # what was killed had nothing left to do: the run has ended well
    if kind == "loader":
        figures.seconds_loader = max(figures.seconds_loader, round(stopped, 2))
    else:
        figures.seconds_worker = max(figures.seconds_worker, round(stopped, 2))
    figures.seconds_exit = max(figures.seconds_exit, round(took - stopped, 2))
    left = run.pids()
    figures.processes += len(left)
    figures.ports += len(ports & listening())
    figures.locks += not soon(lambda: can_be_locked(run.out))
    new = set(os.listdir("/dev/shm")) - run.segments
    used = b"".join(read(f"/proc/{pid}/maps") for pid in numbers("/proc")) if new else b""
    orphans = [name for name in new if name.encode() not in used]  # other programs have segments, too
    figures.segments += len(orphans)
    figures.kinds[kind] = figures.kinds.get(kind, 0) + 1
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    run.process.wait()
    more = f", LEFT processes {left}, segments {orphans}" if left or orphans else ""
    if kind != "launcher" and not any(words in run.said() for words in EXPLAINED):
        figures.unexplained += 1
        more += f", NOT EXPLAINED: {run.said()}"
    return f"{kind:8} killed, {len(pids)} processes stopped in {stopped:.2f} s, gone in {took:.2f} s{more}"


def soon(true: Callable[[], bool]) -> bool:
    """Whether something holds within the grace. The kernel takes a process's memory, by which we know it, before its
    files and the locks on them."""
    deadline = time.monotonic() + GRACE_S
    while not (held := true()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return held


def can_be_locked(folder: Path) -> bool:
    if not (folder / "lock").exists():
        return True  # killed before it took the folder
    with (folder / "lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def subnets(folder: Path) -> int:
    return sum(b'"evaluation"' not in line for line in read(str(folder / "losses.jsonl")).splitlines())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20240501)
    given = parser.parse_args()
    draw, figures = random.Random(given.seed), Figures(given.kills)
    words = ["recipes/digits.toml", "--steps", str(given.steps)]
    begin = time.monotonic()
    whole = Running(given.out / "whole", [*words, "--workers", "2"], given.out / "whole.log")
    starts = 0.0
    while whole.process.poll() is None:
        if not starts and subnets(whole.out):
            starts = time.monotonic() - begin
        time.sleep(0.02)
    wanted, lasts = whole.result(), time.monotonic() - begin
    if wanted is None:
        print(f"the uninterrupted run failed: {whole.said()}")
        return 1
    print(
        f"uninterrupted: {lasts:.1f} s, {starts:.1f} s to the first subnet; {wanted['weights_sha256'][:16]}", flush=True
    )

    kills, number, call, workers = 0, 0, 0, 0
    while kills < given.kills or workers:
        if not workers:
            number, killed = number + 1, 0  # a new run
        out = given.out / f"run{number}"
        workers = draw.choice([n for n in WORKERS if n != workers])
        loaders = draw.choice((0, 1))
        options = ["--workers", str(workers), "--loaders", str(loaders), "--resume"]
        call += 1
        run = Running(out, [*words, *options], given.out / f"{call}.log")
        said = None
        if kills < given.kills:
            # a fifth of the kills while it starts, the others while it trains, counted from its first new subnet
            called, before = time.monotonic(), subnets(out)
            early = draw.random() < 0.2
            wait = draw.uniform(0, starts) if early else draw.uniform(0, min(0.7 * (lasts - starts), LONGEST_S))
            while not early and run.process.poll() is None and not 0 < subnets(out) != before:
                time.sleep(0.02)
            deadline = time.monotonic() + wait
            while run.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            moment = time.monotonic() - called
            said = kill_one(run, draw, figures)
        if said:
            kills, killed = kills + 1, killed + 1
            print(f"{kills:2}: run {number}, {workers} workers, {loaders} loaders, after {moment:5.1f} s, "
                  f"{subnets(out):3} subnets: {said}", flush=True)  # fmt: skip
            continue
        result = run.result()
        workers = 0
        if result is None:
            figures.failed += 1
            print(f"run {number} FAILED after {killed} kills: {run.said()}", flush=True)
            continue
        different = [k for k in HASHES if result[k] != wanted[k]]
        figures.runs += 1
        figures.different += bool(different)
        figures.good += 0 if different else killed
        strange = sorted({p.name for p in out.iterdir()} - BELONGS)
        strange += [p.name for p in (out / "checkpoints").iterdir() if not p.name.isdecimal()]
        figures.files += len(strange)
        verdict = f"DIFFERENT {different}" if different else "equal"
        print(
            f"run {number} ended after {killed} kills: {result['weights_sha256'][:16]} {verdict} {strange or ''}",
            flush=True,
        )
    print(f"{call} commands, {(time.monotonic() - begin) / 60:.1f} minutes; killed: {figures.kinds}")
    (given.out / "figures.json").write_text(json.dumps({**vars(figures), "killed": len(figures.kinds)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
