"""What the command is asked for: its options, the recipe as they change it, and the rows that there are."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.speed import __doc__ as about
from benchmarks.speed.rows import Causal, Ways

from sennit.recipe import Recipe, read_recipe


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Those of this process, or of another command."""
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
    given = parser.parse_args(arguments)
    most = max(int(n) for n in (*given.on.split(","), *given.predict.split(",")))
    if cut := [n for n in (given.warm, given.sample, given.timed) if n % most]:
        parser.error(f"--warm, --sample and --timed must not cut bulks of {most} subnets, one a device; got {cut}")
    given.executors = given.executors or ("eager,graphs" if given.device == "cuda" else "eager")
    return given


def recipe_of(given: argparse.Namespace) -> Recipe:
    """With what was asked for; the timed part has no cuts."""
    recipe = read_recipe(given.recipe)
    data, space = dict(recipe.data_args), dict(recipe.space_args)
    if given.data:
        data["path"] = str(Path(given.data).resolve())
    if given.lengths:
        data["lengths"] = [int(n) for n in given.lengths.split(",")]
    if "rows_multiple" in data:  # the same tokens for every M
        data["rows_multiple"] = max(data["rows_multiple"], *micro_batches_of(given))
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


def ways_of(given: argparse.Namespace, blocks: int) -> Ways:
    """Which rows there are."""
    return Ways(
        micro_batches_of(given), tuple(given.executors.split(",")), tuple(map(Causal.of, given.chunks.split(","))),
        given.in_flight, given.budget, given.choice_only, blocks, given.loaders,
    )  # fmt: skip


def micro_batches_of(given: argparse.Namespace) -> tuple[int, ...]:
    """M of the rows; the last is the recommended one."""
    return tuple(int(m) for m in given.micro_batches.split(","))
