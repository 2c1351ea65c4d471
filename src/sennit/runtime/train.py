"""`train`: a recipe, a placement and a run folder, from cut to cut.

    check everything ─▶ take the folder ─▶ newest checkpoint or initial state
                                               │
          ┌────────────────────────────────────┘
          ▼
    run to the next cut ─▶ evaluate ─▶ checkpoint ─▶ ... ─▶ result.json

Bad input is refused before the folder is made. Whatever ends a run early says what it leaves behind.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sennit.errors import HaltError, Interrupted, RunError, SubnetError, UserError
from sennit.plan.replicated import spare_words
from sennit.recipe import use_recipe
from sennit.runtime import checkpoint
from sennit.runtime.beginning import beginning, past
from sennit.runtime.calls import earlier_calls, graphs_of, loading_of
from sennit.runtime.cores import Cores, crowded_words
from sennit.runtime.early_end import EarlyEnd
from sennit.runtime.facts import Facts
from sennit.runtime.loss_log import LossLog
from sennit.runtime.pipeline import Pipeline
from sennit.runtime.plain import PlainEngine
from sennit.runtime.probing import Probing
from sennit.runtime.refuse import check
from sennit.runtime.request import Progress, Request
from sennit.runtime.runfolder import RUNS, RunFolder
from sennit.runtime.scheduling import settled
from sennit.runtime.segment import Engine
from sennit.runtime.stop_request import StopRequest
from sennit.runtime.summary import summary
from sennit.supernet.samplers import Result
from sennit.trace.events import Trace, read_call
from sennit.trace.perfetto import MOST_SPANS, write_perfetto
from sennit.words import counted

UNPINNED = (
    "the host's memory could not be pinned ({why}): the host waits for each copy to and from the device. Same bits, "
    "less speed"
)


def train(request: Request, tell: Callable[[Progress], None] = lambda progress: None) -> dict[str, Any]:
    """Run, and return what `result.json` holds (with `out`, the folder).

    Raises:
        UserError: bad input; nothing was changed.
        HaltError, RunError, Interrupted: the run ended early; the message says what was kept.
    """
    use_recipe(request.recipe)
    check(request)
    if request.meeting is not None:
        request.meeting.agree(request.recipe.built.sources)
    with RunFolder.create(request.out, request.resume, request.name) as folder:
        run: _Run | None = None
        try:
            run = _Run(request, folder, tell)
            return run.run()
        except UserError:
            _remove_if_new(folder)
            raise
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt("interrupted" if run is None else run.early_end.given_up()) from error


class _Run:
    """One run in its folder."""

    def __init__(self, request: Request, folder: RunFolder, tell: Callable[[Progress], None]) -> None:
        self.request, self.recipe, self.folder, self.tell = request, request.recipe, folder, tell
        self.facts = Facts.of(request)
        self.end, self.virtual = self.facts.end, self.facts.virtual
        self.bulk = self.recipe.sync_rule.bulk(request.placement.workers)
        self.start, self.state = beginning(self.facts, folder)
        self.earlier = past(folder, self.start)
        self.losses = [result.loss for result in self.earlier]
        self.calls = earlier_calls(folder.path / "result.json", self.start)
        self.log = LossLog(folder.losses)
        self.evaluation: dict[str, Any] = {}
        self.seconds = 0.0
        self.stop = StopRequest(lambda: self.note("stopping: finishing subnets in flight"))
        self.probing = Probing(request.probes, self.losses)
        self.early_end = EarlyEnd(self.facts, folder, self.losses, self.save)

    def run(self) -> dict[str, Any]:
        began = time.time()
        self.folder.write_json("run.json", self.facts.run_json())
        note = f"run folder {self.folder.path}"
        if self.request.resume:
            resumed = f"resumed after {counted(self.start, 'subnet')}"
            note += f", {resumed if self.start else 'where there is nothing to resume'}"
        self.tell(Progress("start", self.start, self.end, note=note))
        if spare := spare_words(self.request.placement.replicas, self.recipe.micro_batches):
            self.note(spare)
        if crowded := self.crowded():
            self.note(crowded)
        try:
            engine = self.make_engine()
        except BaseException:
            self.log.close()
            raise
        failed = True
        try:
            with self.stop.heard():
                self.cuts(engine)
            result = summary(self.facts, engine, self.losses, self.start, self.seconds, began, self.evaluation)
            result["earlier"] = self.calls
            failed = False
        finally:
            engine.close(failed)
            self.log.close()
        trace = self.traced()
        own = trace if len(self.losses) > self.start else None  # else it is that of an earlier call
        if own is not None and (graphs := graphs_of(own)) is not None:
            result["graphs"] = graphs
        if own is not None and (loading := loading_of(own)) is not None:
            result["loading_s"] = loading
        self.folder.write_json("result.json", result)
        if trace is not None:
            write_perfetto(self.folder.trace, trace)
        if self.stop.asked and len(self.losses) < self.end:
            raise Interrupted(
                f"stopped after {len(self.losses):,} of {counted(self.end, 'subnet')}; everything is in "
                f"{self.folder.path}/checkpoints/{len(self.losses):08d}. Go on with "
                f"{self.facts.resume(self.folder.path)}"
            )
        return {**result, "out": str(self.folder.path)}

    def crowded(self) -> str:
        """What to say of more workers than cores; nothing where they compute elsewhere."""
        placement, meeting = self.request.placement, self.request.meeting
        if placement.device != "cpu":
            return ""
        hosts, here = 1, placement.workers
        if meeting is not None:
            hosts, here = meeting.count, len(meeting.hosts(placement.workers).on(0))
        return crowded_words(here, placement.replicas, hosts, Cores.usable())

    def traced(self) -> Trace | None:
        """The trace of this call. No weight depends on it, so a damaged one ends nothing."""
        if not self.folder.spans.exists():
            return None
        try:
            return read_call(self.folder.spans, MOST_SPANS)
        except UserError as error:
            self.note(f"{error}. Nothing that was trained depends on it; {self.folder.trace.name} is not written")
            return None

    def make_engine(self) -> Engine:
        request, placement = self.request, settled(self.recipe, self.request.placement)
        if request.engine == "plain":
            return PlainEngine(
                self.recipe, placement.device, self.folder.access, self.start, self.state, self.earlier,
                self.on_result, request.offload, bool(request.probes),
            )  # fmt: skip
        if self.recipe.built.sampler().learning:
            limit = self.recipe.feedback_lag
            placement = replace(placement, in_flight=min(placement.in_flight or limit, limit))
        return Pipeline(
            self.recipe, placement, self.folder.access, self.start, self.state, self.earlier, self.on_result,
            self.folder.handles(), request.parts, bool(request.probes), request.meeting,
            None if request.meeting is None else request.meeting.hosts(placement.workers),
        )  # fmt: skip

    # -- from cut to cut

    def cuts(self, engine: Engine) -> None:
        done = self.start
        while done < self.end and not self.stop.asked:
            before, limit = done, self.next_cut(done)
            try:
                segment = engine.run_to(limit, lambda: self.stop.asked)
            except SubnetError as error:
                raise self.early_end.after_refusal(engine, error) from error
            except HaltError as error:
                raise self.early_end.after_halt(engine, error) from error
            except RunError as error:
                raise RunError(f"{error}\n{self.early_end.kept()}") from error
            except UserError as error:
                if not self.losses:
                    raise
                kept = self.early_end.kept()
                raise UserError(f"{error}\nstopped after {counted(len(self.losses), 'subnet')}; {kept}") from error
            if done == self.start and (why := engine.figures().get("pinning_refused")):
                self.note(UNPINNED.format(why=why))
            done = segment.limit
            self.seconds += segment.seconds
            self.probing.show(engine, done)
            if (every := self.recipe.evaluate.every) and not self.virtual and done // every > before // every:
                self.evaluate(engine, done)
            if not self.request.save or self.virtual:
                continue
            every = self.recipe.checkpoint.every
            if done // every > before // every or done >= self.end or self.stop.asked:
                self.save(engine, done)

    def next_cut(self, done: int) -> int:
        """Where to stop next; under `bulk:K` between two bulks."""
        steps = [self.recipe.checkpoint.every]
        if self.recipe.evaluate.every:
            steps.append(self.recipe.evaluate.every)
        wanted = min((done // every + 1) * every for every in steps)
        return min(self.end, -(-wanted // self.bulk) * self.bulk)

    def on_result(self, result: Result) -> None:
        if self.virtual:  # nothing was computed
            result = replace(result, loss=math.nan)
        self.losses.append(result.loss)
        self.log.write(result.seq_id, result.arch, result.loss)
        self.probing.add(result)
        self.tell(Progress("subnet", len(self.losses), self.end, result.loss, self.evaluation))

    def save(self, engine: Engine, done: int) -> None:
        lengths = {
            "losses.jsonl": self.log.sync(), "access.jsonl": _size(self.folder.access),
            "trace.jsonl": _size(self.folder.spans),
        }  # fmt: skip
        state = {
            "identity": self.facts.identity, "recipe": self.facts.recipe, "versions": engine.versions(),
            "lengths": lengths, "fingerprint": self.facts.fingerprint, "losses": self.losses,
            "sources": self.recipe.built.sources,
        }  # fmt: skip
        checkpoint.write(
            self.folder.checkpoints,
            done,
            engine.weights(),
            engine.optimizer_state(),
            state,
            self.recipe.checkpoint.keep,
        )
        self.tell(Progress("checkpoint", done, self.end, self.losses[-1] if self.losses else math.nan, self.evaluation))

    def evaluate(self, engine: Engine, done: int) -> None:
        from sennit.explore.during import evaluate_now
        from sennit.runtime.load import model_of

        model = model_of(self.recipe, engine.weights(), engine.optimizer_state(), done)
        self.evaluation = evaluate_now(self.recipe, model, done - 1)
        self.log.note({"seq_id": done - 1, "evaluation": self.evaluation})
        self.tell(Progress("evaluation", done, self.end, self.losses[-1], self.evaluation))

    def note(self, text: str) -> None:
        self.tell(Progress("note", len(self.losses), self.end, note=text))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _remove_if_new(folder: RunFolder) -> None:
    """A run that was refused leaves no folder behind."""
    trained = folder.losses.exists() and folder.losses.stat().st_size > 0
    if folder.resumed or trained or checkpoint.folders(folder.checkpoints):
        return
    for path in folder.path.iterdir():
        if path.is_file():
            path.unlink()
    with contextlib.suppress(OSError):
        folder.checkpoints.rmdir()
    with contextlib.suppress(OSError):
        folder.path.rmdir()
        if folder.path.parent == RUNS:
            RUNS.rmdir()  # unless there are other runs
