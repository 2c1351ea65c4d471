"""`Recipe`: what may change the result (docs/contract.md). What may not is `Placement`.

The split is by type: an engine gets both, but nothing that computes a number ever sees the placement. A recipe
is loaded strictly from TOML; an unknown key, a wrong type or a missing file is an error that shows the place in
the file, the value and what is legal.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sennit.errors import RecipeError
from sennit.placement import Placement as Placement
from sennit.strict import convert_strictly
from sennit.supernet.clip import Clip
from sennit.supernet.context import PRECISIONS
from sennit.supernet.lr import LrSchedule, lr_at
from sennit.supernet.optim import check_optimizer
from sennit.supernet.sync import Shared
from sennit.supernet.sync_rule import SyncRule

if TYPE_CHECKING:
    from sennit.supernet.build import Built
    from sennit.supernet.task import Task


@dataclass(frozen=True, kw_only=True)
class CheckpointRule:
    """`[checkpoint]`: when state is saved. It never changes the result."""

    every: int = 50
    """A checkpoint after every so many subnets, and one at the end."""
    keep: int = 3
    """How many of the newest to keep."""


@dataclass(frozen=True, kw_only=True)
class EvaluateRule:
    """`[evaluate]`: subnets scored on held-out data during training, on copies."""

    every: int = 0
    """After every so many subnets; 0 switches it off."""
    random: int = 4
    """How many keyed random archs each time."""
    archs: list[dict[str, Any]] = field(default_factory=list)
    """Fixed archs, scored each time."""
    split: str = "valid"
    """Split of the data set."""
    samples: int = 256
    """How many held-out samples."""
    recalibrate: int = 4
    """Training batches to re-estimate BatchNorm statistics with, on the copy."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that may change the result."""

    space: str
    """A built-in space or `file.py:Name`, a ModelSpace class."""
    data: str
    """A built-in data set or `file.py:Name`, a factory of a map-style dataset of (x, y)."""
    batch_size: int
    """Samples per subnet (tokens for data sets with length buckets)."""
    steps: int
    """Number of subnets; schedules run over it."""
    loss_name: str = "cross_entropy"
    """Key `loss`: a built-in loss or `file.py:function`. (`Recipe.loss` is the function itself.)"""
    sampler: str = "uniform"
    """`uniform`, `fair`, a file of archs (`archs.json`), or `file.py:function` returning an iterator of archs."""
    seed: int = 0
    micro_batches: int = 1
    """M: the batch is split into so many by torch.tensor_split."""
    lr: float | LrSchedule = 0.01
    """A number, or {name = "cosine", base = 0.1, warmup = 10, final = 0.0}."""
    clip: str = "none"
    """`none`, `global:X` or `layer:X`."""
    shared: str = "strict"
    """Always-shared layers: `strict`, `delayed:K` or `frozen`."""
    sync: str = "csp"
    """`csp`, `bulk:K`, or what depends on the number of workers: `bulk-per-worker`, `asp:stash`, `asp:none`."""
    precision: str = "fp32"
    """`fp32`, `tf32` or `bf16`."""
    threads: int = 1
    """Intra-op threads; two threads give other bits than one."""
    feedback_lag: int = 8
    """A learning sampler's draw for subnet y sees the results of subnets <= y - feedback_lag."""
    allow_nondeterministic: bool = False
    """Run what is not deterministic: operators without such a kernel, orders under `asp` that depend on times. Such a
    run is not comparable."""
    space_args: dict[str, Any] = field(default_factory=dict)
    data_args: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=lambda: {"name": "sgd"})
    """`name` and arguments of that optimizer."""
    checkpoint: CheckpointRule = CheckpointRule()
    evaluate: EvaluateRule = EvaluateRule()
    base: str = "."
    """Folder that file names in the recipe are relative to. Set by the loader."""

    def __post_init__(self) -> None:
        for name, low in (
            ("batch_size", 1), ("steps", 1), ("micro_batches", 1), ("threads", 1), ("feedback_lag", 1), ("seed", 0)
        ):  # fmt: skip
            if getattr(self, name) < low:
                raise RecipeError(f"{name} must be at least {low}, got {getattr(self, name)}")
        if self.seed >= 1 << 63:
            raise RecipeError(f"seed must be below 2**63, got {self.seed}")
        if self.precision not in PRECISIONS:
            raise RecipeError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        if not isinstance(self.lr, LrSchedule) and not (isinstance(self.lr, int | float) and 0 <= self.lr < math.inf):
            raise RecipeError(f"lr must be a number >= 0 or a schedule, got {self.lr!r}")
        if "split" in self.data_args:
            raise RecipeError(
                f"data_args.split = {self.data_args['split']!r}: a run calls its data set with split = 'train' to"
                " train, and with [evaluate] split for scores; leave it out of data_args"
            )
        for key in ("optimizer", "space_args", "data_args"):
            if (found := _not_finite(getattr(self, key))) is not None:
                raise RecipeError(f"{key} must hold finite numbers, got {found}")
        for rule, key, low in (
            ("checkpoint", "every", 1), ("checkpoint", "keep", 1), ("evaluate", "every", 0), ("evaluate", "samples", 1)
        ):  # fmt: skip
            if (given := getattr(getattr(self, rule), key)) < low:
                raise RecipeError(f"[{rule}] {key} must be at least {low}, got {given}")
        Clip.parse(self.clip)
        self._check_sync()
        self.optimizer_arguments  # noqa: B018 - checked now, not at the first step

    def _check_sync(self) -> None:
        rule, shared = self.sync_rule, self.sharing
        if rule.kind == "bulk" and rule.behind:
            raise RecipeError(f"sync = {self.sync!r} can be simulated, but not run yet; use bulk:K or asp:stash")
        if rule.kind != "csp" and shared.kind == "delayed":
            raise RecipeError(
                f"shared = {self.shared!r} goes with sync = 'csp'; under {self.sync!r} always-shared layers are read "
                "like all others: set shared = 'strict'"
            )
        if rule.kind == "asp" and self.clipping.kind == "global":
            raise RecipeError(
                f"clip = {self.clip!r} needs the norms of all layers before any may step, and sync = {self.sync!r} "
                "waits for nothing: use clip = 'layer:X'"
            )

    @property
    def optimizer_name(self) -> str:
        name = self.optimizer.get("name")
        if not isinstance(name, str):
            raise RecipeError(f'optimizer.name is missing; write [optimizer] name = "sgd", got {self.optimizer!r}')
        return name

    @property
    def optimizer_arguments(self) -> dict[str, Any]:
        return check_optimizer(self.optimizer_name, {k: v for k, v in self.optimizer.items() if k != "name"})

    @property
    def clipping(self) -> Clip:
        return Clip.parse(self.clip)

    @property
    def sharing(self) -> Shared:
        return Shared.parse(self.shared)

    @property
    def sync_rule(self) -> SyncRule:
        return SyncRule.parse(self.sync)

    def lr_of(self, seq_id: int) -> float:
        return lr_at(self.lr, seq_id, self.steps)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe, without `base`; `Recipe.from_dict` reads it back."""
        plain = asdict(self)
        del plain["base"]
        return {("loss" if key == "loss_name" else key): value for key, value in plain.items()}

    @staticmethod
    def from_dict(plain: Mapping[str, Any], base: str, where: str = "recipe") -> Recipe:
        return convert_strictly(Recipe, {**plain, "base": base}, where, renamed={"loss": "loss_name"})

    def identity(self) -> str:
        """SHA-256 of what decides the bits. Left out: when to stop (`steps`, unless a schedule runs over it),
        when to save, where files lie."""
        plain = self.to_dict()
        del plain["checkpoint"], plain["evaluate"]
        if not (isinstance(self.lr, LrSchedule) and self.lr.name in ("linear", "cosine")):
            del plain["steps"]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    # -- the public API of a plain loop (docs/files.md)

    @cached_property
    def built(self) -> Built:
        """The space, data, loss and sampler that this recipe names, made once."""
        from sennit.supernet.build import Built

        return Built(self)

    def build_model(self) -> nn.Module:
        """The model space with its initial weights: the same bits everywhere."""
        return self.built.model()

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """torch's optimizer over all parameters that train. It skips what a subnet did not write."""
        return self.built.optimizer(model)

    def tasks(self, steps: int | None = None, start: int = 0) -> Iterator[Task]:
        """The subnets `start .. steps-1`, in order. Each must be reported before the next is asked for."""
        return self.built.tasks(self.steps if steps is None else steps, start)

    def loss(self, output: Any, target: Any, task: Task, micro_batch: int) -> Tensor:
        """Share of micro-batch `micro_batch` in the batch's mean loss, a scalar to call `backward()` on."""
        return self.built.loss(output, target, task, micro_batch)


