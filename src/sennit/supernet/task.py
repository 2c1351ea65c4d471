"""`Task`: one subnet of the stream, as a plain loop sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sennit.errors import UserError
from sennit.program.groups import Groups
from sennit.program.template import leaves, map_tree
from sennit.space.names import canonical_names
from sennit.supernet.bulk_step import bulk_of
from sennit.supernet.clip import Clip, factor, fold_norms, grad_norms, scale_
from sennit.supernet.context import StepContext, step_context
from sennit.supernet.generators import generators_restored
from sennit.supernet.optim import delayed_of, with_grad

if TYPE_CHECKING:
    from sennit.recipe import Recipe


class Task:
    """Subnet `seq_id` of a recipe: its arch, its micro-batches, its learning rate.

    Attributes:
        seq_id: position in the stream, from 0.
        arch: canonical.
        micro_batches: M pairs `(x, y)`.
        lr: learning rate of this subnet's step.
    """

    def __init__(
        self, recipe: Recipe, seq_id: int, arch: dict[str, Any], micro_batches: Sequence[tuple[Any, Any]],
        on_loss: Callable[[Task], None], groups: Groups,
    ) -> None:  # fmt: skip
        self.recipe = recipe
        self.seq_id = seq_id
        self.arch = arch
        self.micro_batches = micro_batches
        self.lr = recipe.lr_of(seq_id)
        self.counts: list[int] | None = None
        self.reported: dict[int, float] = {}
        self._on_loss = on_loss
        self._groups = groups

    @property
    def loss(self) -> float:
        """Float32 left fold of the micro-batches' shares, once all are reported."""
        return fold_losses([self.reported[j] for j in range(len(self.micro_batches))])

    def report(self, micro_batch: int, loss: Tensor) -> None:
        """Say what micro-batch `micro_batch`'s share of the loss was."""
        self.reported[micro_batch] = float(loss.detach())
        if len(self.reported) == len(self.micro_batches):
            self._on_loss(self)

    def set_lr(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the learning rate of this subnet's step."""
        for group in optimizer.param_groups:
            group["lr"] = self.lr
        for held in (delayed_of(optimizer), bulk_of(optimizer)):
            if held is not None:
                held.seq_id = self.seq_id

    def clip_(self, model: nn.Module) -> None:
        """Clip the gradients that exist, as the recipe says. Under `bulk:K` the optimizer does, once per bulk."""
        rule = self.recipe.clipping
        if rule.kind == "none" or self.recipe.sync_rule.bulk(workers=1) > 1:
            return
        binding = model.__dict__.get("_binding")
        if binding is None:
            names, parameters = canonical_names(model), model.parameters()
        else:  # of a space that has run; its parameters stay the same objects
            names, parameters = binding.names, binding.parameters
        clip_({names[id(p)]: p.grad for p in with_grad(parameters) if p.grad is not None}, rule, self._groups)


def clip_(grads: Mapping[str, Tensor], rule: Clip, groups: Groups) -> None:
    """Clip gradients by name, in place."""
    if rule.kind == "global":
        clip_global_(grads, rule)
    elif rule.kind == "layer":
        by_group: dict[str, dict[str, Tensor]] = {}
        for name, grad in grads.items():
            by_group.setdefault(groups.of_name[name].name, {})[name] = grad
        for members in by_group.values():
            clip_global_(members, rule)


def clip_global_(grads: Mapping[str, Tensor], rule: Clip) -> None:
    """Clip these gradients by their common norm."""
    norm = fold_norms(grad_norms(grads))
    by = factor(rule.limit, norm)
    scale_((grad, by) for grad in grads.values())


def fold_losses(losses: Sequence[float]) -> float:
    """Float32 left fold of the micro-batches' losses."""
    total = np.float32(losses[0])
    for loss in losses[1:]:
        total = np.float32(total + np.float32(loss))
    return float(total)


def split_batch(x: Any, y: Any, m: int) -> list[tuple[Any, Any]]:
    """M micro-batches of a collated batch: `torch.tensor_split` of every tensor along dimension 0.

    Raises:
        UserError: the batch has fewer rows than M.
    """
    rows = {t.shape[0] if t.dim() else 0 for t in leaves((x, y)) if isinstance(t, Tensor)}
    if not rows:
        raise UserError(f"a batch (x, y) must hold tensors, got {type(x).__name__} and {type(y).__name__}")
    if min(rows) < m:
        raise UserError(
            f"a batch of {min(rows)} rows cannot be split into micro_batches = {m}; "
            "raise batch_size or lower micro_batches"
        )
    if m == 1:
        return [(x, y)]
    parts: dict[int, tuple[Tensor, ...]] = {}

    def part(tree: Any, j: int) -> Any:
        def leaf(item: Any) -> Any:
            if not isinstance(item, Tensor):
                return item
            if id(item) not in parts:
                parts[id(item)] = torch.tensor_split(item, m)
            return parts[id(item)][j]

        return map_tree(leaf, tree)

    return [(part(x, j), part(y, j)) for j in range(m)]


@contextmanager
def keyed_rng(task: Task, micro_batch: int) -> Iterator[None]:
    """Within this context every step of a space draws from its own key, under the recipe's precision.

    Raises:
        UserError: the process does not use the recipe's number of threads.
    """
    recipe = task.recipe
    check_threads(recipe.threads)
    x = next((t for t in leaves(task.micro_batches[micro_batch]) if isinstance(t, Tensor)), None)
    device = x.device if x is not None else torch.device("cpu")
    with (
        generators_restored(),
        step_context(StepContext.of(recipe.seed, task.seq_id, micro_batch, recipe.precision, device)),
    ):
        yield


def check_threads(threads: int) -> None:
    """Raise if torch would use another number of intra-op threads than the recipe says."""
    if torch.get_num_threads() != threads:
        raise UserError(
            f"the recipe says threads = {threads}, but torch uses {torch.get_num_threads()} in this process, which "
            f"changes bits; call torch.set_num_threads({threads}) or sennit.load_recipe, which does"
        )
