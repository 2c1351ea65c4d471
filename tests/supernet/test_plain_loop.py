"""The public loop against one written without sennit: the same bits, so the recipe means what it says."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small import HERE, recipe
from tests.plain_loop import run_plain
from torch import Tensor, nn

import sennit as sn
from sennit.errors import SpaceError, UserError
from sennit.supernet.hashes import losses_hash, optimizer_tensors, state_hash
from sennit.supernet.optim import delayed_of
from sennit.supernet.task import check_threads


def lines(**changes: Any) -> sn.Recipe:
    return recipe(space="small.py:Lines", **changes)


def forward(model: Any, arch: dict[str, int], x: Tensor) -> Tensor:
    h = model.stem(x)
    for i in range(2):
        h = getattr(model.blocks[i], str(arch[f"blocks.{i}"]))(h)
    return model.head(h)


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"betas": [0.8, 0.99]}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1, "amsgrad": True}),
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize(
    ("m", "clip", "shared"),
    [
        (1, "none", "strict"),
        (3, "global:0.3", "strict"),
        (2, "layer:0.1", "frozen"),
        (2, "none", "delayed:3"),
    ],
)
def test_same_bits_as_plain_pytorch(name: str, m: int, clip: str, shared: str) -> None:
    lr = {"name": "cosine", "base": 0.1, "warmup": 2, "final": 0.01}
    kind, arguments = OPTIMIZERS[name]
    r = sn.Recipe.from_dict(
        lines(optimizer={"name": name, **arguments}, micro_batches=m, clip=clip, shared=shared).to_dict() | {"lr": lr},
        HERE,
    )
    model, optimizer, tasks = run_plain(r, 8)

    # -- what follows knows torch, and from the recipe only archs, data and initial weights
    mine: Any = copy.deepcopy(r.build_model())
    always = [p for layer in (mine.stem, mine.head) for p in layer.parameters()]
    for p in always:
        p.requires_grad_(shared != "frozen")
    arguments = {k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()}
    named = [(n, p) for n, p in mine.named_parameters() if p.requires_grad]
    step = kind(named, lr=0.0, foreach=False, **arguments)  # type: ignore[operator]
    waiting: list[list[Tensor]] = []
    losses: list[float] = []
    for y, task in enumerate(tasks):
        x, target = (
            torch.cat([a for a, _ in task.micro_batches]),
            torch.cat([b for _, b in task.micro_batches]),
        )
        total = torch.zeros((), dtype=torch.float32)
        for j, (part, wanted) in enumerate(zip(x.tensor_split(m), target.tensor_split(m), strict=True)):
            part = part.clone()  # aligned, as everything is that enters a step
            loss = F.cross_entropy(forward(mine, task.arch, part), wanted, reduction="sum") / len(target)
            loss.backward()
            total = loss.detach() if j == 0 else total + loss.detach()
        losses.append(float(total))
        grads = {n: p.grad for n, p in named if p.grad is not None}
        rule, _, limit = clip.partition(":")
        sets = [sorted(grads)] if rule == "global" else []
        if rule == "layer":
            sets = [
                [n for n in sorted(grads) if n.rpartition(".")[0] == u] for u in {n.rpartition(".")[0] for n in grads}
            ]
        for members in sets:
            squares = 0.0
            for n in members:
                squares += float(torch.linalg.vector_norm(grads[n])) ** 2
            by = float(limit) / (math.sqrt(squares) + 1e-6)
            for n in members:
                if by < 1.0:
                    grads[n].mul_(by)
        rate = 0.1 * (y + 1) / 2 if y < 2 else 0.01 + 0.09 * 0.5 * (1 + math.cos(math.pi * (y - 2) / (12 - 1 - 2)))
        assert task.lr == pytest.approx(rate)
        for group in step.param_groups:
            group["lr"] = task.lr
        if shared.startswith("delayed"):
            waiting.append([p.grad for p in always])  # type: ignore[misc]
            due = waiting.pop(0) if len(waiting) == 3 else [None] * len(always)  # type: ignore[list-item]
            for p, grad in zip(always, due, strict=True):
                p.grad = grad
        step.step()
        step.zero_grad()
    assert losses_hash(losses) == losses_hash(task.loss for task in tasks)
    assert state_hash(mine) == state_hash(model)
    states = {f"{n}.{k}": v for n, p in named for k, v in step.state.get(p, {}).items() if isinstance(v, Tensor)}
    theirs = {k: v for k, v in optimizer_tensors(optimizer).items() if ".pending." not in k}
    assert states.keys() == theirs.keys() and all(torch.equal(states[k], theirs[k]) for k in states)


def test_only_what_a_subnet_selected_is_written() -> None:
    r = recipe()
    model = r.build_model()
    optimizer = r.build_optimizer(model)
    for task in r.tasks(6):
        before = {n: t.clone() for n, t in model.state_dict().items()}
        for j, (x, y) in enumerate(task.micro_batches):
            with sn.keyed_rng(task, j):
                loss = r.loss(model(x, arch=task.arch), y, task, j)
                loss.backward()
            task.report(j, loss)
        task.set_lr(optimizer)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        chosen = ("stem.", "head.", *(f"{label}.{option}." for label, option in task.arch.items()))
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, before[name]) != name.startswith(chosen), name


def test_a_frozen_layer_keeps_its_statistics() -> None:
    r = recipe(space="test_plain_loop.py:NormFirst", shared="frozen")
    model, _, tasks = run_plain(r, 8)
    assert {task.arch["choice"] for task in tasks} == {0, 1}
    for name, tensor in r.build_model().state_dict().items():
        same = torch.equal(tensor, model.state_dict()[name])
        assert same == name.startswith(("norm", "head")), name


class NormFirst(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.choice = sn.LayerChoice([nn.Linear(6, 4), nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))])
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.choice(self.norm(x)))


def test_frozen_statistics_are_still_those_of_the_batch_in_training() -> None:
    """Only the running averages stay; a batch is normalised by itself."""
    r = recipe(space="test_plain_loop.py:NormFirst", shared="frozen")
    model: Any = r.build_model()
    x = torch.randn(9, 6) * 5 + 3
    y = model(x, arch={"choice": 0})
    wanted = model.head(getattr(model.choice, "0")(F.batch_norm(x, None, None, training=True)))
    torch.testing.assert_close(y, wanted)
    assert model.norm.running_mean.tolist() == [0.0] * 6 and int(model.norm.num_batches_tracked) == 0


def test_flushing_a_copy_applies_what_waits() -> None:
    r = lines(shared="delayed:3", optimizer={"name": "sgd"}, lr=0.5)
    model, optimizer, _ = run_plain(r, 5)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    delayed = delayed_of(optimizer)
    assert delayed is not None and [y for y, _ in delayed.pending] == [3, 4]
    pending = list(delayed.pending)
    delayed.flush(r.lr_of, optimizer)
    for name, tensor in model.state_dict().items():
        wanted = before[name]
        for _, grads in pending:
            if name in grads:
                wanted = wanted - 0.5 * grads[name]  # type: ignore[operator]
        assert torch.equal(tensor, wanted) == True  # noqa: E712
    assert not delayed.pending


def test_dropout_is_keyed_and_equal_in_every_run() -> None:
    one, two = (run_plain(recipe(space_args={"drop": 0.5}), 5) for _ in range(2))
    assert state_hash(one[0]) == state_hash(two[0])
    torch.manual_seed(123)
    assert state_hash(run_plain(recipe(space_args={"drop": 0.5}), 5)[0]) == state_hash(one[0])
    assert state_hash(run_plain(recipe(space_args={"drop": 0.5}, seed=4), 5)[0]) != state_hash(one[0])


def test_the_loop_leaves_the_callers_generators_alone() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    run_plain(recipe(data_args={"augment": True}), 2)
    assert torch.equal(torch.rand(3), wanted)


def test_a_learning_sampler_sees_losses_with_its_lag() -> None:
    r = recipe(sampler="small.py:learner", feedback_lag=4)
    archs = [task.arch for task in run_plain(r, 12)[2]]
    assert archs == [task.arch for task in run_plain(recipe(sampler="small.py:learner", feedback_lag=4), 12)[2]]
    assert archs != [task.arch for task in run_plain(recipe(sampler="small.py:learner", feedback_lag=2), 12)[2]]


def forgetful(space: nn.Module, seed: int) -> Any:
    while True:
        yield {"blocks.0": 1, "blocks.2": 0}


def test_an_arch_that_leaves_out_what_matters_is_refused() -> None:
    with pytest.raises(UserError, match=r"arch lacks 'blocks.1', which is active; legal: 0, 1, 2"):
        run_plain(recipe(sampler="test_plain_loop.py:forgetful"), 1)


def test_threads_are_part_of_the_recipe() -> None:
    r = recipe()
    model = r.build_model()
    task = next(r.tasks(1))
    torch.set_num_threads(2)
    with (
        pytest.raises(UserError, match=r"threads = 1, but torch uses 2 in this process.*set_num_threads\(1\)"),
        sn.keyed_rng(task, 0),
    ):
        model(task.micro_batches[0][0], arch=task.arch)
    torch.set_num_threads(1)
    check_threads(1)


class Unused(NormFirst):
    def __init__(self) -> None:
        super().__init__()
        self.other = sn.LayerChoice([nn.Linear(3, 3), nn.Identity()])


class Half(NormFirst):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.choice.get_submodule("0")(self.norm(x)) + 0 * self.choice(self.norm(x)).sum())


class Skipped(sn.ModelSpace):
    """The second candidate's inner choice is never called."""

    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = sn.LayerChoice([nn.Linear(6, 4), nn.Linear(6, 4)])
            self.line = nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.line(x)

    def __init__(self) -> None:
        super().__init__()
        self.choice = sn.LayerChoice([nn.Linear(6, 4), Skipped.Lazy()])

    def forward(self, x: Tensor) -> Tensor:
        return self.choice(x)


def test_candidates_that_no_arch_runs_are_refused() -> None:
    with pytest.raises(SpaceError, match=r"the choice at 'other' is run by no arch"):
        recipe(space="test_plain_loop.py:Unused").built.groups  # noqa: B018
    with pytest.raises(SpaceError, match=r"the choice at 'choice.1.inner' is run by no arch"):
        recipe(space="test_plain_loop.py:Skipped").built.groups  # noqa: B018
    recipe(space="test_plain_loop.py:Half").built.groups  # noqa: B018


def test_always_shared_groups() -> None:
    built = recipe().built
    assert built.always == (frozenset({"stem", "head"}), frozenset())
    assert recipe(space="test_plain_loop.py:NormFirst").built.always == ({"norm", "head"}, {"norm#buffers"})
