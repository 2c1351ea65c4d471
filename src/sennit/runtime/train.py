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
import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sennit.errors import HaltError, Interrupted, NanLossError, RunError, SpaceError, SubnetError, UserError
from sennit.plan.replicated import spare_words
from sennit.recipe import use_recipe
from sennit.runtime import checkpoint
from sennit.runtime.calls import earlier_calls, graphs_of
from sennit.runtime.forked import in_child
from sennit.runtime.going_on import refuse_other_placement, refuse_torn
from sennit.runtime.pipeline import Pipeline
from sennit.runtime.plain import PlainEngine
from sennit.runtime.refusal import told
from sennit.runtime.refuse import check
from sennit.runtime.request import Progress, Request
from sennit.runtime.runfolder import RUNS, LossLog, RunFolder, fingerprint
from sennit.runtime.scheduling import settled
from sennit.runtime.segment import Engine, State
from sennit.supernet.hashes import hash_tensors, losses_hash
from sennit.supernet.samplers import Result
from sennit.trace.access import forget_from
from sennit.trace.events import Trace, read_call
from sennit.trace.perfetto import MOST_SPANS, write_perfetto

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
    end = request.recipe.steps if request.steps is None else request.steps
    with RunFolder.create(request.out, request.resume, request.name) as folder:
        run: _Run | None = None
        try:
            run = _Run(request, folder, end, tell)
            return run.run()
        except UserError:
            _remove_if_new(folder)
            raise
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt("interrupted" if run is None else run.given_up()) from error


