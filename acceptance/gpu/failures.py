"""Runs in trouble, for `failures.sh`: writes OUT/result.json.

Each is `sennit train` as a user types it. Either it ends with the hashes of the undisturbed run, or it stops with an
exit code, a message, and a folder from which it goes on: then it is resumed, and that must end with them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for acceptance

import torch
from acceptance.engine.compared import HASHES, in_parallel
from acceptance.gpu.covering import facts_of, shares_of_stream

from sennit.memory.store import HostStore
from sennit.recipe import Placement, read_recipe
from sennit.runtime.forked import in_child
from sennit.runtime.placing import plans_of

HERE = Path(__file__).parent
HOG_AT = 25
"""Subnets after which another program takes the device."""

RECIPE = """space = "nlp.c3"
data = "pairs"
loss = "smoothed_token_cross_entropy"
batch_size = 128
steps = {steps}
seed = {seed}
micro_batches = 2
lr = 0.001
clip = "global:1.0"
[space_args]
d = {width}
vocab = 80
layers = 4
max_length = 64
[data_args]
lengths = [8, 16]
rows_multiple = 2
[optimizer]
name = "adam"
[checkpoint]
every = 10
"""


@dataclass
class Bench:
    """Where runs are made."""

    out: Path
    device: str
    steps: int
    recipe: Path

    def train(self, name: str, *options: str, trouble: str = "", recipe: Path | None = None) -> dict[str, Any]:
        """One call of `sennit train`: exit code, message and result."""
        begin = [str(HERE / "troubled.py"), trouble] if trouble else ["-m", "sennit"]
        words = [*begin, "train", str(recipe or self.recipe), "--device", self.device, "--out", str(self.out / name)]
        ended = subprocess.run([sys.executable, *words, *options], capture_output=True, text=True, check=False)
        result = self.out / name / "result.json"
        lines = ended.stderr.splitlines()
        first = next((i for i, line in enumerate(lines) if line.startswith(("error:", "Traceback"))), len(lines))
        return {
            "exit": ended.returncode, "message": lines[first:], "told": ended.stderr, "shown": ended.stdout,
            "result": json.loads(result.read_text()) if result.exists() else None,
        }  # fmt: skip

    def case(self, name: str, options: Sequence[str], again: Sequence[str], **how: Any) -> None:
        """A run in trouble, and if it stops, the same folder gone on with."""
        first = self.train(name, *options, **how)
        self.note(name, first, lambda: self.train(name, *again, "--resume", recipe=how.get("recipe")))

    def note(
        self, name: str, first: dict[str, Any], go_on: Callable[[], dict[str, Any]], oracle: str = "plain",
        facts: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Write down how a run ended, and how it went on."""
        kept = sorted(path.name for path in (self.out / name / "checkpoints").glob("[0-9]*"))
        last = first if first["exit"] == 0 else go_on()
        reference = json.loads((self.out / oracle / "result.json").read_text())
        line = {
            "case": name, "exit": first["exit"], "lines": len(first["message"]), "message": first["message"][:40],
            "traceback": any(text.startswith("Traceback") for text in first["message"]),
            "checkpoint": kept[-1] if kept else None, "exit_of_resumed": None if last is first else last["exit"],
            "equal": last["result"] is not None and all(last["result"][h] == reference[h] for h in HASHES),
            "again": (first["result"] or {}).get("tasks_run_again", 0),
            "pinned": (first["result"] or {}).get("pinned"),
            "pinning_told": "could not be pinned" in first["told"] and "not pinned" in first["shown"],
            **(facts or {}),
        }  # fmt: skip
        if last is not first and last["exit"]:
            line["message_of_resumed"] = last["message"][:40]
        (self.out / f"{name}.case.json").write_text(json.dumps(line))
        print(f"{name}: exit {line['exit']}, {line['lines']} lines, equal {line['equal']}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def hog(bench: Bench, name: str, lines: int) -> Iterator[dict[str, Any]]:
    """Another program that takes all memory once a run has so many subnets; at the end, whether it did."""
    found: dict[str, Any] = {}
    command = [sys.executable, str(HERE / "hog.py"), str(bench.out / name / "losses.jsonl"), str(lines)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.readline()
    try:
        if not lines:
            said += process.stdout.readline()
        yield found
    finally:
        process.kill()
        found["device_was_full"] = "full" in said + process.stdout.read()
        process.wait()


# -- cases


def least_and_record(recipe_file: Path, device: str) -> tuple[float, float, int]:
    """GiB for any subnet of the stream; GiB for those before the last that is larger than all before it; its number."""
    recipe = read_recipe(recipe_file)
    built = recipe.built
    host = HostStore(
        built.recordings.skeleton, built.groups, built.always[0] | built.always[1], recipe.sharing,
        recipe.optimizer_name, recipe.optimizer_arguments,
    )  # fmt: skip
    shares = shares_of_stream(recipe, plans_of(built, Placement(device=device)), host)
    record = shares.index(max(shares))
    before = max(shares[:record], default=0)
    return (max(shares) + host.spare()) / 2**30, (before + host.spare()) / 2**30, record


def little(bench: Bench) -> None:
    """Refused before anything runs, with what would do."""
    first = bench.train("little", "--budget", "0.0001")
    advice = re.findall(r"at least --budget (\S+)", " ".join(first["message"]))
    bench.note("little", first, lambda: bench.train("little", "--budget", advice[-1] if advice else "0"))


def little_later(bench: Bench, recipe: Path, least: float, before: float) -> None:
    """Each subnet is cut in its own way, so it shows only when one comes in that does not fit."""
    profile = bench.out / "profile.json"
    words = ["-m", "sennit", "profile", str(recipe), "--device", bench.device, "--out", str(profile)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    bench.train("plain-later", "--engine", "plain", recipe=recipe)
    placed = ["--plan", str(profile), "--budget"]
    first = bench.train("little-later", *placed, f"{before + 1e-7:.9f}", recipe=recipe)
    more = [*placed, f"{least + 1e-7:.9f}", "--resume"]
    bench.note("little-later", first, lambda: bench.train("little-later", *more, recipe=recipe), "plain-later")


def cases(bench: Bench, least: float) -> list[tuple[Any, ...]]:
    """Those that may run beside each other."""
    some = ["--budget", f"{3 * least:.9f}"]
    found: list[tuple[Any, ...]] = [(little, bench)]
    for name, options in (("", []), ("-budget", some)):
        found += [
            (case, bench, f"full-once{name}", options, options, "full-once"),
            (case, bench, f"full{name}", options, [], "full"),
        ]
        if bench.device == "cuda":
            found.append((case, bench, f"unpinned{name}", options, options, "unpinned"))
    if bench.device == "cpu" or room_for_two():
        found.append((case, bench, "full-two-workers", ["--workers", "2"], [], "full"))
    return found


def room_for_two() -> bool:
    """Whether two workers find a GPU each, or may share one."""
    return in_child(torch.cuda.device_count) > 1 or any(f.name == "transport" for f in fields(Placement))


def case(bench: Bench, name: str, options: list[str], again: list[str], trouble: str) -> None:
    bench.case(name, options, again, trouble=trouble)


def hogged(bench: Bench, least: float) -> None:
    """With the whole device, one after the other."""
    for name, options in (("hog", []), ("hog-budget", ["--budget", f"{3 * least:.9f}"])):
        with hog(bench, name, HOG_AT) as facts:
            first = bench.train(name, *options)
        bench.note(name, first, lambda name=name: bench.train(name, "--resume"), facts=facts)
    with hog(bench, "hog-first", 0) as facts:
        first = bench.train("hog-first")
    bench.note("hog-first", first, lambda: bench.train("hog-first", "--resume"), facts=facts)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--commit", help="of this code, where git cannot tell")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    recipes = {name: given.out / f"{name}.toml" for name in ("usual", "later")}
    text = {"steps": given.steps, "width": given.width}
    recipes["usual"].write_text(RECIPE.format(seed=0, **text))
    least, before, record = 0.0, 0.0, 0
    for seed in range(1, 20):  # one whose largest subnet comes late
        recipes["later"].write_text(RECIPE.format(seed=seed, **text))
        least, before, record = least_and_record(recipes["later"], given.device)
        if given.steps // 4 < record < given.steps - 10:
            break
    bench = Bench(given.out, given.device, given.steps, recipes["usual"])
    largest, _, _ = least_and_record(recipes["usual"], given.device)
    bench.train("plain", "--engine", "plain")
    jobs = cases(bench, largest)
    in_parallel([*jobs, (little_later, bench, recipes["later"], least, before)], given.jobs)
    if given.device == "cuda":
        hogged(bench, largest)
    lines = [json.loads(path.read_text()) for path in sorted(given.out.glob("*.case.json"))]
    found = {"steps": given.steps, "width": given.width, **facts_of(given), "cases": lines}
    found["largest_subnet_of_little_later"] = record
    (given.out / "result.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
