"""`make demo`: from a search space to a trained, searched, exported network, with the commands that a user types.

    train on 2 workers ─▶ search ─────────────▶ same hash? ─▶ retrain ─▶ export ─▶ load in plain PyTorch
                       └▶ train on 1 worker ──▶

Prints what it did, what came out and how long it took. Exits 1 if the hashes differ or the accuracy that was
exported is not the one that plain PyTorch computes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from rich.console import Console

RECIPE = Path("recipes/digits.toml")
FOLDER = Path("runs/demo")
EVALUATIONS = 200
RETRAIN_STEPS = 320
SEEDS = 5
RANDOM_ARCHS = 20
HASHES = ("weights_sha256", "optimizer_sha256", "losses_sha256")

PLAIN_PYTORCH = """
import sys, torch
sys.modules["sennit"] = None  # whatever is installed: it cannot be imported here
torch.set_num_threads(1)
network = torch.export.load(sys.argv[1]).module()
x, y = torch.load(sys.argv[2])
with torch.no_grad():
    print(sum(int((network(part).argmax(1) == truth).sum()) for part, truth in zip(x, y)) / sum(map(len, y)))
"""


def main() -> int:
    """Run the demo in the root of the repository."""
    say = Console(width=110, highlight=False).print
    if not RECIPE.is_file():
        say(f"the demo runs in the root of the repository: there is no {RECIPE} here")
        return 2
    begin = time.time()
    shutil.rmtree(FOLDER, ignore_errors=True)
    two = _sennit(say, "train", str(RECIPE), "--workers", "2", "--out", str(FOLDER / "two"))
    again = ["train", str(RECIPE), "--workers", "1", "--out", str(FOLDER / "one")]
    with (FOLDER / "one.log").open("w") as log:
        beside = _started(again, log)
        try:
            best = _sennit(say, "search", str(FOLDER / "two"), "--budget", str(EVALUATIONS))["best"]
        except BaseException:
            beside.kill()
            raise
        say(f"  best of {EVALUATIONS}: {best['arch']}")
        say(f"  with the supernet's weights: held-out accuracy {best['metrics']['accuracy']:.4f}\n")
        say(f"[bold]sennit {' '.join(again)}[/bold]  (begun beside the search)")
        one = _finished(beside, again)
    equal = all(two[h] == one[h] for h in HASHES)
    shown = f"{two['weights_sha256'][:16]} on 2 workers, {one['weights_sha256'][:16]} on 1"
    say(f"  {two['steps']} subnets; weights {shown}:")
    say(f"  hashes of weights, optimizer and losses {'are equal' if equal else 'DIFFER'}\n")

    say(f"[bold]retrain[/bold] the best network with {SEEDS} seeds, and {RANDOM_ARCHS} random networks once each")
    found, others = _retrained(say, best["arch"])
    mean, median = statistics.mean(found), statistics.median(others)
    say(f"  test accuracy of the best network: {mean:.4f} (mean of {SEEDS}: {', '.join(f'{a:.4f}' for a in found)})")
    say(f"  test accuracy of random networks:  {median:.4f} (median of {RANDOM_ARCHS}, best {max(others):.4f})\n")

    exported = FOLDER / "network"
    made = _sennit(say, "export", str(FOLDER / "two"), "--to", str(exported))
    accuracy, rows = _in_plain_pytorch(exported)
    same = accuracy == made["metrics"]["accuracy"]
    reported = made["metrics"]["accuracy"]
    say(f"  {exported}: accuracy {reported!r} as exported, {accuracy!r} in plain PyTorch on {rows} images:")
    say(f"  {'the same bits' if same else 'NOT THE SAME'}\n")

    seconds = time.time() - begin
    say(f"[bold]done[/bold] in {seconds:.0f} s; look at `sennit report {FOLDER / 'two'}`")
    figures = {
        "equal_hashes": equal, "weights_sha256": two["weights_sha256"], "accuracy_retrained": mean,
        "accuracy_random_median": median, "export_equal": same, "seconds": seconds,
    }  # fmt: skip
    (FOLDER / "demo.json").write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if equal and same else 1


def _sennit(say: Any, *arguments: str) -> dict[str, Any]:
    """Run a sennit command as a user would, and return its JSON."""
    say(f"[bold]sennit {' '.join(arguments)}[/bold]")
    begin = time.time()
    made = _finished(_started(arguments), arguments)
    say(f"  {time.time() - begin:.0f} s")
    return made


def _started(arguments: Sequence[str], errors: IO[str] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sennit", *arguments, "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)


def _finished(process: subprocess.Popen[str], arguments: Sequence[str]) -> dict[str, Any]:
    printed, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"sennit {arguments[0]} failed with exit code {process.returncode}: {printed[:2000]}")
    return json.loads(printed)


def _retrained(say: Any, best: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Test accuracies of the best arch (one per seed) and of random archs, trained alone on train + valid."""
    from sennit.recipe import read_recipe
    from sennit.supernet.samplers import Uniform

    sampler = Uniform(read_recipe(RECIPE).built.recordings.structure, 1)
    jobs = [(best, seed) for seed in range(SEEDS)]
    jobs += [(sampler.draw(i, []), 0) for i in range(RANDOM_ARCHS)]
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count() or 1, 4)) as pool:
        accuracies = []
        for accuracy in pool.imap(_retrain, jobs, chunksize=1):
            accuracies.append(accuracy)
            if len(accuracies) % 5 == 0:
                say(f"  {len(accuracies)}/{len(jobs)} networks trained")
    return accuracies[:SEEDS], accuracies[SEEDS:]


def _retrain(job: tuple[dict[str, Any], int]) -> float:
    from sennit.explore.evaluate import Evaluation, evaluate
    from sennit.explore.retrain import retrain
    from sennit.recipe import load_recipe

    arch, seed = job
    recipe = load_recipe(RECIPE)
    trained = retrain(recipe, arch, seed=seed, steps=RETRAIN_STEPS, split="train+valid")
    rule = Evaluation(split="test", recalibrate=0)
    return float(evaluate(trained.recipe, trained.model, arch, rule)["accuracy"])


def _in_plain_pytorch(exported: Path) -> tuple[float, int]:
    """Held-out accuracy of the exported program, computed in a process without sennit."""
    import torch

    from sennit.explore.heldout import held_out
    from sennit.recipe import load_recipe

    recipe = load_recipe(RECIPE)
    rule = json.loads((exported / "arch.json").read_text())["evaluation"]
    dataset = recipe.built.dataset(rule["split"])
    batches = held_out(dataset, rule["batch_size"], rule["samples"], recipe.seed, torch.device("cpu"))
    data = FOLDER / "held_out.pt"
    torch.save(([x for x, _ in batches], [y for _, y in batches]), data)
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_PYTORCH, str(exported / "network.pt2"), str(data)],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout), sum(len(y) for _, y in batches)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(f"the demo was stopped; what there is lies in {FOLDER}. It begins anew the next time")
