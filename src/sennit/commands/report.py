"""`sennit report`."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from tyro.conf import Positional, arg

from sennit.commands.arguments import Json
from sennit.commands.counted import counted_rows, subnets_of, took, workers_of
from sennit.commands.output import Output, figure
from sennit.commands.recorded import HASHES, Recorded
from sennit.errors import CheckpointError, UserError
from sennit.words import counted

if TYPE_CHECKING:
    from sennit.trace.page_data import Content

HELP = """Shows what a run did: how far it is, how fast, losses, evaluations, searches, hashes. Writes a page with its
timeline, why workers were idle, losses and accesses, which opens in a browser from disk.

    sennit report runs/first
    sennit report simulated.jsonl --html simulated.html"""

PAGE = "report.html"
"""Name of the page in a run folder."""

AVERAGED = 20
"""Subnets at the beginning and at the end whose losses are averaged: a single loss says little."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Options of `sennit report`."""

    folder: Annotated[Positional[Path], arg(metavar="RUN|TRACE")]
    """Folder of a run, or a file that `sennit simulate --trace` wrote."""
    html: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: RUN/report.html)")] = None
    """Where the page goes; for a trace, beside it by default. With --json none is written unless this names a place."""
    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Collect, write the page, and show."""
        if self.folder.is_file():
            self.of_trace(out)
        else:
            self.of_run(out)
        return 0

    def of_run(self, out: Output) -> None:
        from sennit.commands.report_page import idle_words, run_content, trace_of

        recorded = Recorded.open(self.folder)
        facts = facts_of(recorded)
        rows = _rows(facts)
        if self.html is not None or not self.json:
            trace = trace_of(recorded)
            rows.append(("idle", idle_words(trace)))
            content = run_content(recorded, facts, rows, trace)
            rows.append(("page", self.saved(out, content, recorded.path / PAGE)))
        out.result(facts, _table(str(recorded.path), rows))

    def of_trace(self, out: Output) -> None:
        from sennit.commands.report_page import idle_words, trace_content
        from sennit.trace.events import read_call, refuse_impossible
        from sennit.trace.idle import TICK, Idleness
        from sennit.trace.perfetto import MOST_SPANS

        trace = read_call(self.folder, MOST_SPANS)
        refuse_impossible(self.folder, trace)
        idleness = Idleness.of(trace)
        content: dict[str, Any] = {
            "trace": str(self.folder), "tasks": len(trace.spans) + trace.left_out, "workers": trace.workers,
            "makespan": idleness.makespan * TICK, "bubble": idleness.bubble, "idle": idleness.shares(),
            "facts": trace.facts,
        }  # fmt: skip
        rows = [
            ("tasks", f"{content['tasks']:,} on {trace.workers} workers"),
            ("makespan", f"{figure(content['makespan'])} {trace.facts.get('unit', '')}".rstrip()),
            ("idle", idle_words(trace)),
        ]
        if self.html is not None or not self.json:
            page = trace_content(self.folder, trace)
            rows.append(("page", self.saved(out, page, self.folder.with_name(f"{self.folder.name}.html"))))
        out.result(content, _table(str(self.folder), rows))

    def saved(self, out: Output, content: Content, default: Path) -> str:
        """Write the page and say where. A default place that cannot be written to is no reason to show nothing."""
        from sennit.commands.report_page import save

        try:
            save(self.html or default, content)
        except UserError as error:
            if self.html is not None:
                raise
            out.say(str(error))
            return ""
        return str(self.html or default)


def _table(title: str, rows: list[tuple[str, str]]) -> Table:
    """Rows without a text are left out."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        if text:
            table.add_row(name, text)
    return table


