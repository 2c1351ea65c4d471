"""`Built`: the things a recipe names, made once and shared by all engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from sennit.data.order import KeyedBatches
from sennit.errors import RecipeError, SpaceError
from sennit.program.copied import copied
from sennit.program.covering import covering_programs
from sennit.program.groups import Groups
from sennit.program.recordings import Recordings, other_batch, spec_of
from sennit.program.spec import Spec
from sennit.program.step import Program
from sennit.program.template import leaves, map_tree
from sennit.space.always import always_shared
from sennit.space.draw_parts import AtOnce, Block, cores
from sennit.space.initialise import build_on_meta, initialise
from sennit.space.model_space import ModelSpace, as_call
from sennit.space.names import canonical_names, unique_tensors
from sennit.supernet.bulk_step import BulkStep
from sennit.supernet.context import current
from sennit.supernet.edge import enter
from sennit.supernet.keys import name_key
from sennit.supernet.loss import LOSSES, LossFunction, count_terms, share_of_loss
from sennit.supernet.optim import DelayedStep, make_optimizer
from sennit.supernet.resolve import is_file_name, resolve
from sennit.supernet.samplers import Fair, Feed, FromFile, Learning, Result, Sampler, Uniform
from sennit.supernet.sources import code_hashes
from sennit.supernet.sync import Sync
from sennit.supernet.task import Task, clip_, split_batch

if TYPE_CHECKING:
    from sennit.recipe import Recipe

LOSS_STEP = name_key("loss")
"""Random key of the loss step."""


class Built:
    """Space, data, loss, sampler, programs, groups and sync of a recipe.

    Raises:
        UserError: whatever the recipe names cannot be found, built or recorded.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.dry: set[tuple[str, bool]] = set()
        """Devices on which every step has been run once, and whether with its backward split (`runtime.dryrun`)."""
        self.block_s: dict[str, float] = {}
        """Seconds of each block, once measured (`sennit.profile.quick`)."""

    @property
    def files(self) -> dict[str, str]:
        """Recipe key to `file.py:Name`, where it names one."""
        recipe = self.recipe
        named = {"space": recipe.space, "data": recipe.data, "loss": recipe.loss_name, "sampler": recipe.sampler}
        return {key: text for key, text in named.items() if is_file_name(text)}

    @cached_property
    def sources(self) -> dict[str, str]:
        """Hash of the code of each file that the recipe names, by the key that names it: `space`; and of those beside
        it that it imports: `space: blocks.py`."""
        return {
            f"{key}: {beside}" if beside else key: held
            for key, text in self.files.items()
            for beside, held in code_hashes(text, self.recipe.base).items()
        }

    def changed_sources(self, earlier: Mapping[str, str]) -> list[str]:
        """Which files, as `key = 'file.py:Name'`, or as imported by that, have other code than they had."""
        changed = (key.partition(": ") for key, now in self.sources.items() if earlier.get(key, now) != now)
        named = ((f"{key} = {self.files[key]!r}", file) for key, _, file in changed)
        return [f"{file} (imported by {what})" if file else what for what, file in named]

    # -- space and programs

    @cached_property
    def space_factory(self) -> Callable[..., nn.Module]:
        from sennit.space.ready import SPACES

        name = self.recipe.space
        return SPACES[name] if name in SPACES else resolve(name, self.recipe.base, "space", SPACES)

    @cached_property
    def skeleton(self) -> nn.Module:
        """The space without memory."""
        space = build_on_meta(self.space_factory, self.recipe.space_args)
        if not isinstance(space, ModelSpace):
            raise SpaceError(
                f"space = {self.recipe.space!r} must be a sennit.ModelSpace, got a {type(space).__name__}; derive it "
                f"from that in place of torch.nn.Module: class {type(space).__name__}(sennit.ModelSpace)"
            )
        for module in space.modules():
            held = (*module._parameters.values(), *module._buffers.values())
            if any(is_lazy(tensor) for tensor in held if tensor is not None):
                raise SpaceError(
                    f"{type(module).__name__} has a parameter whose shape is not known before the first forward; give "
                    "the sizes, as in nn.Linear(8, 4) in place of nn.LazyLinear(4)"
                )
            if not module.training:
                still = ", ".join(repr(path or "the space") for path, m in space.named_modules() if not m.training)
                raise SpaceError(
                    f"{still:.200}: put into eval mode by the space, and all modules train in training mode, on every "
                    "worker. Freeze by what a layer computes: F.batch_norm(x, self.mean, self.var, ...) in a module of "
                    "your own, no dropout; requires_grad_(False) for parameters"
                )
            if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
                raise SpaceError("sparse=True is not supported: a sparse gradient has no fixed order; leave it out")
        return space

    @cached_property
    def recordings(self) -> Recordings:
        recordings = Recordings(self.skeleton)
        recordings.settle_first = lambda: self.groups
        return recordings

    @cached_property
    def modules(self) -> nn.Module:
        """A copy of the space without memory, which a worker binds slots into. Made before the fork."""
        return copied(self.recordings.skeleton)

    def program(self, arch: dict[str, Any], inputs: Any = None) -> Program:
        """The program of an arch. `inputs`: specs of the call; the example batch's if left out."""
        example, other = self.example
        return self.recordings.program(arch, example if inputs is None else inputs, other if inputs is None else None)

    def looked_at(self, arch: dict[str, Any]) -> Program:
        """The same of an arch that need not be one that can be trained."""
        return self.recordings.program(arch, *self.example, trains=False)

    @cached_property
    def example(self) -> tuple[Any, Any]:
        """Specs of two calls of different shape: from two batches where their shapes differ, else by rows."""
        first = self.call_specs(0)
        for seq_id in range(1, 9):
            later = self.call_specs(seq_id)
            if repr(map_tree(_trailing, later)) != repr(map_tree(_trailing, first)):
                return first, later
        return first, other_batch(first)

    def call_specs(self, seq_id: int) -> Any:
        x, _ = self.micro_batches(self.batches[seq_id])[0]
        return spec_of(as_call(x))

    @cached_property
    def covering(self) -> list[Program]:
        """Programs that together run every candidate."""
        with self.recordings.covering():
            return covering_programs(self.recordings.structure, self.program)

    @cached_property
    def groups(self) -> Groups:
        covering = self.covering
        self.recordings.refuse_uncalled()
        return Groups(self.recordings.skeleton, self.recordings.settle(covering))

    @cached_property
    def always(self) -> tuple[frozenset[str], frozenset[str]]:
        """Always-shared parameter groups and buffer groups."""
        return always_shared(self.recordings.structure, self.groups, self.looked_at)

    @cached_property
    def frozen_names(self) -> frozenset[str]:
        """Parameters and buffers that `shared = "frozen"` keeps at their initial values."""
        if self.recipe.sharing.kind != "frozen":
            return frozenset()
        names = self.always[0] | self.always[1]
        return frozenset(n for group in names for n in self.groups.by_name[group].names)

    @property
    def trained(self) -> list[str]:
        """Names of the parameters that a step may change."""
        tensors = unique_tensors(self.recordings.skeleton)
        parameters = {n for n, t in tensors.items() if isinstance(t, nn.Parameter) and t.requires_grad}
        return sorted(parameters - self.frozen_names)

    def sync(self, workers: int) -> Sync:
        return self.recipe.sync_rule.make(self.always[0], self.recipe.sharing, workers)

    # -- model and optimizer

    def model(self, at_once: AtOnce | None = None) -> nn.Module:
        """The space with its initial values.

        Args:
            at_once: lets several processes draw them, to the same bits.
        """
        space = build_on_meta(self.space_factory, self.recipe.space_args)
        if at_once is None or cores() < 2:
            initialise(space, self.recipe.seed)
        else:
            block = Block(space)
            initialise(space, self.recipe.seed, block.allocate, at_once, cores())
            block.settle(space)
        frozen = self.frozen_names
        names = canonical_names(space)
        for parameter in space.parameters():
            if names[id(parameter)] in frozen:
                parameter.requires_grad_(False)
        space.__dict__["_recordings"] = self.recordings
        space.__dict__["_kept_buffers"] = frozen
        return space

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        trained = {n: t for n, t in unique_tensors(model).items() if isinstance(t, nn.Parameter) and t.requires_grad}
        recipe = self.recipe
        optimizer = make_optimizer(recipe.optimizer_name, recipe.optimizer_arguments, trained.items(), recipe.lr_of(0))
        if recipe.sharing.kind == "delayed":
            names = [n for group in self.always[0] for n in self.groups.by_name[group].names]
            DelayedStep(optimizer, names, recipe.sharing.lag)
        if (size := recipe.sync_rule.bulk(workers=1)) > 1:
            BulkStep(optimizer, size, lambda grads: clip_(grads, recipe.clipping, self.groups))
        return optimizer

    # -- data

    def dataset(self, split: str) -> Any:
        """The data set of a split, made by the recipe's factory."""
        from sennit.data.making import make_dataset

        return make_dataset(self.recipe.data, self.recipe.base, self.recipe.data_args, split)

    @cached_property
    def batches(self) -> KeyedBatches:
        return KeyedBatches(self.dataset("train"), self.recipe.batch_size, self.recipe.seed)

    def micro_batches(self, batch: Any) -> list[tuple[Any, Any]]:
        return split_batch(batch[0], batch[1], self.recipe.micro_batches)

    # -- loss

    @cached_property
    def loss_function(self) -> LossFunction:
        name = self.recipe.loss_name
        return LOSSES[name] if name in LOSSES else resolve(name, self.recipe.base, "loss", LOSSES)

    def loss(self, output: Any, target: Any, task: Task, micro_batch: int) -> Tensor:
        if task.counts is None:
            task.counts = count_terms(self.loss_function, [y for _, y in task.micro_batches], output)
        loss = self.loss_of(output, target, task.counts, micro_batch)
        # a subnet whose layers are all frozen or without weights trains nothing: then backward() has nothing to do
        return loss if loss.requires_grad else loss.detach().requires_grad_()

    def loss_of(self, output: Any, target: Any, counts: list[int], micro_batch: int) -> Tensor:
        """The loss as a step: the output enters through Edges, draws are keyed."""
        entered = map_tree(lambda t: enter(t) if isinstance(t, Tensor) else t, output)
        settled = map_tree(lambda t: enter(t) if isinstance(t, Tensor) else t, target)
        context = current()
        if context is not None:
            context.enter(LOSS_STEP)
        return share_of_loss(self.loss_function, entered, settled, counts, micro_batch)

    # -- stream

    def sampler(self) -> Sampler:
        recipe, structure = self.recipe, self.recordings.structure
        if recipe.sampler == "uniform":
            return Uniform(structure, recipe.seed)
        if recipe.sampler == "fair":
            return Fair(structure, recipe.seed)
        if is_file_name(recipe.sampler):
            factory = resolve(recipe.sampler, recipe.base, "sampler", ("uniform", "fair"))
            return Learning(structure, self.skeleton, recipe.seed, factory, recipe.sampler)
        if recipe.sampler.endswith((".json", ".jsonl")):
            return FromFile(structure, Path(recipe.base) / recipe.sampler)
        raise RecipeError(
            f"sampler = {recipe.sampler!r} must be 'uniform', 'fair', a .json or .jsonl file of archs, or "
            "'file.py:function'"
        )

    def feed(self) -> Feed:
        return Feed(self.sampler(), self.recipe.feedback_lag)

    def arch_of(self, drawn: dict[str, Any]) -> dict[str, Any]:
        """The arch with choices dropped that only feed steps which do not run."""
        return self.program(drawn).arch

    def tasks(self, steps: int, start: int = 0, earlier: list[Result] | None = None) -> Iterator[Task]:
        feed, groups = self.feed(), self.groups
        feed.replay(start, earlier or [])

        def on_loss(task: Task) -> None:
            feed.report(Result(task.seq_id, task.arch, task.loss))

        for seq_id in range(start, steps):
            arch = self.arch_of(feed.draw())
            yield Task(self.recipe, seq_id, arch, self.micro_batches(self.batches[seq_id]), on_loss, groups)


def _trailing(leaf: Any) -> Any:
    return (leaf.shape[1:], leaf.dtype) if isinstance(leaf, Spec) else leaf


def tensors_in(tree: Any) -> list[Tensor]:
    return [leaf for leaf in leaves(tree) if isinstance(leaf, Tensor)]
