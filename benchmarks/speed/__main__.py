"""The command: runs the rows one after the other, in children; then prediction and limit of each; writes and prints."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.runs import commit
from benchmarks.speed.beside import Seen, beside, predictable
from benchmarks.speed.costs import Prices, prices_of, to_plain
from benchmarks.speed.given import micro_batches_of, options, recipe_of, title_of, ways_of
from benchmarks.speed.hops import hop_s
from benchmarks.speed.kept import Kept
from benchmarks.speed.once import made, run
from benchmarks.speed.predict import load_of, most_common, shapes_of
from benchmarks.speed.rows import LAYERS, Row
from benchmarks.speed.table import hashes, table
from benchmarks.speed.window import Window

from sennit.profile.profile import Profile
from sennit.profile.quick import block_order
from sennit.profile.waits import FORMAT, Waits
from sennit.recipe import Recipe
from sennit.runtime import dryrun
from sennit.runtime.fingerprint import fingerprint
from sennit.runtime.forked import in_child
from sennit.runtime.host_times import host_times
from sennit.runtime.profiling import measure
from sennit.trace.span import Span

WARM_S = 8.0
"""Seconds that each of several workers on GPUs spends on loading kernels before it begins."""

EACH_S = 0.02
"""Seconds for each measurement of the profile."""


def priced(recipe: Recipe, row: Row, spans: list[Span], window: Window, device: str, profile: Profile) -> Prices:
    """What layers took in a run by layer."""
    held = made(recipe, row)
    shapes = shapes_of(held, window.begin)
    flat = Prices(profile, {shapes[0]: {}}, {shapes[0]: (1.0, 1.0)})
    load = load_of(held, row.placement(device), flat, shapes, window.begin)
    runs = {y: cut for y, cut in enumerate(load.runs()) if y in window.sampled}
    return prices_of(spans, runs, shapes, profile)


def message_s(recipe: Recipe, row: Row, prices: Prices, kept: Kept) -> float:
    """Seconds of the host for a message, between two workers on virtual devices that wait as long as layers take."""
    held, shape = made(recipe, row), next(iter(prices.found))
    blocks: dict[str, list[float]] = {block: [] for block in block_order(held.built)}
    for program in held.built.covering:
        for step in program.steps:
            blocks[step.block].append(sum(prices.of(shape, step.name)))
    mean = {block: sum(found) / len(held.built.covering) for block, found in blocks.items()}
    kept.wanted = False
    with tempfile.TemporaryDirectory() as folder:
        waits = Path(folder) / "waits.json"
        cost = Waits.measured(mean).blocks
        table = {b: {"forward": c.forward, "backward": c.whole} for b, c in cost.items()}
        waits.write_text(json.dumps({"format": FORMAT, "blocks": table}))
        found = in_child(lambda: host_times(held, 2, waits)).message
    kept.wanted = True
    return found


def main() -> int:
    given, begin = options(), time.monotonic()
    ms, cuda = micro_batches_of(given), given.device == "cuda"
    recipe, window = recipe_of(given), Window(given.warm, given.sample, given.timed)
    there = in_child(torch.cuda.device_count) if cuda else 1 << 16
    result: dict[str, Any] = {
        "command": shlex.join(["python", "-m", "benchmarks.speed", *sys.argv[1:]]), "commit": given.commit or commit(),
        "fingerprint": in_child(lambda: fingerprint(given.device)), "window": asdict(window),
        "title": title_of(given, recipe), "at": datetime.now(UTC).isoformat(timespec="seconds"), "rows": [],
        "left_out": [], "prices": {},
    }  # fmt: skip
    dryrun.BUDGET_S["cuda"] = WARM_S

    def keep() -> None:
        given.out.write_text(json.dumps(result, indent=1) + "\n")

    def say(what: str) -> None:
        print(f"{time.monotonic() - begin:6.1f} s  {what}", flush=True)

    first = made(recipe, Row(LAYERS, ms[-1]))
    say("recorded")
    ways = ways_of(given, len(block_order(first.built)))
    kept = Kept(first)
    say("weights drawn")
    profile = in_child(lambda: measure(first, torch.device(given.device), EACH_S))
    result["profile"] = asdict(profile)
    say(f"profile of {len(profile.kinds)} kinds")
    devices = [int(n) for n in given.on.split(",")]
    rows = {row.key: row for n in devices if n <= there for row in ways.on(n)}
    wanted = [row for row in rows.values() if not given.only or any(part in row.key for part in given.only.split(";"))]
    prices: dict[tuple[int, str], Prices] = {}
    for row in wanted:
        if time.monotonic() - begin > given.seconds:
            result["left_out"].append(row.key)
            continue
        others = (priced_of for (_, executor), priced_of in prices.items() if executor == row.executor)
        held = prices.get((row.micro_batches, row.executor)) or next(others, None)  # a cut needs ratios alone
        batches = made(recipe, Row(LAYERS, row.micro_batches))
        costs = profile if held is None else held.at(most_common(shapes_of(batches, window.steps)))
        found, spans = run(recipe, row, window, given.device, costs, given.run_seconds)
        if spans:
            prices[row.micro_batches, row.executor] = priced(recipe, row, spans, window, given.device, profile)
        result["rows"].append(found)
        say(f"{row.key}: {found.get('ms', found.get('refused', found.get('failed')))}")
        keep()
    result["prices"] = {f"M = {m}, {executor}": to_plain(held) for (m, executor), held in prices.items()}
    if prices:
        (m, executor), held = next(reversed(prices.items()))
        result["message_s"] = message_s(recipe, Row(LAYERS, m, executor=executor), held, kept)
        say("host times")
        if cuda and there > 1:
            result["hop_s"] = hop_s(int(median(kind.out_bytes for kind in profile.kinds if kind.parameter_bytes)))
            say(f"a hop: {1e6 * result['hop_s']:.0f} us")
        known = {row["key"]: row for row in result["rows"]}
        more = [row for n in map(int, given.predict.split(",")) for row in ways.on(n) if row.engine == "pipeline"]
        shapes = {m: shapes_of(made(recipe, Row(LAYERS, m)), window.steps) for m in ms}
        between = result.get("hop_s", result["message_s"])  # a hop has both hosts' part in it
        seen = Seen(recipe, window, given.device, prices, known, profile.links, between, shapes)
        ran = [row for row in wanted if "ms" in known.get(row.key, {})]
        every = {r.key: r for r in (*ran, *predictable(recipe, more)) if seen.prices_for(r) is not None}
        for key, told in beside(seen, [*every.values()]).items():
            if key in known:
                known[key].update(told)
            else:
                row = every[key]
                facts = {**asdict(row), "key": key, "shared": row.shared, "sync": row.of(recipe).sync}
                result["rows"].append({**facts, **told})
        say("predicted")
    keep()
    print("\n".join(table([result])))
    for row in result["rows"]:
        if "ms" in row and row["workers"] == 1:
            idle = f"{1e3 * row['idle_s']:.1f} ms between {row['tasks']:.0f} tasks" if "idle_s" in row else ""
            kept = (
                f"; {row['kept steps']:.0f} of {row['replayed steps']:.0f} steps kept" if row.get("kept steps") else ""
            )
            held = f" what they made, in {row['kept bytes'] / 2**30:.1f} GiB" if kept else ""
            print(f"{row['key']}: {row['wall_s']:.0f} s in all; of a subnet {idle} {row.get('looked', '')}{kept}{held}")
    print("links:", {name: f"{rate / 1e9:.1f} GB/s" for name, rate in profile.links.items()})
    wrong = [r["key"] for r in result["rows"] if hashes(r, result["rows"]) == "DIFFERENT" or "failed" in r]
    print("other hashes, or failed:", wrong or "none", "| left out:", result["left_out"] or "none")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
