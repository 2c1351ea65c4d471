"""`sennit simulate`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from rich.table import Table
from tyro.conf import arg

from sennit.commands.arguments import Json
from sennit.commands.output import Output
from sennit.errors import UserError
from sennit.trace.span import Span
from sennit.words import counted

if TYPE_CHECKING:
    from sennit.schedule.policy import Release
    from sennit.simulate.cluster import Cluster
    from sennit.simulate.space_run import SpaceRun

HELP = """Simulates a schedule on a space of choice blocks, or on a recipe before it runs: the bubble (the part of
device time that is waited), the bound that no order of its tasks can beat with as many subnets in flight, what binds,
and what each lever would bring. Needs no GPU.

    sennit simulate --space nlp.c1 --workers 8 -M 8 --split --chunks 6 --in-flight 4
    sennit simulate --recipe digits --waits digits.profile.json --workers 4"""


LEAST = 0.0005
"""Of a bubble: what is no gain."""


@dataclass(frozen=True, kw_only=True)
class Simulate:
    """Options of `sennit simulate`."""

    space: Annotated[str, arg(metavar="NAME", help_behavior_hint="")] = ""
    """nlp.c0 to nlp.c3 or cv.c1 to cv.c3: the spaces of the NASPipe paper, as their choice blocks alone; or blocks x
    candidates, such as 64x24."""
    recipe: Annotated[Path | None, arg(metavar="RECIPE", help_behavior_hint="")] = None
    """Instead of --space: a recipe file, or the name of one in ./recipes. Its own subnets, cut as in a run."""
    waits: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """With --recipe: what its layers take, from `sennit profile`; or a file of seconds per block."""
    plan: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: balanced)")] = None
    """With --recipe: a file of cuts, or a profile, by which every subnet is cut."""
    workers: Annotated[int, arg(metavar="N")] = 8
    """Workers."""
    replicas: Annotated[int, arg(metavar="R")] = 1
    """Of these, how many share a stage and take different micro-batches of it; N is a multiple of R."""
    schedule: Annotated[str, arg(metavar="NAME", help_behavior_hint="(default: csp)")] = ""
    """csp: ours, by layer. naspipe: the paper's order, by stage. And gpipe, 1f1b, interleaved, zero-bubble, zbv,
    chimera, pipedream, tap; file.py:Name, an order of your own; or a .csv file with a row of actions per worker."""
    sync: Annotated[str, arg(metavar="RULE", help_behavior_hint="(default: the schedule's)")] = ""
    """csp, bulk:K, bulk-per-worker, asp:stash, asp:2bw or asp:none."""
    warmup: Annotated[str, arg(metavar="N,N,...", help_behavior_hint="(default: the schedule's)")] = ""
    """For 1f1b and pipedream: forwards under way on each worker."""
    micro_batches: Annotated[int, arg(aliases=["-M"], metavar="M")] = 1
    """Micro-batches of a subnet's batch."""
    split: Annotated[bool, arg(help_behavior_hint="")] = False
    """Backward in two parts: input gradients at once, weight gradients when there is time."""
    release: Annotated[str, arg(metavar="layer|stage", help_behavior_hint="(default: the schedule's)")] = ""
    """When a new version is there: with the layer's own gradients, or with the whole stage's."""
    chunks: Annotated[int, arg(metavar="V")] = 1
    """Stretches of the network per worker, in turn. With 1, interleaved is 1f1b."""
    sizes: Annotated[str, arg(metavar="N,N,...", help_behavior_hint="(default: even)")] = ""
    """Layers of each stretch, in program order."""
    joined: Annotated[int, arg(metavar="N")] = 1
    """By layer: so many neighbours run, and release their versions, in one piece."""
    in_flight: Annotated[str, arg(metavar="I|best", help_behavior_hint="(default: csp best, else the schedule's)")] = ""
    """Most subnets that are unfinished at once; best: found by trying."""
    sampler: Literal["uniform", "fair"] = "uniform"
    """fair: every round of n subnets uses each of the n candidates of a block once."""
    shared: Annotated[str, arg(metavar="none|strict|delayed:K|frozen")] = "none"
    """none: conflicts come from choices alone. Else all subnets share the first and the last block, in that way."""
    subnets: Annotated[int, arg(metavar="S")] = 160
    """Length of the stream."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Of the draws."""
    cluster: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """TOML: links, memory, swaps, host time. With --space a second is the forward of a whole batch through one worker's
    layers."""
    bandwidth: Annotated[float, arg(metavar="BYTES/S", help_behavior_hint="(default: no limit)")] = math.inf
    """Instead of --cluster: the same duplex link between all workers."""
    latency: Annotated[float, arg(metavar="S")] = 0.0
    """Of that link."""
    memory: Annotated[float, arg(metavar="BYTES", help_behavior_hint="(default: no limit)")] = math.inf
    """Instead of --cluster: of each worker, for activations."""
    out_bytes: Annotated[float, arg(metavar="BYTES")] = 0.0
    """Of the output of one layer for a whole batch."""
    held_bytes: Annotated[float, arg(metavar="BYTES")] = 0.0
    """That one layer keeps of a whole batch from forward to backward."""
    swap_bytes: Annotated[float, arg(metavar="BYTES")] = 0.0
    """Of one layer's weights, if they come from the host for every subnet (needs [swap] in the cluster)."""
    no_levers: Annotated[bool, arg(help_behavior_hint="")] = False
    """Do not try what changes would bring, which takes a simulation each."""
    trace: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write every task with what it waited for, one JSON object a line, for `sennit report FILE`."""
    csv: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write each worker's order as torch.distributed.pipelining does: stage, kind, micro-batch, counted through."""
    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Simulate and show."""
        from sennit.commands.simulate_recipe import recipe_run, refuse_mixtures
        from sennit.plan.replicated import spare_words
        from sennit.profile.costs import told_of_rows
        from sennit.runtime.usercode import blaming
        from sennit.simulate.spans import write_order, write_spans

        refuse_mixtures(self)
        if self.recipe is not None:
            out.say(f"recording what each candidate of {self.recipe} does")
            with blaming(UserError, "while the recipe was checked"):
                run = recipe_run(self)
                assert self.waits is not None
            if told := told_of_rows(self.waits, run.recipe.built, "scaled"):
                out.say(told)
            micro_batches = run.recipe.micro_batches
        else:
            run, micro_batches = self._space_run(), self.micro_batches
        spans: list[Span] = []
        watched = self.trace is not None or self.csv is not None
        with blaming(UserError, "while the schedule was simulated"):
            found = run.report(with_levers=not self.no_levers, watch=spans.append if watched else None)
        if spare := spare_words(self.replicas, micro_batches):
            out.say(spare)
        if self.csv is not None:
            write_order(self.csv, spans, micro_batches)
        if self.trace is not None:
            asked = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
            asked = {name: value for name, value in asked.items() if name not in ("json", "no_levers", "trace", "csv")}
            write_spans(self.trace, {**asked, **found}, spans)
        shown = [] if self.no_levers else _levers(found)
        each = f", {1e3 * found['subnet_s']:.3g} ms a subnet" if "subnet_s" in found else ""
        verb = "binds" if found["binds"] == "memory" else "bind"
        out.result(
            found,
            f"bubble {found['bubble']:.3f}: {counted(found['tasks'], 'task')} of {counted(found['subnets'], 'subnet')} "
            f"on {counted(self.workers, 'worker')}{each}",
            _named(found),
            f"with {found['in_flight']:,} in flight no order of these tasks goes below {found['bubble_at_bound']:.3f}; "
            f"{found['binds']} {verb}",
            *shown,
        )
        return 0

    def _space_run(self) -> SpaceRun:
        """On choice blocks alone."""
        from sennit.schedule.policy import policy
        from sennit.simulate.space_load import SpaceLoad, space_size
        from sennit.simulate.space_run import SpaceRun
        from sennit.supernet.sync import Shared

        blocks, candidates = space_size(self.space)
        schedule = self.schedule or "csp"
        space = SpaceLoad(
            blocks=blocks,
            candidates=candidates,
            workers=self.workers,
            replicas=self.replicas,
            micro_batches=self.micro_batches,
            subnets_wanted=self.subnets,
            sampler=self.sampler,
            pinned=self.shared != "none",
            chunks=self.chunks,
            sizes=_numbers("--sizes", self.sizes),
            joined=self.joined,
            seed=self.seed,
            release=read_release(self.release) or policy(schedule).release,
            out_bytes=self.out_bytes,
            held_bytes=self.held_bytes,
            swap_bytes=self.swap_bytes,
        )
        run = SpaceRun(
            space=space,
            schedule=schedule,
            sync=self.sync,
            in_flight=0 if self.in_flight in ("", "best") else read_in_flight(self.in_flight),
            split=self.split,
            shared=Shared("strict") if self.shared == "none" else Shared.parse(self.shared),
            cluster=self.described_cluster(),
            warmup=_numbers("--warmup", self.warmup) or None,
        )
        if self.in_flight == "best" or (not self.in_flight and schedule == "csp"):
            run = run.with_best_in_flight()  # csp alone: nobody else's code runs there
        return run

    def described_cluster(self) -> Cluster | None:
        """What the options say of links and memory; None if nothing.

        Raises:
            UserError: a file and single options.
        """
        from sennit.simulate.cluster import Cluster, Link, read_cluster, refuse_long, refuse_nothing

        refuse_nothing("--bandwidth", self.bandwidth)
        refuse_long("--latency", self.latency)
        refuse_nothing("--memory", self.memory)
        given = self.bandwidth < math.inf or self.latency or self.memory < math.inf
        if self.cluster is not None:
            if given:
                raise UserError("--cluster describes links and memory; leave out --bandwidth, --latency and --memory")
            return read_cluster(self.cluster)
        if not given and not self.held_bytes:
            return None
        link = Link(bandwidth=self.bandwidth, latency=self.latency)
        return Cluster(links=(link,), memory_bytes=self.memory if self.memory < math.inf else None)


def _named(found: dict[str, Any]) -> str:
    """What was simulated, in words."""
    chunks = f"{found['chunks']} chunks a worker, " if found["chunks"] > 1 else ""
    chunks += f"{found['replicas']} workers a stage, " if found["replicas"] > 1 else ""
    backwards = "split backwards" if found["split"] else "whole backwards"
    return (
        f"{found['schedule']} under {found['sync']}, by {found['release']}, {chunks}{backwards}, "
        f"{found['in_flight']} in flight"
    )


def _levers(found: dict[str, Any]) -> list[Table | str]:
    """Changes that bring something, and the names of the others."""
    if "subnet_s" in found:  # a change of workers changes what a bubble is a part of
        better = [lever for lever in found["levers"] if lever["subnet_s"] < (1 - LEAST) * found["subnet_s"]]
    else:
        better = [lever for lever in found["levers"] if lever["bubble"] < found["bubble"] - LEAST]
    table = Table(show_header=False, title="what one change would bring", title_justify="left")
    for lever in better:
        each = f"{1e3 * lever['subnet_s']:.3g} ms, " if "subnet_s" in lever else ""
        recipe = "another recipe" if lever["recipe"] else ""
        recipe += f", {lever['provided']}" if "provided" in lever else ""
        table.add_row(lever["change"], f"{each}bubble {lever['bubble']:.3f}", recipe)
    others = [lever["change"] for lever in found["levers"] if lever not in better]
    shown: list[Table | str] = [table] if better else []
    return [*shown, f"no gain from {', '.join(others)}"] if others else shown


DIGITS = 18
"""Of the longest number that is read."""


def _number(text: str) -> int | None:
    """A number of at least 1; None for anything else."""
    text = text.strip()
    return (int(text) or None) if text.isdecimal() and len(text) <= DIGITS else None


def _numbers(option: str, text: str) -> tuple[int, ...]:
    """Numbers with commas between; none for an empty text.

    Raises:
        UserError: anything else.
    """
    if not text:
        return ()
    found = [_number(part) for part in text.split(",")]
    numbers = tuple(number for number in found if number is not None)
    if len(numbers) < len(found):
        raise UserError(f"{option} must be numbers of at least 1 with commas between, such as 4,3,2,1; got {text!r}")
    return numbers


def read_in_flight(text: str) -> int:
    number = _number(text)
    if number is None:
        raise UserError(f"--in-flight must be a number of at least 1, or best; got {text!r}")
    return number


def read_release(text: str) -> Release | None:
    if text not in ("", "layer", "stage"):
        raise UserError(f"--release must be layer or stage, got {text!r}")
    return cast("Release", text) if text else None
