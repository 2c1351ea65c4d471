"""`sennit report`."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from tyro.conf import Positional, arg

from sennit.commands.arguments import Json
from sennit.commands.output import Output, figure
from sennit.commands.recorded import HASHES, Recorded
from sennit.errors import UserError

HELP = """Shows what a run did: how far it is, how fast, losses, evaluations, searches, hashes.

    sennit report runs/first"""

AVERAGED = 20
"""Subnets at the beginning and at the end whose losses are averaged: a single loss says little."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Options of `sennit report`."""

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of a run."""
    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Collect and show."""
        recorded = Recorded.open(self.folder)
        facts = facts_of(recorded)
        table = Table(title=str(recorded.path), title_justify="left", show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in _rows(facts):
            if text:
                table.add_row(name, text)
        out.result(facts, table)
        return 0


def facts_of(recorded: Recorded) -> dict[str, Any]:
    """All that the folder tells."""
    from sennit.runtime.checkpoint import folders

    run, result, losses = recorded.run, recorded.result or {}, recorded.losses
    placement = run["placement"]
    some = min(AVERAGED, len(losses))
    return {
        "run": str(recorded.path),
        "recipe": recorded.name,
        "state": _state(recorded),
        "steps": len(losses),
        "of": run["steps"],
        "engine": run["engine"],
        "workers": placement["workers"],
        "device": placement["device"],
        **{key: result.get(key) for key in ("subnets_per_s", "bubble", "seconds", *HASHES)},
        "loss_first": losses[0] if losses else None,
        "loss_last": losses[-1] if losses else None,
        "loss_first_mean": sum(losses[:some]) / some if some else None,
        "loss_last_mean": sum(losses[-some:]) / some if some else None,
        "averaged": some,
        "evaluations": [
            {key: evaluation.get(key) for key in ("seq_id", "metric", "mean", "best")}
            for evaluation in recorded.evaluations
        ],
        "checkpoints": [folder.name for folder in folders(recorded.path / "checkpoints")],
        "searches": _searches(recorded.path),
        "comparable": run.get("comparable", True),
        "fingerprint": run["fingerprint"],
    }


def _state(recorded: Recorded) -> str:
    try:
        with (recorded.path / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return f"running (process {(recorded.path / 'lock').read_text().strip()})"
    except OSError:
        pass
    if recorded.result is None:
        return "ended early; go on with --resume"
    return "finished" if recorded.result["steps"] >= recorded.run["steps"] else "stopped; go on with --resume"


def _searches(path: Path) -> list[dict[str, Any]]:
    from sennit.commands.search import FOLDER
    from sennit.explore.result import LOG, read_search

    found: list[dict[str, Any]] = []
    for log in sorted((path / FOLDER).glob(f"*/{LOG}")):
        try:
            result, _ = read_search(log.parent)
        except UserError:
            continue  # a search that was killed before its first line was whole
        best = {"arch": result.best.arch, "metrics": result.best.metrics} if result.trials else None
        found.append({"folder": log.parent.name, "evaluations": len(result.trials), "best": best})
    return found


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """For people; an empty text leaves a row out."""
    workers = f"{facts['workers']} worker{'s' if facts['workers'] > 1 else ''}"
    placement = "plain loop" if facts["engine"] == "plain" else workers
    rows = [
        ("recipe", facts["recipe"]),
        ("state", f"{facts['state']}: {facts['steps']} of {facts['of']} subnets"),
        ("placement", f"{placement} on {facts['device']}"),
    ]
    if facts["seconds"] is not None:
        rate = "" if facts["subnets_per_s"] is None else f", {facts['subnets_per_s']:.3g} subnets/s"
        bubble = "" if facts["bubble"] is None else f", bubble {facts['bubble']:.2f}"
        rows.append(("last call", f"{facts['seconds']:.1f} s{rate}{bubble}"))
    if facts["steps"]:
        n = facts["averaged"]
        means = f"means of {n}: {figure(facts['loss_first_mean'])}, {figure(facts['loss_last_mean'])}"
        rows.append(("loss", f"first {figure(facts['loss_first'])}, last {figure(facts['loss_last'])} ({means})"))
    last = facts["evaluations"][-1] if facts["evaluations"] else None
    if last and last["mean"] is not None:
        figures = f"{last['metric']} mean {figure(last['mean'])}, best {figure(last['best'])}"
        rows.append(("evaluation", f"after {last['seq_id'] + 1} subnets: {figures}"))
    for search in facts["searches"]:
        best = search["best"]
        metrics = ", ".join(f"{name} {figure(value)}" for name, value in best["metrics"].items()) if best else ""
        rows.append(("search", f"{search['folder']}: {search['evaluations']} networks, best {metrics or 'none yet'}"))
    rows.append(("checkpoints", ", ".join(str(int(name)) for name in facts["checkpoints"]) or "none yet"))
    rows += [(key.removesuffix("_sha256"), facts[key] or "") for key in HASHES]
    comparable = "" if facts["comparable"] else "no: the recipe says allow_nondeterministic = true"
    fingerprint = facts["fingerprint"]
    software = f"Python {fingerprint['python']}, torch {fingerprint['torch']}"
    hardware = f"{fingerprint['cpu']}{''.join(f', {name}' for name in fingerprint.get('gpus', []))}"
    return [*rows, ("comparable", comparable), ("made with", f"{software}, {hardware}")]
