"""`sennit simulate`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.table import Table
from tyro.conf import arg

from sennit.commands.arguments import Json
from sennit.commands.output import Output
from sennit.errors import UserError
from sennit.trace.span import Span

HELP = """Simulates a schedule on a space of choice blocks: the bubble (the part of device time that is waited), the
bound that no order can beat, what binds, and what each lever would bring. Needs no torch and no GPU.

    sennit simulate --space nlp.c1 --workers 8 -M 8 --split --chunks 6 --in-flight 4"""


@dataclass(frozen=True, kw_only=True)
class Simulate:
    """Options of `sennit simulate`."""

    space: Annotated[str, arg(metavar="NAME")]
    """nlp.c0 to nlp.c3 or cv.c1 to cv.c3: the spaces of the NASPipe paper, as their choice blocks alone."""
    workers: Annotated[int, arg(metavar="N")] = 8
    """Workers."""
    schedule: Annotated[str, arg(metavar="NAME")] = "csp"
    """csp: ours, by layer. naspipe: the paper's order, by stage. And gpipe, 1f1b, interleaved, zero-bubble, zbv,
    chimera, pipedream, tap."""
    sync: Annotated[str, arg(metavar="RULE", help_behavior_hint="(default: the schedule's)")] = ""
    """csp, bulk:K, bulk-per-worker, asp:stash, asp:2bw or asp:none."""
    warmup: Annotated[str, arg(metavar="N,N,...", help_behavior_hint="(default: the schedule's)")] = ""
    """For 1f1b and pipedream: forwards under way on each worker."""
    micro_batches: Annotated[int, arg(aliases=["-M"], metavar="M")] = 1
    """Micro-batches of a subnet's batch."""
    split: Annotated[bool, arg(help_behavior_hint="")] = False
    """Backward in two parts: input gradients at once, weight gradients when there is time."""
    release: Annotated[Literal["layer", "stage"] | None, arg(help_behavior_hint="(default: the schedule's)")] = None
    """When a new version is there: with the layer's own gradients, or with the whole stage's."""
    chunks: Annotated[int, arg(metavar="V")] = 1
    """Stretches of the network per worker, in turn."""
    in_flight: Annotated[str, arg(metavar="I|best", help_behavior_hint="(default: the schedule's)")] = ""
    """Most subnets that are unfinished at once; best: found by trying."""
    sampler: Literal["uniform", "fair"] = "uniform"
    """fair: every round of n subnets uses each of the n candidates of a block once."""
    shared: Annotated[str, arg(metavar="none|strict|delayed:K|frozen")] = "none"
    """none: conflicts come from choices alone. Else all subnets share the first and the last block, in that way."""
    subnets: Annotated[int, arg(metavar="S")] = 160
    """Length of the stream."""
    no_levers: Annotated[bool, arg(help_behavior_hint="")] = False
    """Do not try what changes would bring, which takes a simulation each."""
    trace: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write every task with what it waited for, one JSON object a line, for `sennit report FILE`."""
    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Simulate and show."""
        from sennit.schedule.policy import policy
        from sennit.simulate.space_load import SIZES, SpaceLoad
        from sennit.simulate.space_run import SpaceRun
        from sennit.simulate.spans import write_spans
        from sennit.supernet.sync import Shared

        if self.space not in SIZES:
            raise UserError(f"--space {self.space!r} is none of {', '.join(SIZES)}")
        blocks, candidates = SIZES[self.space]
        space = SpaceLoad(
            blocks=blocks,
            candidates=candidates,
            workers=self.workers,
            micro_batches=self.micro_batches,
            subnets_wanted=self.subnets,
            sampler=self.sampler,
            pinned=self.shared != "none",
            chunks=self.chunks,
            release=self.release or policy(self.schedule).release,
        )
        run = SpaceRun(
            space=space,
            schedule=self.schedule,
            sync=self.sync,
            in_flight=0 if self.in_flight in ("", "best") else _number("--in-flight", self.in_flight),
            split=self.split,
            shared=Shared("strict") if self.shared == "none" else Shared.parse(self.shared),
            warmup=tuple(_number("--warmup", n) for n in self.warmup.split(",")) if self.warmup else None,
        )
        if self.in_flight == "best":
            run = run.with_best_in_flight()
        spans: list[Span] = []
        found = run.report(with_levers=not self.no_levers, watch=None if self.trace is None else spans.append)
        if self.trace is not None:
            asked = {name: value for name, value in asdict(self).items() if name not in ("json", "no_levers", "trace")}
            facts = {
                **asked,
                "release": space.release,
                "split": run.halves,
                "sync": run.sync or run.policy.sync,
                **found,
            }
            write_spans(self.trace, facts, spans)
        table = Table(show_header=False, title="what one change would bring", title_justify="left")
        for lever in found["levers"]:
            table.add_row(lever["change"], f"bubble {lever['bubble']:.3f}")
        shown = [] if self.no_levers else [table]
        out.result(
            found,
            f"bubble {found['bubble']:.3f}: {found['tasks']:,} tasks of {found['subnets']} subnets on {self.workers} "
            "workers",
            f"no order goes below {found['bubble_at_bound']:.3f}; {found['binds']} bind",
            *shown,
        )
        return 0


def _number(option: str, text: str) -> int:
    """A number of at least 1.

    Raises:
        UserError: anything else.
    """
    if not text.strip().isdecimal() or int(text) < 1:
        raise UserError(f"{option} must be at least 1, got {text}")
    return int(text)
