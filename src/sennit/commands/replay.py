"""`sennit train --replay RUN --probe FILE`: a recorded run once more, with somebody watching."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sennit.commands.output import Output
from sennit.commands.progress import TrainMeter
from sennit.commands.recorded import HASHES, Recorded
from sennit.errors import Interrupted, RunError, UserError
from sennit.words import counted

if TYPE_CHECKING:
    from sennit.commands.train import Train
    from sennit.recipe import Recipe
    from sennit.runtime.request import Request


def replay(options: Train, out: Output) -> int:
    """Repeat the run; 0 if it came out the same."""
    from sennit.recipe import use_recipe
    from sennit.runtime.refuse import check
    from sennit.runtime.request import Request
    from sennit.runtime.usercode import blaming

    assert options.replay is not None
    if options.probe is None:
        raise UserError(f"--replay {options.replay} needs --probe FILE, a file.py with a function probe(event)")
    if options.resume:
        raise UserError("--replay repeats a run from its beginning; leave out --resume")
    if options.device == "virtual":
        raise UserError(
            f"--device virtual trains nothing, so there would be nothing to compare with --replay {options.replay}; "
            "use --device cpu or cuda"
        )
    file, name = probe_file(options.probe)
    recorded = Recorded.open(options.replay)
    recipe = _recipe(options, recorded)
    steps = recorded.steps(options.steps)
    with _folder(options.out) as folder, Probe(file, name, to_stderr=out.json) as probe:
        request = Request(
            recipe=recipe,
            placement=options.placement(),
            engine=options.engine,
            offload=options.offload,
            out=folder,
            steps=steps,
            name=f"{recorded.name}-replay",
            probes=(probe,),
        )
        use_recipe(recipe)
        with blaming(UserError, "while the recipe was checked"):
            check(request)
        with TrainMeter(out, quiet=options.out is None) as meter, blaming(RunError, "while training"):
            result = _trained(request, meter, kept=options.out is not None)
        again = Recorded.open(folder)
    return _compare(recorded, again, result, steps, out)


def _trained(request: Request, meter: TrainMeter, *, kept: bool) -> dict[str, Any]:
    from sennit.runtime.train import train

    try:
        return train(request, meter.tell)
    except Interrupted as error:
        if kept:
            raise
        raise Interrupted("stopped; nothing is kept of a repetition without --out") from error


def _recipe(options: Train, recorded: Recorded) -> Recipe:
    """The recorded recipe. What does not change bits is left out: nobody needs it twice."""
    from sennit.recipe import CheckpointRule, EvaluateRule, read_recipe

    recipe = recorded.recipe()
    if options.recipe is not None:
        from sennit.commands.train import recipe_file
        from sennit.runtime.checkpoint import differences

        given = read_recipe(recipe_file(options.recipe))
        if given.identity() != recipe.identity():
            shown = "; ".join(differences(recipe.to_dict(), given.to_dict()))
            raise UserError(f"{options.recipe} is not the recipe of {recorded.path} ({shown}); leave out RECIPE")
    return replace(recipe, evaluate=EvaluateRule(), checkpoint=CheckpointRule(every=recipe.checkpoint.every, keep=1))


def _compare(recorded: Recorded, again: Recorded, result: dict[str, Any], steps: int, out: Output) -> int:
    reasons = recorded.incomparable(again.run["fingerprint"])
    there = recorded.result_at(steps)
    wanted = there or {"losses_sha256": recorded.losses_sha256(steps)}
    different = [key for key in HASHES if key in wanted and wanted[key] != result[key]]
    first = recorded.first_difference(again.lines)
    compared = "weights, optimizer and losses" if there else f"losses of the first {counted(steps, 'subnet')}"
    if reasons:
        verdict = f"not comparable with {recorded.path}: {'; '.join(reasons)}"
    elif different or first:
        keys = ", ".join(different)
        verdict = f"NOT the run in {recorded.path}: {keys} differ. First: {first or 'no loss differs'}"
    else:
        verdict = f"the same as {recorded.path}: {compared}"
    content = {**result, "replay_of": str(recorded.path), "comparable": not reasons, "different": different}
    content["first_difference"] = first
    lines = [f"  {key.removesuffix('_sha256'):9} {result[key]}" for key in HASHES]
    out.result(content, f"{counted(steps, 'subnet')}, {verdict}", *lines)
    return 1 if (different or first) and not reasons else 0


@contextlib.contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """Where the repetition goes: kept if a folder was named, else removed."""
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="sennit-replay-") as temporary:
        yield Path(temporary) / "run"


def probe_file(given: str) -> tuple[Path, str]:
    """File and function that `file.py` or `file.py:name` means.

    Raises:
        UserError: no such file.
    """
    head, colon, tail = given.rpartition(":")
    file, name = (head, tail) if colon and head.endswith(".py") else (given, "probe")
    path = Path(file).absolute()
    if not path.is_file() or path.suffix != ".py":
        raise UserError(f"--probe {given}: there is no Python file {path}; give file.py or file.py:function")
    return path, name


class ProbeFailed(Exception):
    """The user's function raised, or its process ended."""


class Probe:
    """A probe in a process of its own. Call it with an event; it returns when the probe has.

    Args:
        to_stderr: send what the probe prints there.
    """

    def __init__(self, file: Path, name: str, *, to_stderr: bool) -> None:
        self.__name__ = f"{file.name}:{name}"
        reading, writing = os.pipe()
        ours = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sennit.commands.probe_host", str(file), name, str(writing)],
                stdin=subprocess.PIPE,
                stdout=sys.stderr if to_stderr else None,
                pass_fds=(writing,),
                text=True,
                encoding="utf-8",
                env={**os.environ, "PYTHONPATH": path},
            )
        finally:
            os.close(writing)
        self.answers = os.fdopen(reading, encoding="utf-8")
        self.file = file
        try:
            self._heard()
        except ProbeFailed as error:
            self.close()
            raise UserError(f"--probe cannot be loaded: {error}") from error

    def __call__(self, event: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(event) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has said why, or is gone
        self._heard()

    def _heard(self) -> None:
        line = self.answers.readline()
        answer = json.loads(line) if line.endswith("\n") else {"error": "its process ended"}
        if "error" in answer:
            raise ProbeFailed(answer["error"])

    def close(self) -> None:
        """End the process and wait for it: the end of stdin lets it run to its end."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.answers.close()

    def __enter__(self) -> Probe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.process.kill()
        self.close()
