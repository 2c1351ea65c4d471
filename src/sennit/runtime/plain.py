"""The plain engine: the loop that a recipe means, in one process, with no pipeline code.

    for task in recipe.tasks():
        for j, (x, y) in enumerate(task.micro_batches):
            loss = recipe.loss(model(x, arch=task.arch), y, task, j); loss.backward(); task.report(j, loss)
        task.set_lr(optimizer); task.clip_(model); optimizer.step(); optimizer.zero_grad()

It is the oracle for everything else. What it adds to the loop is bookkeeping: the access log, a look at the
loss, checkpoints.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sennit.errors import NanLossError, SpaceError, UserError
from sennit.program.step import Program
from sennit.program.template import map_tree
from sennit.recipe import Recipe, use_recipe
from sennit.runtime.collecting import between_subnets, collecting_seldom
from sennit.runtime.dryrun import names_nondeterminism
from sennit.runtime.forked import in_children
from sennit.runtime.full import refused_if_swallowed, told_if_full
from sennit.runtime.refusal import refused
from sennit.runtime.segment import Segment, State
from sennit.space.names import non_persistent, unique_tensors
from sennit.supernet.clip import fold_norms, grad_norms
from sennit.supernet.hashes import optimizer_tensors
from sennit.supernet.optim import delayed_of, parameter_names
from sennit.supernet.samplers import Result
from sennit.supernet.task import Task, keyed_rng
from sennit.trace.access import AccessLog

FULL = (
    "the device is full ({why}). The plain loop keeps everything there; --offload keeps only what a subnet uses. More "
    "micro_batches in the recipe need less, and make it another recipe"
)


class PlainEngine:
    """Runs subnets one after the other on one device.

    Args:
        state: of a checkpoint, or None to initialise.
        start: first subnet to run.
        earlier: results of all subnets before.
        access: the access log.
        probing: keep the norms of gradients.
        offload: keep the supernet on the CPU and move what a subnet uses to the device and back.
    """

    workers = 1
    bubble_known = False

    def __init__(
        self, recipe: Recipe, device: str, access: Path, start: int = 0, state: State | None = None,
        earlier: list[Result] | None = None, on_result: Callable[[Result], None] = lambda result: None,
        offload: bool = False, probing: bool = False,
    ) -> None:  # fmt: skip
        use_recipe(recipe)
        self.probing = probing
        self.norms: dict[int, dict[str, float]] = {}
        self.recipe, self.built, self.start = recipe, recipe.built, start
        self.device, self.offload, self.on_result = torch.device(device), offload, on_result
        self.model = self.built.model(in_children)
        if not offload:
            with told_if_full(FULL):
                self.model.to(self.device)
        self.tensors = unique_tensors(self.model)
        self.modules = dict(self.model.named_modules())
        self.optimizer = recipe.build_optimizer(self.model)
        self.log = AccessLog(access, 0)
        self.version: dict[str, int] = {}
        self.words: dict[str, tuple[int, int]] = {}
        self.last_use: dict[str, int] = {}
        """How many uses the last micro-batch made of a buffer group, less one."""
        if state is not None:
            self.restore(state)
        self.stream = self.built.tasks(1 << 62, start, earlier)
        self.next_id = start
        self.busy, self.counted = 0.0, None
        self.bulk = recipe.sync_rule.bulk(workers=1)
        self.bulk_users: dict[str, tuple[str, int]] = {}
        """Group to step and subnet of its last use in this bulk."""

    # -- the loop

    def run_to(self, limit: int, interrupted: Callable[[], bool]) -> Segment:
        """Run all subnets below `limit`.

        Raises:
            NanLossError: a loss is not finite; the state is the one before that subnet.
            SubnetError: a subnet's program is refused; the same.
            RunError: the device is, or was, full.
        """
        begin = time.perf_counter()
        with collecting_seldom():
            while self.next_id < limit and not (self.next_id % self.bulk == 0 and interrupted()):
                try:
                    task = next(self.stream)
                except SpaceError as error:
                    raise refused(error, self.next_id) from error
                with told_if_full(FULL), refused_if_swallowed(self.device):
                    self.run(task)
                self.next_id += 1
                between_subnets()
                self.on_result(Result(task.seq_id, task.arch, task.loss))
        self.log.flush()
        return Segment(self.next_id, time.perf_counter() - begin)

    def run(self, task: Task) -> None:
        program = self.built.program(task.arch)
        if self.device.type != "cpu":
            task.micro_batches = map_tree(
                lambda t: t.to(self.device) if isinstance(t, Tensor) else t, task.micro_batches
            )
        if self.offload:
            self.move(program, self.device)
        before = self.buffers_of(program)
        for j, (x, y) in enumerate(task.micro_batches):
            with keyed_rng(task, j):
                try:
                    loss = self.recipe.loss(self.model(x, arch=task.arch), y, task, j)
                except RuntimeError as error:
                    raise explained(error) from error
                self.note(program, task.seq_id, j, "F")
                value = float(loss.detach())
                if not math.isfinite(value):
                    self.take_back(before)
                    raise NanLossError(
                        f"the loss of subnet {task.seq_id} is {value} in micro-batch {j}", task.seq_id, j
                    )
                loss.backward()
            self.note(program, task.seq_id, j, "B")
            task.report(j, loss)
        if self.probing:
            self.norms[task.seq_id] = self.norms_now()
        task.set_lr(self.optimizer)
        task.clip_(self.model)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.note_step(program, task.seq_id)
        if self.offload:
            self.move(program, torch.device("cpu"))

    def norms_now(self) -> dict[str, float]:
        """Norm of each group's gradient."""
        found: dict[str, float] = {}
        for group in self.built.groups.all:
            grads = {n: g for n in group.names if (g := self.tensors[n].grad) is not None}
            if grads:
                found[group.name] = fold_norms(grad_norms(grads))
        return found

    def figures(self) -> dict[str, Any]:
        return {}

    def gradient_norms(self, seq_id: int) -> dict[str, float]:
        return self.norms.pop(seq_id, {})

    def buffers_of(self, program: Program) -> dict[str, Tensor]:
        """Copies of the buffers that a subnet's forward will write."""
        return {name: self.tensors[name].clone() for step in program.steps for name in step.written}

    def take_back(self, before: Mapping[str, Tensor]) -> None:
        for name, held in before.items():
            self.tensors[name].copy_(held)
        self.optimizer.zero_grad(set_to_none=True)

    def move(self, program: Program, device: torch.device) -> None:
        """Move the modules that a program uses, with their optimizer state."""
        for step in program.steps:
            if step.kind == "module":
                self.modules[step.target].to(device)
        for step in program.steps:
            for name in (*step.params, *step.buffers):
                held = self.tensors[name]
                held.data = held.data.to(device)
        for parameter, state in self.optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, Tensor) and value.dim() and value.device != parameter.device:
                    state[key] = value.to(parameter.device)

    # -- the access log

    def note(self, program: Program, y: int, j: int, phase: Any) -> None:
        kept = self.built.frozen_names
        uses: dict[str, int] = {}
        for step in program.steps:
            read, moved = self.built.groups.of_step(step)
            for group in read:
                self.log.parameters(step.name, group, y, j, phase, "R", self.version.get(group, -1))
            if phase != "F":
                continue
            for group in moved:
                if self.built.groups.by_name[group].names[0] not in kept:
                    self.log.buffers(step.name, group, y, j, "F", "R", self.words.get(group, (-1, -1)))
                    self.words[group] = (y, j)
                    self.last_use[group] = uses[group] = uses.get(group, -1) + 1
                    self.log.buffers(step.name, group, y, j, "F", "W", (y, j))

    def note_step(self, program: Program, y: int) -> None:
        if self.bulk > 1:
            self.note_bulk(program, y)
            return
        always, sharing = self.built.always[0], self.recipe.sharing
        seen: set[str] = set()
        for step in program.steps:
            for group in self.built.groups.of_step(step)[0]:
                if group in seen or (group in always and sharing.kind == "frozen"):
                    continue
                seen.add(group)
                version = y - sharing.lag + 1 if group in always and sharing.kind == "delayed" else y
                if version >= 0:
                    self.version[group] = version
                    self.log.parameters(step.name, group, version, -1, "U", "W", version)

    def note_bulk(self, program: Program, y: int) -> None:
        """Groups of a bulk step at its end; the version is named after the last subnet that used the group."""
        kept = self.built.always[0] if self.recipe.sharing.kind == "frozen" else frozenset[str]()
        used: set[str] = set()
        for step in program.steps:
            for group in self.built.groups.of_step(step)[0]:
                if group not in kept and group not in used:
                    used.add(group)
                    self.bulk_users[group] = (step.name, y)
        if (y + 1) % self.bulk:
            return
        for group, (step_name, version) in self.bulk_users.items():
            self.version[group] = version
            self.log.parameters(step_name, group, version, -1, "U", "W", version)
        self.bulk_users.clear()

    # -- state

    def weights(self) -> dict[str, Tensor]:
        return {name: t.detach() for name, t in self.tensors.items()}

    def hashed_weights(self) -> dict[str, Tensor]:
        hidden = non_persistent(self.model)
        return {name: t for name, t in self.weights().items() if name not in hidden}

    def optimizer_state(self) -> dict[str, Tensor]:
        return optimizer_tensors(self.optimizer)

    def versions(self) -> dict[str, list[int]]:
        """Words of every group, as `HostStore.versions` gives them."""
        found: dict[str, list[int]] = {}
        delayed = delayed_of(self.optimizer)
        for group in self.built.groups.all:
            if group.kind == "buffers":
                seq_id, micro = self.words.get(group.name, (-1, -1))
                found[group.name] = [seq_id, micro, self.last_use.get(group.name, -1)]
            elif delayed is not None and group.name in self.built.always[0]:
                newest = self.version.get(group.name, -1)
                found[group.name] = [newest, *(x for x, _ in delayed.pending if x > newest)]
            else:
                found[group.name] = [self.version.get(group.name, -1), -1, -1]
        return found

    def restore(self, state: State) -> None:
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(state.weights[name])
        names = {name: p for p, name in ((p, parameter_names(self.optimizer)[id(p)]) for p in self.parameters())}
        delayed = delayed_of(self.optimizer)
        waiting: dict[int, dict[str, Tensor | None]] = {}
        for key, tensor in state.optimizer.items():
            name, _, last = key.rpartition(".")
            if last.isdecimal() and name.endswith(".pending"):
                waiting.setdefault(int(last), {})[name.removesuffix(".pending")] = tensor.to(self.device)
                continue
            held = tensor.clone() if last == "step" else tensor.to(names[name].device, copy=True)
            if held.dim():
                placed = torch.empty_like(names[name])
                held = placed.detach().copy_(held)
            self.optimizer.state[names[name]][last] = held
        for group, words in state.versions.items():
            if self.built.groups.by_name[group].kind == "buffers":
                self.words[group] = (words[0], words[1])
                self.last_use[group] = words[2]
            else:
                self.version[group] = words[0]
        if delayed is not None:
            newest = min((state.versions[g][0] for g in self.built.always[0]), default=self.start - 1)
            for seq_id in range(newest + 1, self.start):
                grads = waiting.get(seq_id, {})
                delayed.pending.append((seq_id, {name: grads.get(name) for name in delayed.parameters}))

    def parameters(self) -> list[nn.Parameter]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def cut_before(self, seq_id: int) -> bool:
        """The state is the one before `seq_id` already."""
        return self.next_id == seq_id

    def close(self, failed: bool) -> None:
        self.log.close()


def explained(error: RuntimeError) -> Exception:
    """A user's error for an operator without a deterministic kernel; else the error itself."""
    if names_nondeterminism(error):
        return UserError(
            f"an operator has no deterministic kernel: {str(error).splitlines()[0][:200]}. Replace it, or set "
            "allow_nondeterministic = true in the recipe; such a run is not comparable"
        )
    return error
