"""The command: runs the rows one after the other, in children; then prediction and limit of each; writes and prints."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.runs import commit
from benchmarks.speed import __doc__ as about
from benchmarks.speed.beside import Seen, beside, predictable
from benchmarks.speed.costs import Prices, prices_of, to_plain
from benchmarks.speed.hops import hop_s
from benchmarks.speed.kept import Kept
from benchmarks.speed.once import made, run
from benchmarks.speed.predict import load_of, most_common, shapes_of
from benchmarks.speed.rows import LAYERS, Causal, Row, Ways
from benchmarks.speed.table import hashes, table
from benchmarks.speed.window import Window

from sennit.profile.profile import Profile
from sennit.profile.quick import block_order
from sennit.profile.waits import FORMAT, Waits
from sennit.recipe import Recipe, read_recipe
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


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="recipes/nlp.c3.toml")
    parser.add_argument("--data", help="file of the recipe's data set: the TSV of `ende`, `cifar10_jpeg.npz`")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--on", default="1,2,4", help="numbers of devices; more than there are are predicted alone")
    parser.add_argument("--predict", default="1,2,4,8,16", help="numbers of devices to predict")
    parser.add_argument("--only", default="", help="rows whose key holds one of these, with semicolons between them")
    parser.add_argument("--batch", type=int, default=0, help="tokens or samples per subnet, other than the recipe's")
    parser.add_argument("--lengths", default="", help="padded lengths of sentences, other than the recipe's")
    parser.add_argument("--layers", type=int, default=0, help="of encoder and decoder, fewer than the recipe's")
    parser.add_argument("--micro-batches", default="1,4", help="M; the last is the recommended one")
    parser.add_argument(
        "--executors", default="", help="eager,graphs on GPUs, eager on CPU; or kept: graphs --activations keep"
    )
    parser.add_argument("--choice-only", default="delayed:8", help="`shared` of rows that wait for choices alone")
    parser.add_argument(
        "--chunks",
        default="2,4",
        help="stretches per worker under causal order, a row each; 6:layer releases by layer, 1:split splits backwards",
    )
    parser.add_argument("--loaders", type=int, default=1, help="of each worker; 0: it loads and records by itself")
    parser.add_argument("--in-flight", type=int, default=0)
    parser.add_argument(
        "--budget", type=float, default=0.0, help="GiB of each device, of rows that swap; 0: no such rows"
    )
    parser.add_argument("--clip", default="layer:1.0")
    parser.add_argument("--warm", type=int, default=48)
    parser.add_argument("--sample", type=int, default=32)
    parser.add_argument("--timed", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=540.0, help="no run is begun later")
    parser.add_argument("--run-seconds", type=int, default=240, help="a run that takes longer is ended, and has failed")
    parser.add_argument("--commit", help="of this code, where git cannot tell")
    given = parser.parse_args()
    most = max(int(n) for n in (*given.on.split(","), *given.predict.split(",")))
    if cut := [n for n in (given.warm, given.sample, given.timed) if n % most]:
        parser.error(f"--warm, --sample and --timed must not cut bulks of {most} subnets, one a device; got {cut}")
    return given


def recipe_of(given: argparse.Namespace, ms: tuple[int, ...]) -> Recipe:
    """With what was asked for; the timed part has no cuts."""
    recipe = read_recipe(given.recipe)
    data, space = dict(recipe.data_args), dict(recipe.space_args)
    if given.data:
        data["path"] = str(Path(given.data).resolve())
    if given.lengths:
        data["lengths"] = [int(n) for n in given.lengths.split(",")]
    if "rows_multiple" in data:  # the same tokens for every M
        data["rows_multiple"] = max(data["rows_multiple"], *ms)
    if given.layers:
        space["layers" if "layers" in space else "blocks"] = given.layers
    return replace(
        recipe, data_args=data, space_args=space, batch_size=given.batch or recipe.batch_size, clip=given.clip,
        checkpoint=replace(recipe.checkpoint, every=10**9), evaluate=replace(recipe.evaluate, every=0),
    )  # fmt: skip


def title_of(given: argparse.Namespace, recipe: Recipe) -> str:
    """Of the table."""
    parts = [Path(given.recipe).stem, f"{recipe.batch_size} a batch", recipe.precision, f"clip {recipe.clip}"]
    parts += [f"lengths {given.lengths}"] if given.lengths else []
    parts += [f"{given.layers} layers"] if given.layers else []
    return ", ".join(parts)


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
    ms = tuple(int(m) for m in given.micro_batches.split(","))
    cuda = given.device == "cuda"
    executors = tuple(given.executors.split(",")) if given.executors else ("eager", "graphs") if cuda else ("eager",)
    recipe, window = recipe_of(given, ms), Window(given.warm, given.sample, given.timed)
    there = in_child(torch.cuda.device_count) if cuda else 1 << 16
    result: dict[str, Any] = {
        "command": shlex.join(["python", "-m", "benchmarks.speed", *sys.argv[1:]]), "commit": given.commit or commit(),
        "fingerprint": in_child(lambda: fingerprint(given.device)), "window": asdict(window),
        "title": title_of(given, recipe), "rows": [], "left_out": [], "prices": {},
    }  # fmt: skip
    dryrun.BUDGET_S["cuda"] = WARM_S

    def keep() -> None:
        given.out.write_text(json.dumps(result, indent=1) + "\n")

    def say(what: str) -> None:
        print(f"{time.monotonic() - begin:6.1f} s  {what}", flush=True)

    first = made(recipe, Row(LAYERS, ms[-1]))
    say("recorded")
    chunks = tuple(map(Causal.of, given.chunks.split(",")))
    blocks = len(block_order(first.built))
    ways = Ways(ms, executors, chunks, given.in_flight, given.budget, given.choice_only, blocks, given.loaders)
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
        held = prices.get((row.micro_batches, row.executor))
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
