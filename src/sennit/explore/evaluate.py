"""`Evaluator`: the metrics of one network of a trained supernet, the same for the same recipe and weights.

A network is frozen out of the supernet, its BatchNorm statistics are re-estimated, since those of the
supernet are a mixture over all subnets (Guo et al., "Single Path One-Shot Neural Architecture Search", ECCV
2020, section 3.3), and it runs over held-out samples. Neither the supernet, nor the stream of training
batches, nor a generator of the process is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sennit.errors import SpaceError, UserError
from sennit.explore.frozen import FrozenNetwork, freeze
from sennit.explore.heldout import held_out, recalibration
from sennit.explore.metrics import MODES, Mode, accuracy_of, count_flops, count_parameters, one_sample
from sennit.explore.state import quiet
from sennit.program.recordings import spec_of
from sennit.program.template import map_tree
from sennit.runtime.full import refused_if_swallowed
from sennit.space.choice import Arch
from sennit.space.model_space import ModelSpace, as_call
from sennit.supernet.edge import settled
from sennit.supernet.keys import key_for

if TYPE_CHECKING:
    from sennit.recipe import Recipe

Network = Callable[..., Any]
"""A frozen network, or an exported one."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a network is measured on. Everything here may change the numbers."""

    split: str = "valid"
    """Split of the data set."""
    samples: int | None = None
    """How many held-out samples; None for all."""
    batch_size: int | None = None
    """Rows per forward (tokens for data sets with length buckets); None for the recipe's."""
    recalibrate: int = 8
    """Training batches to re-estimate BatchNorm statistics with; 0 keeps those of the supernet."""
    score: bool = True
    """Ask the data set's `score`, if it has one, for further metrics."""

    def __post_init__(self) -> None:
        for name, low in (("samples", 1), ("batch_size", 1), ("recalibrate", 0)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise UserError(f"evaluation: {name} must be at least {low}, got {value}")


DEFAULT = Evaluation()
"""All held-out samples, statistics from 8 batches."""


class Evaluator:
    """Evaluates networks of one recipe, all on the same samples.

    Args:
        recipe: data, loss, seed and precision are taken from it.
        rule: what to measure on.
        device: where the model lives.
    """

    def __init__(self, recipe: Recipe, rule: Evaluation = DEFAULT, device: torch.device | str = "cpu") -> None:
        self.recipe, self.rule, self.device = recipe, rule, torch.device(device)

    # -- data, loaded once

    @cached_property
    def dataset(self) -> Any:
        return self.recipe.built.dataset(self.rule.split)

    @cached_property
    def batches(self) -> list[Any]:
        """Held-out `(x, y)`."""
        size = self.rule.batch_size or self.recipe.batch_size
        return held_out(self.dataset, size, self.rule.samples, self.recipe.seed, self.device)

    @cached_property
    def recalibration_inputs(self) -> list[Any]:
        train, count = self.recipe.built.batches, self.rule.recalibrate
        return recalibration(train.dataset, train.batch_size, count, self.recipe.seed, self.device)

    # -- what can be measured

    @property
    def modes(self) -> dict[str, Mode]:
        """Direction of each metric that is known to have one."""
        return {**MODES, **getattr(self.dataset, "modes", {})}

    @property
    def default_objective(self) -> str:
        return "accuracy" if accuracy_of(self.recipe.built.loss_function) else "loss"

    # -- one network

    def canonical(self, model: ModelSpace, arch: Arch) -> dict[str, Any]:
        """The arch without choices that have no say in the network."""
        args, kwargs = as_call(self.batches[0][0])
        return model.recordings.program(arch, spec_of((args, kwargs)), trains=False).arch

    def freeze(self, model: ModelSpace, arch: Arch, *, copy_parameters: bool = False) -> FrozenNetwork:
        """The network of `arch` in eval mode, with the statistics of the supernet."""
        x, precision = self.batches[0][0], self.recipe.precision
        return freeze(model, arch, x, copy_parameters=copy_parameters, precision=precision).eval()

    def costs(self, network: FrozenNetwork) -> dict[str, int]:
        """`parameters`, and `flops` of one sample: what is known of a network before it is evaluated."""
        with self.quiet("flops"):
            return {
                "parameters": count_parameters(network),
                "flops": count_flops(network, one_sample(self.batches[0][0])),
            }

    def recalibrate(self, network: FrozenNetwork) -> None:
        """Re-estimate BatchNorm statistics: averages over training batches, each with the same weight.

        Nothing is done if the network has no such layer, or the rule says 0 batches.
        """
        training = network.training
        network.train()
        norms = [
            m for m in network.modules() if isinstance(m, _BatchNorm) and m.training and m.running_mean is not None
        ]
        if norms and self.rule.recalibrate:
            momenta = [m.momentum for m in norms]
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # cumulative average
            with self.quiet("recalibrate"):
                for x in self.recalibration_inputs:
                    run(network, x)
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
        network.train(training)

    def measure(self, network: Network, *, score: bool = True) -> dict[str, float]:
        """`loss` (mean per term), `accuracy` if the loss has one, and what the data set's `score` returns.

        Args:
            network: in eval mode; frozen or exported.
            score: False leaves the data set's `score` out, as the rule may do too.

        Raises:
            UserError: `score` returned something else than numbers by name.
        """
        function = self.recipe.built.loss_function
        count_right = accuracy_of(function)
        total, terms, right, of = 0.0, 0, 0, 0
        with self.quiet("measure"):
            for x, y in self.batches:
                output = run(network, x)
                loss, n = function(output, y)
                total, terms = total + float(loss), terms + int(n)
                if count_right is not None:
                    hits, among = count_right(output, y)
                    right, of = right + int(hits), of + int(among)
            metrics: dict[str, float] = {}
            if count_right is not None:
                metrics["accuracy"] = right / max(of, 1)
            metrics["loss"] = total / max(terms, 1)
            own = getattr(self.dataset, "score", None) if score and self.rule.score else None
            if own is not None:
                metrics.update(_numbers(own(network, self.device)))
        return metrics

    def evaluate(self, model: ModelSpace, arch: Arch) -> dict[str, float]:
        """All metrics of `arch`, with re-estimated statistics."""
        network = self.prepared(model, arch)
        return {**self.measure(network), **self.costs(network)}

    def prepared(self, model: ModelSpace, arch: Arch, *, copy_parameters: bool = False) -> FrozenNetwork:
        """The network of `arch` as it is evaluated and exported: eval mode, re-estimated statistics."""
        network = self.freeze(model, arch, copy_parameters=copy_parameters)
        self.recalibrate(network)
        return network

    def output(self, network: Network, x: Any) -> Any:
        """What the network returns for input `x`."""
        with self.quiet("measure"):
            return run(network, x)

    @contextmanager
    def quiet(self, purpose: str) -> Iterator[None]:
        """The state in which networks are run; see `sennit.explore.state.quiet`. Raises RunError on a full device that
        would have changed bits."""
        recipe = self.recipe
        key = key_for(recipe.seed, "evaluate " + purpose)
        state = quiet(key, self.device, recipe.threads, recipe.precision, not recipe.allow_nondeterministic)
        with refused_if_swallowed(self.device), state:
            yield


def evaluate(
    recipe: Recipe,
    model: nn.Module,
    arch: Arch,
    rule: Evaluation = DEFAULT,
    device: torch.device | str = "cpu",
) -> dict[str, float]:
    """All metrics of the network `arch` of a trained supernet: `accuracy`, `loss`, `parameters`, `flops`, ...

    Raises:
        ArchError: an arch that the space does not have.
        UserError: no such held-out data.
    """
    return Evaluator(recipe, rule, device).evaluate(as_space(model), arch)


def as_space(model: nn.Module) -> ModelSpace:
    """`model`, which must be a space."""
    if not isinstance(model, ModelSpace):
        raise SpaceError(f"a trained sennit.ModelSpace is needed (recipe.build_model()), got {type(model).__name__}")
    return model


def run(network: Network, x: Any) -> Any:
    """The output for input `x`, contiguous, so that a loss sees the same strides whatever made it."""
    args, kwargs = as_call(x)
    return map_tree(lambda t: settled(t) if isinstance(t, Tensor) else t, network(*args, **kwargs))


def _numbers(score: Any) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in score.items()}
    except (AttributeError, TypeError, ValueError):
        raise UserError(
            f"a data set's score(network, device) must return numbers by name, got {score!r:.120}"
        ) from None