class _Run:
    """One run in its folder."""

    def __init__(self, request: Request, folder: RunFolder, end: int, tell: Callable[[Progress], None]) -> None:
        self.request, self.recipe, self.folder, self.end, self.tell = request, request.recipe, folder, end, tell
        self.identity = self.recipe.identity()
        self.virtual = request.placement.device == "virtual"
        self.comparable = not self.virtual and not self.recipe.allow_nondeterministic
        self.bulk = self.recipe.sync_rule.bulk(request.placement.workers)
        self.fingerprint = in_child(lambda: fingerprint(request.placement.device))  # it starts CUDA
        self.plain_recipe = self.recipe.to_dict()
        if (meeting := request.meeting) is not None:
            self.comparable &= not meeting.differences(self.fingerprint)
        self.start, self.state = self.beginning()
        self.losses, self.earlier = self.past()
        self.calls = earlier_calls(folder.path / "result.json", self.start)
        self.log = LossLog(folder.losses)
        self.evaluation: dict[str, Any] = {}
        self.seconds = 0.0
        self.asked_to_stop = False
        self.unprobed: list[Result] = []

    def beginning(self) -> tuple[int, State | None]:
        """Where to start, with the logs cut back to it."""
        found = checkpoint.newest(self.folder.checkpoints, self.identity, self.plain_recipe)
        if found is None:
            self.folder.rewind({"losses.jsonl": 0, "access.jsonl": 0, "trace.jsonl": 0})
            return 0, None
        if found.seq_id > self.end:
            raise UserError(
                f"{self.folder.path} has {found.seq_id} finished subnets, more than --steps {self.end}; ask for more"
            )
        if changed := self.recipe.built.changed_sources(found.state.get("sources", {})):
            raise UserError(
                f"{', '.join(changed)}: the code has changed since the checkpoint at subnet {found.seq_id}, so going "
                "on would give what no one run gives. Put the old code back, or start a new run with another --out"
            )
        refuse_torn(self.recipe, found)
        refuse_other_placement(self.recipe, self.folder, self.request.placement)
        self.folder.rewind({"trace.jsonl": 0, **found.state["lengths"]})  # 0: of a version that made no traces
        return found.seq_id, State(found.weights, found.optimizer, found.state["versions"])

    def past(self) -> tuple[list[float], list[Result]]:
        results: list[Result] = []
        if self.start:
            for line in self.folder.losses.read_text(encoding="utf-8").splitlines():
                held = json.loads(line)
                if "loss" in held:
                    results.append(Result(held["seq_id"], held["arch"], held["loss"]))
        return [r.loss for r in results], results

    def run(self) -> dict[str, Any]:
        began = time.time()
        self.write_run()
        note = f"run folder {self.folder.path}"
        if self.request.resume:
            note += f", resumed after {self.start} subnets" if self.start else ", where there is nothing to resume"
        self.tell(Progress("start", self.start, self.end, note=note))
        if spare := spare_words(self.request.placement.replicas, self.recipe.micro_batches):
            self.tell(Progress("note", self.start, self.end, note=spare))
        try:
            engine = self.make_engine()
        except BaseException:
            self.log.close()
            raise
        failed = True
        try:
            with self.interruptible():
                self.cuts(engine)
            result = self.result(engine, began)
            failed = False
        finally:
            engine.close(failed)
            self.log.close()
        trace = self.traced()
        if trace is not None and (graphs := graphs_of(trace)) is not None:
            result["graphs"] = graphs
        self.folder.write_json("result.json", result)
        if trace is not None:
            write_perfetto(self.folder.trace, trace)
        if self.asked_to_stop and len(self.losses) < self.end:
            raise Interrupted(
                f"stopped after {len(self.losses)} of {self.end} subnets; everything is in "
                f"{self.folder.path}/checkpoints/{len(self.losses):08d}. Go on with --out {self.folder.path} --resume"
            )
        return {**result, "out": str(self.folder.path)}

    def traced(self) -> Trace | None:
        """The trace of this call. No weight depends on it, so a damaged one ends nothing."""
        if not self.folder.spans.exists():
            return None
        try:
            return read_call(self.folder.spans, MOST_SPANS)
        except UserError as error:
            note = f"{error}. Nothing that was trained depends on it; {self.folder.trace.name} is not written"
            self.tell(Progress("note", len(self.losses), self.end, note=note))
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
        while done < self.end and not self.asked_to_stop:
            before, limit = done, self.next_cut(done)
            try:
                segment = engine.run_to(limit, lambda: self.asked_to_stop)
            except SubnetError as error:
                raise self.after_refusal(engine, error) from error
            except HaltError as error:
                raise self.after_halt(engine, error) from error
            except RunError as error:
                raise RunError(f"{error}\n{self.kept()}") from error
            except UserError as error:
                if not self.losses:
                    raise
                raise UserError(f"{error}\nstopped after {len(self.losses)} subnets; {self.kept()}") from error
            if done == self.start and (why := engine.figures().get("pinning_refused")):
                self.tell(Progress("note", len(self.losses), self.end, note=UNPINNED.format(why=why)))
            done = segment.limit
            self.seconds += segment.seconds
            self.probe(engine, done)
            if (every := self.recipe.evaluate.every) and not self.virtual and done // every > before // every:
                self.evaluate(engine, done)
            if not self.request.save or self.virtual:
                continue
            every = self.recipe.checkpoint.every
            if done // every > before // every or done >= self.end or self.asked_to_stop:
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
        if self.request.probes:
            self.unprobed.append(result)
        self.tell(Progress("subnet", len(self.losses), self.end, result.loss, self.evaluation))

    def probe(self, engine: Engine, done: int) -> None:
        """Show the finished subnets to the probes: copies of facts, after the fact."""
        while self.unprobed and self.unprobed[0].seq_id < done:
            result = self.unprobed.pop(0)
            event = {
                "seq_id": result.seq_id, "arch": dict(result.arch), "loss": result.loss,
                "gradient_norms": engine.gradient_norms(result.seq_id),
                "rank": sum(loss < result.loss for loss in self.losses[: result.seq_id]),
            }  # fmt: skip
            for probe in self.request.probes:
                try:
                    probe(event)
                except Exception as error:
                    raise UserError(
                        f"the probe {getattr(probe, '__name__', probe)!r} failed at subnet {result.seq_id}: "
                        f"{type(error).__name__}: {error}"
                    ) from error

    def save(self, engine: Engine, done: int) -> None:
        lengths = {
            "losses.jsonl": self.log.sync(), "access.jsonl": _size(self.folder.access),
            "trace.jsonl": _size(self.folder.spans),
        }  # fmt: skip
        state = {
            "identity": self.identity, "recipe": self.plain_recipe, "versions": engine.versions(), "lengths": lengths,
            "fingerprint": self.fingerprint, "losses": self.losses, "sources": self.recipe.built.sources,
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

    # -- endings

    def after_refusal(self, engine: Engine, error: SubnetError) -> SpaceError:
        y = error.seq_id // self.bulk * self.bulk
        if not y or self.virtual:
            return told(error, "nothing had been trained yet" if not y else "--device virtual trains nothing")
        if self.bulk > 1 or len(self.losses) != y or not engine.cut_before(y):
            return told(error, self.kept())  # within a bulk, buffers have moved
        forget_from(self.folder.access, y)
        self.save(engine, y)
        return told(error, f"the state before it is kept in {self.folder.path}/checkpoints/{y:08d}")

    def after_halt(self, engine: Engine, error: HaltError) -> HaltError:
        y = error.seq_id
        if len(self.losses) == y and not y % self.bulk and engine.cut_before(y):
            forget_from(self.folder.access, y)
            self.save(engine, y)
            kept = f"the state before subnet {y} is kept in {self.folder.path}/checkpoints/{y:08d}"
        else:
            kept = f"later subnets had gone on already, so the cut before it could not be formed; {self.kept()}"
        if isinstance(error, NanLossError):
            return NanLossError(f'{error}; {kept}. Lower lr, or set clip = "global:1.0"', y, error.micro_batch)
        return type(error)(f"{error}; {kept}", y)

    def kept(self) -> str:
        found = checkpoint.folders(self.folder.checkpoints)
        if not found and not self.losses:
            return "nothing had been trained yet"
        if not found:
            return (
                f"there is no checkpoint yet, so --out {self.folder.path} --resume starts from the beginning; lower "
                "[checkpoint] every to have one earlier"
            )
        return f"the last checkpoint is {found[-1]}; go on with --out {self.folder.path} --resume"

    def given_up(self) -> str:
        """What a run says that did not wait for the subnets in flight."""
        return f"ended at once, after {len(self.losses)} of {self.end} subnets; {self.kept()}"

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM ask to stop at the next cut that can be had; a second one ends at once."""

        def ask(number: int, frame: Any) -> None:
            if self.asked_to_stop:
                raise KeyboardInterrupt
            self.asked_to_stop = True
            self.tell(Progress("note", len(self.losses), self.end, note="stopping: finishing subnets in flight"))

        before: dict[int, Any] = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, ask)
        except ValueError:  # not the main thread: whoever runs us handles signals
            pass
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def write_run(self) -> None:
        built = self.recipe.built
        self.folder.write_json(
            "run.json",
            {
                "recipe": self.plain_recipe, "recipe_name": self.request.name, "base": self.recipe.base,
                "identity": self.identity, "placement": asdict(self.request.placement), "engine": self.request.engine,
                "offload": self.request.offload, "fingerprint": self.fingerprint,
                "comparable": self.comparable, "steps": self.end,
                "hosts": 1 if self.request.meeting is None else self.request.meeting.count,
                "always_shared": sorted(built.always[0]), "always_shared_buffers": sorted(built.always[1]),
            },
        )  # fmt: skip

    def result(self, engine: Engine, began: float) -> dict[str, Any]:
        ran = len(self.losses) - self.start
        busy = engine.busy
        result: dict[str, Any] = {
            "steps": len(self.losses),
            "first": self.start,
            "weights_sha256": None if self.virtual else hash_tensors(engine.hashed_weights()),
            "optimizer_sha256": None if self.virtual else hash_tensors(engine.optimizer_state()),
            "losses_sha256": None if self.virtual else losses_hash(self.losses),
            "subnets_per_s": ran / self.seconds if self.seconds else None,
            "bubble": None if self.request.engine == "plain" or not self.seconds
            else 1.0 - busy / (engine.workers * self.seconds),
            "workers": engine.workers,
            "replicas": self.request.placement.replicas,
            "engine": self.request.engine,
            "seconds": time.time() - began,
            "last_loss": self.losses[-1] if self.losses and not self.virtual else None,
            "comparable": self.comparable,
        }  # fmt: skip
        if self.request.placement.device == "cuda":
            result["gpus"] = min(engine.workers, len(self.fingerprint["gpus"]))
        result.update(engine.figures())
        if self.evaluation:
            result["evaluation"] = {k: self.evaluation[k] for k in ("mean", "best") if k in self.evaluation}
        if (counted := engine.counted) is not None:
            result["slots"] = {**asdict(counted), **counted.rates()}
        result["earlier"] = self.calls
        return result


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
