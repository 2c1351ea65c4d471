"""What a task costs a worker besides its computation: decision, headers and messages, launch. JSON lines on stdout.

    python benchmarks/task_cost.py [--recipe recipes/digits.toml] [--workers 2] [--steps 200]

Every worker times its own functions; what one calls is not counted for the caller, and a turn of the loop that finds no
task is not counted at all. Microseconds a task, by account:

    decision   what is ready, and which of it is next (`Waiting.look`, `Ready.take`, the order)
    header     messages in and out: headers, copies, sockets
    launch     the rest of `Tasks`: versions, slots, access log, routing
    record     the trace
    step       optimizer steps, gradients added up, versions published
    compute    the executor: on a CPU the computation itself
    loop       the rest of the loop: messages looked for, subnets let in
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sennit.executor.eager import EagerExecutor
from sennit.recipe import Placement, read_recipe
from sennit.runtime.channel import SharedMemoryChannel
from sennit.runtime.recorder import Recorder
from sennit.runtime.request import Request
from sennit.runtime.stepping import Stepping
from sennit.runtime.tasks import Tasks
from sennit.runtime.train import train
from sennit.runtime.waiting import Waiting
from sennit.runtime.worker import Worker

ACCOUNTS: dict[str, list[tuple[type[Any], str]]] = {
    "decision": [(Worker, "next_task"), (Waiting, "look")],
    "header": [(SharedMemoryChannel, "send"), (SharedMemoryChannel, "receive"), (SharedMemoryChannel, "flush")],
    "launch": [(Tasks, "execute")],
    "record": [(Recorder, "task"), (Recorder, "_write")],
    "step": [(Stepping, "part"), (Stepping, "apply_due")],
    "compute": [(EagerExecutor, name) for name in ("forward", "backward", "backward_input", "backward_weight")],
    "nap": [(Worker, "nap")],
    "loop": [(Worker, "run")],
}


class Clock:
    """Seconds by account, each moment counted once: for the innermost function that is timed."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(ACCOUNTS, 0.0)
        self.turned = dict.fromkeys(ACCOUNTS, 0.0)
        """Of the turn of the loop that is under way."""
        self.tasks = 0
        self.stack: list[str] = []
        self.since = 0.0

    def timed(self, account: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*args: Any, **named: Any) -> Any:
            self.turn()
            self.stack.append(account)
            try:
                found = function(*args, **named)
            finally:
                self.turn()
                self.stack.pop()
            if function.__name__ == "next_task":
                self.tasks += found is not None
                for name, seconds in self.turned.items():
                    self.seconds[name] += seconds if found is not None else 0.0
                    self.turned[name] = 0.0
            return found

        return inner

    def timed_each(self, account: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Of a generator: each item."""

        def inner(*args: Any) -> Any:
            made = function(*args)
            advance = self.timed(account, lambda: next(made, None))
            while (item := advance()) is not None:
                yield item

        return inner

    def turn(self) -> None:
        now = time.perf_counter()
        if self.stack:
            self.turned[self.stack[-1]] += now - self.since
        self.since = now


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="recipes/digits.toml")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    clock = Clock()
    for account, functions in ACCOUNTS.items():
        for kind, name in functions:
            timed = clock.timed_each if name == "receive" else clock.timed
            setattr(kind, name, timed(account, getattr(kind, name)))
    with tempfile.TemporaryDirectory() as folder:
        run = Worker.run

        def told(worker: Worker) -> None:
            run(worker)
            found = {"tasks": clock.tasks, "seconds": clock.seconds}
            (Path(folder) / f"{worker.rank}.json").write_text(json.dumps(found))

        setattr(Worker, "run", told)  # noqa: B010
        recipe = read_recipe(given.recipe)
        recipe = replace(recipe, steps=given.steps, evaluate=replace(recipe.evaluate, every=0))
        train(Request(recipe=recipe, placement=Placement(workers=given.workers), out=Path(folder) / "run", save=False))
        rows = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(given.workers)]
    tasks = sum(row["tasks"] for row in rows)
    us = {a: round(1e6 * sum(row["seconds"][a] for row in rows) / tasks, 1) for a in ACCOUNTS if a != "nap"}
    found = {
        "recipe": given.recipe,
        "workers": given.workers,
        "tasks": tasks,
        "us_per_task": us,
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
