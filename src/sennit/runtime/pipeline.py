"""The pipeline engine: sets up store, plan and workers for a recipe and a placement."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sennit.errors import UserError
from sennit.memory.store import HostStore
from sennit.memory.tally import Tally
from sennit.recipe import Placement, Recipe
from sennit.runtime.bells import Bells
from sennit.runtime.board import Board
from sennit.runtime.budget import refuse_small_budget
from sennit.runtime.forked import in_children
from sennit.runtime.launcher import Crew
from sennit.runtime.placing import known_costs, plans_of, waits_of, wandering
from sennit.runtime.scheduling import in_flight_of, name_of_policy
from sennit.runtime.segment import Segment, State
from sennit.runtime.share import REAL_PARTS, Parts, Share, low_water
from sennit.runtime.steppers import group_numbers, lone_steppers, readers_of
from sennit.runtime.transport import gpu_count
from sennit.space.draw_parts import cores
from sennit.space.initialise import build_on_meta, initialise
from sennit.supernet.samplers import Feed, Result
from sennit.supernet.sync import delayed_words
from sennit.trace.events import trace_beside
from sennit.trace.span_log import SpanLog

if TYPE_CHECKING:
    from sennit.runtime.hosts.hosts import Hosts
    from sennit.runtime.hosts.meeting import Meeting


class Pipeline:
    """Workers on one host over one store. Used as a context manager; leaving it ends all processes.

    Args:
        state: of a checkpoint, or None to initialise.
        start: first subnet to run.
        earlier: results of all subnets before `start`.
        logs: the access log.
        probing: keep the norms of gradients.
        parts: replaced ones, for tests that show what a wrong one does.
        meeting, hosts: of a run on several hosts.
    """

    def __init__(
        self, recipe: Recipe, placement: Placement, logs: Path, start: int = 0,
        state: State | None = None, earlier: list[Result] | None = None,
        on_result: Callable[[Result], None] = lambda result: None, inherited: list[int] | None = None,
        parts: Parts = REAL_PARTS, probing: bool = False, meeting: Meeting | None = None, hosts: Hosts | None = None,
    ) -> None:  # fmt: skip
        self.recipe, self.placement = recipe, placement
        built = recipe.built
        self.store = HostStore(
            built.recordings.skeleton, built.groups, built.always[0] | built.always[1], recipe.sharing,
            recipe.optimizer_name, recipe.optimizer_arguments, whole=placement.device == "cuda",
        )  # fmt: skip
        if state is None:
            space = build_on_meta(built.space_factory, recipe.space_args)
            initialise(space, recipe.seed, lambda name, like: self.store.home(name), in_children, cores())
        else:
            self.store.restore(state.weights, state.optimizer, state.versions)
        if placement.device == "cuda":
            self.store.populate(in_children, cores())
        built.modules  # noqa: B018 - made before the fork
        waits = waits_of(built, placement, self.store.home)
        self.plans = plans_of(built, placement, self.store.home, waits)
        if placement.budget:
            refuse_small_budget(built, self.plans, self.store, placement.budget_bytes)
        feed: Feed | None = None
        if built.sampler().learning and not (hosts and hosts.here):
            feed = built.feed()
            feed.replay(start, list(earlier or []))
        versions = self.store.versions()
        frozen = built.always[0] | built.always[1] if recipe.sharing.kind == "frozen" else frozenset[str]()
        bulk = recipe.sync_rule.bulk(placement.workers)
        in_flight = in_flight_of(recipe, placement)
        numbers = group_numbers(built)
        lone = lone_steppers(built, self.plans, numbers)
        share = Share(
            built=built, recipe=recipe, placement=placement, plans=self.plans, host=self.store,
            low=low_water(placement.workers, start), start=start, in_flight=in_flight,
            words={g.name: _word(versions[g.name]) for g in built.groups.all if g.kind == "buffers"},
            versions={g.name: versions[g.name][0] for g in built.groups.all if g.kind == "parameters"},
            parts=parts, board=Board(g.name for g in built.groups.all),
            bells=Bells(placement.workers, (g.name for g in built.groups.all)),
            costs=waits or known_costs(built), waits=waits, bulk=bulk, probing=probing,
            frozen=frozen, wandering=wandering(built, self.plans), hosts=hosts, numbers=numbers,
            lone=lone, readers=readers_of(built, self.plans, lone),
            gpus=gpu_count() if placement.device == "cuda" else 0,
        )  # fmt: skip
        if meeting is None:
            self.crew = Crew(share, logs, feed, on_result, inherited=inherited or [])
        else:
            from sennit.runtime.hosts.engine import crew_of

            self.crew = crew_of(meeting, share, logs, feed, on_result, inherited or [], state)
        self.workers = placement.workers
        self.started = False

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close(error is not None)

    def run_to(self, limit: int, interrupted: Callable[[], bool]) -> Segment:
        """Let the workers finish all subnets below `limit`; starts them if need be."""
        if not self.started:
            if self.placement.device == "cuda" and torch.cuda.is_initialized():
                raise UserError(
                    "this process has started CUDA already, so it cannot fork workers that use it; start the "
                    "pipeline before anything else touches the GPU, or in a process of its own"
                )
            self.started = True
            self.begin_trace()
            self.crew.start()
        return self.crew.run_to(limit, interrupted)

    def begin_trace(self) -> None:
        """The facts of this call, before the spans of its workers."""
        placement, share = self.placement, self.crew.share
        log = SpanLog(trace_beside(self.crew.logs))
        log.facts({
            "workers": placement.workers, "device": placement.device, "unit": "s", "first": share.start,
            "micro_batches": self.recipe.micro_batches, "in_flight": share.in_flight,
            "schedule": name_of_policy(self.recipe, placement), "sync": self.recipe.sync, "began": time.time(),
        })  # fmt: skip
        log.close()

    def close(self, failed: bool) -> None:
        """End the workers: kindly, or at once if something failed."""
        if failed:
            self.crew.kill()
        elif self.started:
            self.crew.end()
        self.crew.share.bells.close()

    def gradient_norms(self, seq_id: int) -> dict[str, float]:
        """Norm of each group's gradient, before clipping; forgotten once asked for."""
        return self.crew.norms.pop(seq_id, {})

    @property
    def busy(self) -> float:
        return self.crew.busy

    @property
    def counted(self) -> Tally | None:
        return self.crew.counted

    def weights(self) -> dict[str, Tensor]:
        return self.store.weights()

    def hashed_weights(self) -> dict[str, Tensor]:
        return self.store.hashed_weights()

    def optimizer_state(self) -> dict[str, Tensor]:
        return self.store.optimizer_state()

    def versions(self) -> dict[str, list[int]]:
        return self.store.versions()

    def figures(self) -> dict[str, Any]:
        """Of a run on several hosts, what went between them."""
        return self.crew.told()

    def cut_before(self, seq_id: int) -> bool:
        """Bring the store to the state before subnet `seq_id`, whose forward failed. False if others have gone on."""
        versions, lag = self.store.versions(), self.store.shared.lag
        for group in self.store.groups.all:
            if group.kind == "parameters" and self.store.version(group.name) >= seq_id:
                return False
            if group.name in self.store.delayed and versions[group.name] != delayed_words(seq_id, lag):
                return False
        return all(self.store.take_back(g.name, seq_id) for g in self.store.groups.all if g.kind == "buffers")


def _word(words: list[int]) -> tuple[int, int, int]:
    return words[0], words[1], words[2]
