"""`sennit train`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from sennit.commands.arguments import Json
from sennit.commands.counted import counted_rows, workers_of
from sennit.commands.output import Output, figure
from sennit.commands.progress import TrainMeter
from sennit.errors import RecipeError, RunError, UserError
from sennit.words import counted

if TYPE_CHECKING:
    from sennit.recipe import Placement
    from sennit.runtime.prospect import Prospect
    from sennit.runtime.request import Request

HELP = """Trains the supernet of a recipe, on any number of workers with the same bits.

    sennit train recipes/digits.toml --workers 2 --out runs/first
    sennit train digits --steps 500 --out runs/first --resume
    sennit train --replay runs/first --workers 4 --probe watch.py"""

NO_PIPELINE = "belongs to --engine pipeline; --engine plain is a loop in one process"


@dataclass(frozen=True, kw_only=True)
class Train:
    """Options of `sennit train`."""

    recipe: Annotated[Positional[Path | None], arg(metavar="RECIPE", help_behavior_hint="")] = None
    """A recipe file, or the name of one in ./recipes. With --replay it may be left out."""
    workers: Annotated[int, arg(metavar="N")] = 1
    """Worker processes."""
    replicas: Annotated[int, arg(metavar="R")] = 1
    """Of these, how many share a stage and take different micro-batches of it; N is a multiple of R."""
    device: Literal["cpu", "cuda", "virtual"] = "cpu"
    """Where workers compute; with virtual they wait instead."""
    transport: Literal["auto", "direct", "host"] = "auto"
    """With --device cuda. direct: a worker reads memory of another's GPU; host: tensors pass through the host; auto:
    direct if the system lets workers do so."""
    waits: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: measured)")] = None
    """With --device virtual: a file of seconds per block."""
    engine: Literal["pipeline", "plain"] = "pipeline"
    """plain: the loop that the recipe means, in one process, for comparison."""
    offload: Annotated[bool, arg(help_behavior_hint="")] = False
    """With --engine plain: keep the supernet in host memory, and on the device only what a subnet uses."""
    steps: Annotated[int | None, arg(metavar="S", help_behavior_hint="(default: the recipe's)")] = None
    """Stop after S subnets, counted from the first of the run."""
    out: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="(default: runs/RECIPE-n)")] = None
    """Folder of the run."""
    resume: Annotated[bool, arg(help_behavior_hint="")] = False
    """Go on with the run that is there, on as many workers as you like. If there is none yet, it starts."""
    plan: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: balanced)")] = None
    """A file of cuts, which worker runs which blocks; or a profile, by which every subnet is cut."""
    schedule: Annotated[str, arg(metavar="S", help_behavior_hint="(default: csp; pipedream for sync = asp:*)")] = ""
    """Order of tasks: csp, gpipe, 1f1b, interleaved, zero-bubble, ... It changes no bit but for sync = asp:*."""
    chunks: Annotated[int, arg(metavar="V")] = 1
    """Stretches of the network that each worker gets, in turn."""
    release: Literal["stage", "layer"] = "stage"
    """What a worker runs in one piece; with layer, others wait for single layers, and there are more pieces."""
    in_flight: Annotated[int, arg(metavar="I", help_behavior_hint="(default: 0)")] = 0
    """Most subnets that are unfinished at once; 0: chosen."""
    split: Annotated[bool, arg(help_behavior_hint="")] = False
    """Compute gradients of weights after those that others wait for, as tasks of their own."""
    executor: Literal["eager", "graphs"] = "eager"
    """graphs: on GPUs, layers that are seen often are replayed from CUDA graphs, with the same bits."""
    activations: Literal["recompute", "keep"] = "recompute"
    """With --executor graphs. keep: a backward finds what its forward made, where memory allows, with the same bits."""
    activations_gib: Annotated[float, arg(metavar="GIB", help_behavior_hint="(default: 0)")] = 0.0
    """With --activations keep: of each worker, for what is kept; 0: what is free, less layers to come and a quarter."""
    budget: Annotated[float, arg(metavar="GIB", help_behavior_hint="(default: 0)")] = 0.0
    """Of each device, for layers and their optimizer state that come and go; 0: no budget, all that was used stays."""
    evict: Literal["next-use", "lru"] = "next-use"
    """With --budget: who leaves, the layer that is used latest, or the one used longest ago."""
    ahead: Annotated[int, arg(metavar="A")] = 8
    """With --budget: runs whose layers are fetched before their turn."""
    loaders: Annotated[int, arg(metavar="L")] = 0
    """Loader processes per worker that reads data; with any, one more process per worker records programs."""
    prefetch: Annotated[int, arg(metavar="P")] = 2
    """Batches that each loader process prepares ahead."""
    replay: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Repeat that run under --probe, and compare its hashes at the end."""
    probe: Annotated[str | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """file.py or file.py:name with a function `probe(event)`, called for every subnet of a --replay."""
    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Train, or replay."""
        from sennit.runtime.hosts.meeting import told_of_hosts

        if self.replay is not None:
            if told_of_hosts(os.environ):
                raise UserError(f"--replay {self.replay} runs on one host; start it without torchrun")
            from sennit.commands.replay import replay

            return replay(self, out)
        if self.probe is not None:
            raise UserError(f"--probe {self.probe} watches the repetition of a run; name that with --replay RUN")
        if self.recipe is None:
            raise UserError("RECIPE is missing: give a recipe file, as in `sennit train recipes/digits.toml`")
        from sennit.recipe import read_recipe
        from sennit.runtime.request import Request

        path = recipe_file(self.recipe)
        request = Request(
            recipe=read_recipe(path),
            placement=self.placement(),
            engine=self.engine,
            offload=self.offload,
            out=self.out,
            resume=self.resume,
            steps=self.steps,
            name=path.stem,
        )
        if told_of_hosts(os.environ):
            return on_hosts(request, out, self.train)
        return self.train(request, out)

    def train(self, request: Request, out: Output) -> int:
        """Check, train, and show the result."""
        from sennit.recipe import use_recipe
        from sennit.runtime.refuse import check
        from sennit.runtime.train import train
        from sennit.runtime.usercode import blaming
        from sennit.space.report import space_report

        use_recipe(request.recipe)
        out.say(f"checking {self.recipe}: each candidate is recorded and dry-run")
        with blaming(UserError, "while the recipe was checked"):
            check(request)
            for line in space_report(request.recipe.built).lines():
                out.say(line)
            self._tell_of_rows(request, out)
            if request.recipe.precision == "tf32" and self.device == "cpu":
                out.say('precision = "tf32" is a way in which GPUs multiply; on a CPU it is fp32')
        with TrainMeter(out) as meter, blaming(RunError, "while training"):
            result = train(request, meter.tell)
        try:
            looked = look_back(request, Path(result["out"]), out) if result["subnets_per_s"] else None
        except KeyboardInterrupt:  # the run has ended
            looked = None
            out.say("looking back was stopped; the run is complete")
        result["prospect"] = None if looked is None else asdict(looked)
        out.result(result, *told(result), *(looked.lines() if looked else ()))
        return 0

    def _tell_of_rows(self, request: Request, out: Output) -> None:
        """Profiles may be of other micro-batches."""
        from sennit.profile.costs import told_of_rows

        for path, so in ((self.plan, "taken as they are"), (self.waits, "scaled")):
            if path is not None and (told := told_of_rows(path, request.recipe.built, so)):
                out.say(told)

    def placement(self) -> Placement:
        """The placement that these options describe.

        Raises:
            UserError: an option that the engine has no use for, or a schedule that there is none of.
        """
        from sennit.recipe import Placement
        from sennit.schedule.policy import policy

        if self.engine == "plain":
            for name, value, unused in (
                ("transport", self.transport, "auto"),
                ("plan", self.plan, None),
                ("in-flight", self.in_flight, 0),
                ("replicas", self.replicas, 1),
                ("schedule", self.schedule, ""),
                ("chunks", self.chunks, 1),
                ("release", self.release, "stage"),
                ("split", self.split, False),
                ("executor", self.executor, "eager"),
                ("activations", self.activations, "recompute"),
                ("activations-gib", self.activations_gib, 0.0),
                ("budget", self.budget, 0.0),
                ("evict", self.evict, "next-use"),
                ("ahead", self.ahead, 8),
                ("loaders", self.loaders, 0),
                ("prefetch", self.prefetch, 2),
            ):
                if value != unused:
                    raise UserError(f"--{name} {value} {NO_PIPELINE}")
        if self.schedule:
            policy(self.schedule)  # an unknown name is refused before the space is recorded
        plan = None if self.plan is None else str(self.plan)
        return Placement(
            workers=self.workers,
            replicas=self.replicas,
            device=self.device,
            transport=self.transport,
            waits=None if self.waits is None else str(self.waits),
            plan=plan,
            in_flight=self.in_flight,
            schedule=self.schedule,
            chunks=self.chunks,
            release=self.release,
            split=self.split,
            executor=self.executor,
            activations=self.activations,
            activations_gib=self.activations_gib,
            budget=self.budget,
            evict=self.evict,
            ahead=self.ahead,
            loaders=self.loaders,
            prefetch=self.prefetch,
        )


def on_hosts(request: Request, out: Output, train: Callable[[Request, Output], int]) -> int:
    """Train as one of several hosts: host 0 commands, the others follow."""
    from sennit.runtime.hosts.guest import follow
    from sennit.runtime.hosts.meeting import Meeting

    with Meeting.of_environment(os.environ, note=out.say) as meeting:
        if meeting.here:
            follow(request, meeting, out.say)
            out.result({"host": meeting.here, "hosts": meeting.count})
            return 0
        meeting.brief(request)
        return train(replace(request, meeting=meeting), out)


def recipe_file(given: Path) -> Path:
    """The recipe file that a word on the command line means: a path, or the name of a file in ./recipes.

    Raises:
        RecipeError: there is none; names those that there are.
    """
    named = Path("recipes") / f"{given}.toml"
    if given.is_file():
        return given
    if named.is_file():
        return named
    there = sorted(p.stem for p in Path("recipes").glob("*.toml"))
    close = difflib.get_close_matches(given.stem, there, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    known = f" In ./recipes there are {', '.join(there)}" if there else " There is no folder ./recipes here"
    reason = "it is a folder" if given.is_dir() else "no such file"
    raise RecipeError(f"cannot read recipe {given}: {reason}{hint}{known}")


def look_back(request: Request, folder: Path, out: Output) -> Prospect | None:
    """What the run could have taken, kept with its result. Tasks of workers that share a GPU tell nothing of that."""
    from sennit.runtime.prospect import prospect
    from sennit.runtime.runfolder import RunFolder
    from sennit.runtime.transport import shared_gpus
    from sennit.runtime.usercode import blaming
    from sennit.trace.events import read_call, refuse_impossible
    from sennit.trace.perfetto import MOST_SPANS

    if request.engine == "plain" or request.placement.workers < 2:
        return None
    held = RunFolder.open(folder)
    kept = held.read_result()
    if kept is not None and shared_gpus(kept["workers"], kept.get("gpus", 0)):
        return None
    try:
        trace = read_call(held.spans, MOST_SPANS)
        refuse_impossible(held.spans, trace)
        with blaming(UserError, "while the run was looked back on"):  # an order of the user's is simulated
            found = prospect(request.recipe, request.placement, trace.spans)
    except UserError as error:
        out.say(f"what the run could have taken is not known: {error}")
        return None
    if found is not None and kept is not None:
        held.write_json("result.json", {**kept, "prospect": asdict(found)})
    return found


def told(result: dict[str, Any]) -> list[str]:
    """A result for people."""
    from sennit.runtime.transport import shared_gpus

    rate = f" ({result['subnets_per_s']:.3g} subnets/s)" if result["subnets_per_s"] else ""
    bubble = f", bubble {result['bubble']:.2f}" if result["bubble"] is not None else ""
    loss = f", last loss {figure(result['last_loss'])}" if result["last_loss"] is not None else ""
    placement = workers_of(result)
    took = f"in {result['seconds']:.1f} s{rate}, {placement}{bubble}"
    if result["subnets_per_s"] is None:
        took = "were there already, none was left"
    elif result["first"]:
        took = f"are there, this call ran the last {result['steps'] - result['first']} {took}"
    lines = [f"{result['out']}: {counted(result['steps'], 'subnet')} {took}{loss}"]
    shared = shared_gpus(result["workers"], result.get("gpus", 0))
    lines += [f"  {shared}"] if shared and result["subnets_per_s"] is not None else []
    lines += [f"  {name:9} {text}" for name, text in counted_rows(result)]
    if result["weights_sha256"] is None:
        return [*lines, "  nothing is trained on virtual devices"]
    lines += [f"  {name:9} {result[f'{name}_sha256']}" for name in ("weights", "optimizer", "losses")]
    if result.get("pinned") is False:
        lines.append(f"  not pinned: {result['pinning_refused']}; copies were slow")
    if not result["comparable"]:
        lines.append("  not comparable: the recipe says allow_nondeterministic = true")
    return lines