def _not_finite(tree: Any) -> float | None:
    """The first number in a nest that is infinite or NaN."""
    if isinstance(tree, float) and not math.isfinite(tree):
        return tree
    below = list(tree.values()) if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else []
    return next((found for item in below if (found := _not_finite(item)) is not None), None)


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe file, and set this process's threads and kernels to what it says.

    Raises:
        RecipeError: missing file, TOML error, unknown key, wrong type or illegal value, with place and value.
    """
    recipe = read_recipe(path)
    use_recipe(recipe)
    return recipe


def use_recipe(recipe: Recipe) -> None:
    """Set this process's intra-op threads and kernel flags to the recipe's."""
    from sennit.supernet.context import set_kernel_flags

    torch.set_num_threads(recipe.threads)
    set_kernel_flags(recipe.precision, deterministic=not recipe.allow_nondeterministic)


def read_recipe(path: str | Path) -> Recipe:
    """Read and check a recipe file without touching the process."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RecipeError(f"cannot read recipe {path}: {reason}") from error
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path} is not valid TOML: {error}") from error
    if "base" in plain:
        raise RecipeError(f"{path}: unknown key 'base'")
    if isinstance(norm := plain.get("clip"), int | float) and not isinstance(norm, bool):
        raise RecipeError(
            f'{path}: clip = {norm}: say which norm, clip = "global:{norm}" for one over the whole subnet, '
            f'"layer:{norm}" for one per group, or "none"'
        )
    return Recipe.from_dict(plain, str(path.resolve().parent), str(path))
