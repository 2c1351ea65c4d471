"""Runs `nlp.c3-small` on one host and on two, kills a worker, pulls the cable, resumes; for `two_hosts.sh`.

two_hosts.py --out FOLDER [--steps S]        writes FOLDER/figures.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sennit.trace.access import read_accesses
from sennit.trace.check import check
from sennit.trace.rules import Rules

HASHES = ("weights_sha256", "optimizer_sha256", "losses_sha256")
WORKERS = 4
LONGEST_S = 600.0


class Link:
    """Two hosts: network namespaces joined by a cable, or this machine twice."""

    def __init__(self) -> None:
        self.names = [f"sennit{os.getpid()}-{host}" for host in (0, 1)]
        self.what, self.address = "loopback", "127.0.0.1"
        if os.geteuid() or not shutil.which("ip"):
            return
        try:
            for name in self.names:
                self._ip("netns", "add", name)
            self._ip("link", "add", "eth", "netns", self.names[0], "type", "veth", "peer", "name", "eth", "netns",
                     self.names[1])  # fmt: skip
            for host, name in enumerate(self.names):
                self._ip("-n", name, "addr", "add", f"10.77.0.{host + 1}/24", "dev", "eth")
                self._ip("-n", name, "link", "set", "lo", "up")
                self._ip("-n", name, "link", "set", "eth", "up")
        except subprocess.CalledProcessError as error:
            print(f"no network namespaces: {error.stderr.strip()}", file=sys.stderr)
            self.close()
            return
        self.what, self.address = "namespaces, link as fast as memory", "10.77.0.1"
        with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
            for host in (0, 1):
                rate = ["tc", "qdisc", "add", "dev", "eth", "root", "tbf", "rate", "1gbit", "burst", "256kb", "latency"]
                subprocess.run(self.on(host, [*rate, "50ms"]), check=True, capture_output=True)
            self.what = "namespaces, link of 1 Gbit/s"

    @property
    def real(self) -> bool:
        return self.what != "loopback"

    def on(self, host: int, command: list[str]) -> list[str]:
        """The command, on a host."""
        return ["ip", "netns", "exec", self.names[host], *command] if self.address != "127.0.0.1" else command

    def pull(self) -> None:
        self._ip("-n", self.names[1], "link", "set", "eth", "down")

    def plug(self) -> None:
        self._ip("-n", self.names[1], "link", "set", "eth", "up")

    def close(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Run:
    """A call of `sennit train` on both hosts, by torchrun."""

    port = 29400

    def __init__(self, link: Link, command: list[str], out: Path) -> None:
        Run.port += 1
        self.logs = [out.with_name(f"{out.name}.{host}.log") for host in (0, 1)]
        self.out = out
        self.agents: list[subprocess.Popen[bytes]] = []
        self.seen: set[int] = set()
        for host, log in enumerate(self.logs):
            torchrun = [
                sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1",
                "--node-rank", str(host), "--master-addr", link.address, "--master-port", str(Run.port),
                "-m", "sennit",
            ]  # fmt: skip
            with log.open("ab") as file:
                self.agents.append(
                    subprocess.Popen(
                        link.on(host, [*torchrun, *command]), stdout=file, stderr=file, start_new_session=True
                    )
                )

    def launchers(self) -> list[int]:
        """One per host."""
        return [children(agent.pid)[0] for agent in self.agents]

    def look(self) -> set[int]:
        """Launchers, workers and what they have started."""
        for agent in self.agents:
            self.seen.update(below(agent.pid))
        return self.seen

    def trained(self, subnets: int) -> None:
        """Wait until so many are done."""
        until(lambda: lines(self.out / "losses.jsonl") >= subnets or any(a.poll() is not None for a in self.agents))

    def stopped(self) -> float:
        """Seconds until no launcher and no worker is there."""
        since = time.monotonic()
        until(lambda: not any(map(alive, self.seen)))
        return time.monotonic() - since

    def end(self) -> list[int]:
        """Wait; how torchrun ended on each host."""
        return [agent.wait(LONGEST_S) for agent in self.agents]

    def kill(self) -> None:
        for pid in {*self.look(), *(agent.pid for agent in self.agents)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for agent in self.agents:
            agent.wait()

    def said(self, text: str) -> int:
        """How many hosts say that."""
        return sum(text in log.read_text() for log in self.logs)


def children(pid: int) -> list[int]:
    try:
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def below(pid: int) -> list[int]:
    found = children(pid)
    return [*found, *(n for child in found for n in below(child))]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ")[-1][0] not in "ZX"
    except OSError:
        return False


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("a run does not go on")
        time.sleep(0.02)


def result(out: Path) -> dict[str, Any]:
    return json.loads((out / "result.json").read_text())  # type: ignore[no-any-return]


def violations(out: Path) -> int:
    steps = json.loads((out / "result.json").read_text())["steps"]
    rules = Rules.of_run(json.loads((out / "run.json").read_text()), end=steps)
    return sum(1 for _ in check(read_accesses(out / "access.jsonl"), rules))


@contextlib.contextmanager
def running(link: Link, command: list[str], out: Path) -> Iterator[Run]:
    run = Run(link, [*command, "--out", str(out), "--resume"], out)
    try:
        yield run
    finally:
        if any(agent.poll() is None for agent in run.agents):
            run.kill()
        print(f"--- {out.name}\n" + "".join(log.read_text()[-600:] for log in run.logs), file=sys.stderr)


def figures(link: Link, out: Path, steps: int) -> dict[str, Any]:
    recipe, profile, temporary = out / "small.toml", out / "profile.json", out / "temporary"
    temporary.mkdir()
    os.environ["TMPDIR"] = str(temporary)
    text = Path("recipes/nlp.c3-small.toml").read_text()
    recipe.write_text(text.replace("every = 50", "every = 10"))  # when to save does not change a bit
    sennit = [sys.executable, "-m", "sennit"]
    subprocess.run([*sennit, "profile", str(recipe), "--out", str(profile)], check=True, stdout=sys.stderr)
    command = ["train", str(recipe), "--workers", str(WORKERS), "--steps", str(steps), "--plan", str(profile)]
    subprocess.run([*sennit, *command, "--out", str(out / "one")], check=True, stdout=sys.stderr)
    one, runs = result(out / "one"), [out / "two"]
    with running(link, command, out / "two") as run:
        run.trained(1)
        seen = set(run.look())
        run.end()
    two = result(out / "two")
    moved = two["hosts"]
    found: dict[str, Any] = {
        "hosts": link.what,
        "different": sum(one[key] != two[key] for key in HASHES),
        "pushes": moved["pushes"],
        "pushed_kib": round(moved["pushed_bytes"] / 1024 / steps, 1),
        "gathered_kib": round(moved["gathered_bytes"] / 1024 / -(-steps // 10), 1),
        "tensor_kib": round(moved["tensor_bytes"] / 1024 / steps, 1),
        "stall_percent": round(100 * moved["stall_s"] * two["subnets_per_s"] / steps / WORKERS, 2),
        "rate_one": round(one["subnets_per_s"], 2),
        "rate_two": round(two["subnets_per_s"], 2),
    }  # fmt: skip

    def broken(name: str, harm: Callable[[Run], Any]) -> tuple[float, Run]:
        """A run that something happens to after 40 % of its subnets; then it is resumed."""
        with running(link, command, out / name) as hurt:
            hurt.trained(2 * steps // 5)
            seen.update(hurt.look())
            harm(hurt)
            seconds = hurt.stopped()
            hurt.end()
        if name == "pulled":
            link.plug()
        with running(link, command, out / name) as again:
            again.trained(2 * steps // 5)
            seen.update(again.look())
            again.end()
        found[f"different_{name}"] = sum(one[key] != result(out / name)[key] for key in HASHES)
        found[f"seconds_{name}"] = round(seconds, 2)
        runs.append(out / name)
        return seconds, hurt

    _, hurt = broken("killed", lambda run: os.kill(children(run.launchers()[1])[1], signal.SIGKILL))
    found["named"] = hurt.said("worker 3 on host 1 was killed by signal SIGKILL")
    if link.real:
        _, hurt = broken("pulled", lambda run: link.pull())
        found["told_pulled"] = hurt.said("has ended, or does not answer")
    found["violations"] = sum(map(violations, runs))
    found["processes"] = sum(map(alive, seen))
    found["files"] = len([p for p in temporary.iterdir() if p.name.startswith("sennit-")])
    return found


def main() -> None:
    reading = argparse.ArgumentParser()
    reading.add_argument("--out", type=Path, required=True)
    reading.add_argument("--steps", type=int, default=40)
    options = reading.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # namespaces would stay
    link = Link()
    try:
        found = figures(link, options.out, options.steps)
    finally:
        link.close()
    (options.out / "figures.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