def facts_of(recorded: Recorded) -> dict[str, Any]:
    """All that the folder tells."""
    from sennit.runtime.calls import OF_CALL
    from sennit.runtime.checkpoint import folders

    run, result, done = recorded.run, recorded.result or {}, len(recorded.lines)
    losses = [] if recorded.virtual else recorded.losses
    placement, state = run["placement"], _state(recorded)
    if result and done < result["steps"] and not state.startswith("running"):
        raise UserError(
            f"{recorded.path / 'losses.jsonl'} has {done} subnets, result.json tells of {result['steps']}; put back "
            "what the run wrote, or remove result.json to see what is there"
        )
    some = min(AVERAGED, len(losses))
    return {
        "run": str(recorded.path),
        "recipe": recorded.name,
        "state": state,
        "steps": done,
        "of": run["steps"],
        "engine": run["engine"],
        "workers": placement["workers"],
        "replicas": placement.get("replicas", 1),
        "device": placement["device"],
        "hosts": run.get("hosts", 1),
        "budget": placement.get("budget", 0.0),
        "executor": placement.get("executor", "eager"),
        "activations": placement.get("activations", "recompute"),
        "gpus": result.get("gpus"),
        **{key: result.get(key) for key in ("subnets_per_s", "bubble", "prospect", "seconds", *HASHES)},
        "last_call": {key: result[key] for key in OF_CALL if key in result},
        "earlier": result.get("earlier", []),
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
        "comparable": run.get("comparable", True) and not recorded.virtual,
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
    from sennit.runtime.checkpoint import folders

    if recorded.result is None:
        found = folders(recorded.path / "checkpoints")
        if not found:
            return "ended early, with nothing to go on from: --resume starts from the beginning"
        return f"ended early; go on from subnet {int(found[-1].name)} with {_resume(recorded)}"
    if recorded.result["steps"] >= recorded.run["steps"]:
        return "finished"
    return f"stopped; go on with {_resume(recorded)}"


def _resume(recorded: Recorded) -> str:
    """What to add to the command; how far, where that was asked for beside the recipe."""
    steps = recorded.run["steps"]
    return f"--out {recorded.path} --resume" + (
        "" if steps == recorded.run["recipe"].get("steps") else f" --steps {steps}"
    )


def _searches(path: Path) -> list[dict[str, Any]]:
    from sennit.commands.search import FOLDER
    from sennit.explore.result import LOG, read_search

    found: list[dict[str, Any]] = []
    for log in sorted((path / FOLDER).glob(f"*/{LOG}")):
        try:
            result, _ = read_search(log.parent)
        except CheckpointError:
            raise
        except UserError:
            continue  # a search that was killed before its first line was whole
        best = {"arch": result.best.arch, "metrics": result.best.metrics} if result.trials else None
        found.append({"folder": log.parent.name, "evaluations": len(result.trials), "best": best})
    return found


def _placement(facts: dict[str, Any]) -> str:
    hosts = f" of {facts['hosts']} hosts" if facts["hosts"] > 1 else ""
    budget = f", budget {facts['budget']:g} GiB" if facts["budget"] else ""
    executor = f", executor {facts['executor']}" if facts["executor"] != "eager" else ""
    executor += ", activations kept" if facts["activations"] == "keep" else ""
    return f"{workers_of(facts)}{hosts} on {facts['device']}{budget}{executor}"


def _calls(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Figures of each call, and which subnets they are of."""
    rows: list[tuple[str, str]] = []
    last = facts["last_call"]
    if last.get("seconds") is not None:
        alone = not last.get("first") and last["steps"] == facts["steps"]
        ran = "" if alone else f"{subnets_of(last)}: " if last["steps"] > last["first"] else "no subnet was left: "
        rows += [("last call", f"{ran}{took(last)}"), *counted_rows(last)]
    for number, call in enumerate(facts["earlier"], 1):
        counted = "".join(f"; {name}: {text}" for name, text in counted_rows(call))
        rows.append((f"call {number}", f"{subnets_of(call)}: {took(call)}, {workers_of(call)}{counted}"))
    return rows


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """For people; an empty text leaves a row out."""
    from sennit.runtime.prospect import bounded, bubbles, gaining
    from sennit.runtime.transport import shared_gpus

    rows = [
        ("recipe", facts["recipe"]),
        ("state", f"{facts['state']}: {facts['steps']:,} of {counted(facts['of'], 'subnet')}"),
        ("placement", _placement(facts)),
        ("shared", shared_gpus(facts["workers"], facts["gpus"] or 0)),
    ]
    rows += _calls(facts)
    if (found := facts["prospect"]) is not None:
        delayed = found.get("with_messages")  # runs of earlier versions do not have it
        held = found["bubble"] if delayed is None else delayed
        better = ", ".join(f"{change} {bubble:.2f}" for change, bubble in gaining(found["levers"], held).items())
        bubble = bubbles(found["bubble"], delayed)
        bound = f"{bounded(found.get('in_flight'))} {found['bubble_at_bound']:.2f} there ({found['binds']})"
        rows += [
            (
                "simulated",
                f"{found['subnets']} subnets with what tasks took: bubble {bubble}; {bound}",
            ),
            ("messages", found.get("messages", "")),
            ("one change", better and f"from {held:.2f}: {better}"),
        ]
    if facts["averaged"]:
        n = facts["averaged"]
        means = f"means of {n}: {figure(facts['loss_first_mean'])}, {figure(facts['loss_last_mean'])}"
        rows.append(("loss", f"first {figure(facts['loss_first'])}, last {figure(facts['loss_last'])} ({means})"))
    last = facts["evaluations"][-1] if facts["evaluations"] else None
    if last and last["mean"] is not None:
        figures = f"{last['metric']} mean {figure(last['mean'])}, best {figure(last['best'])}"
        rows.append(("evaluation", f"after {counted(last['seq_id'] + 1, 'subnet')}: {figures}"))
    for search in facts["searches"]:
        best = search["best"]
        metrics = ", ".join(f"{name} {figure(value)}" for name, value in best["metrics"].items()) if best else ""
        rows.append(("search", f"{search['folder']}: {search['evaluations']} networks, best {metrics or 'none yet'}"))
    virtual = facts["device"] == "virtual"
    if virtual:
        rows.append(("trained", "nothing: devices were virtual"))
    else:
        rows.append(("checkpoints", ", ".join(str(int(name)) for name in facts["checkpoints"]) or "none yet"))
    rows += [(key.removesuffix("_sha256"), facts[key] or "") for key in HASHES]
    comparable = "" if facts["comparable"] or virtual else "no: the recipe says allow_nondeterministic = true"
    fingerprint = facts["fingerprint"]
    software = f"Python {fingerprint['python']}, torch {fingerprint['torch']}"
    hardware = f"{fingerprint['cpu']}{''.join(f', {name}' for name in fingerprint.get('gpus', []))}"
    return [*rows, ("comparable", comparable), ("made with", f"{software}, {hardware}")]
