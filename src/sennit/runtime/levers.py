"""Changes that could bring a run something, one at a time, and what tasks take with each.

Shared by those who look back on a run (`prospect`) and ahead to one (`recipe_run`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sennit.profile.costs import Costs, Scaled, rows_of
from sennit.profile.quick import block_order
from sennit.recipe import Placement, Recipe
from sennit.runtime.forecast import RecipeLoad
from sennit.runtime.placing import plans_of
from sennit.runtime.scheduling import in_flight_of, policy_of, settled
from sennit.runtime.sizes import Sizes

ROWS = "if half the rows take half the time"
"""What micro-batches of another size take is not known: small layers take as long for fewer rows."""


@dataclass(frozen=True)
class Seconds:
    """What a run takes: tasks of one micro-batch; beyond the last gradient's, the optimizer's of each step; bytes of
    messages and activations, if they are known."""

    costs: Costs
    stepping: Mapping[str, float] = field(default_factory=dict[str, float])
    sizes: Sizes | None = None

    def scaled(self, by: float) -> Seconds:
        """With `by` times as many rows in a micro-batch. A step takes as long."""
        sizes = None if self.sizes is None else replace(self.sizes, by=self.sizes.by * by)
        return Seconds(Scaled(self.costs, by), self.stepping, sizes)


@dataclass(frozen=True)
class Lever:
    """A change.

    Attributes:
        change: as an option, or as a line of the recipe.
        recipe, placement, seconds: with it. Another recipe trains other weights.
        provided: what is taken for granted.
    """

    change: str
    recipe: Recipe
    placement: Placement
    seconds: Seconds
    provided: str = ""


def levers(recipe: Recipe, placement: Placement, seconds: Seconds) -> Iterator[Lever]:
    """Those that make sense here.

    Args:
        placement: as it was asked for.
    """
    policy = policy_of(recipe, placement)

    def placed(change: str, **changes: Any) -> Lever:
        return Lever(change, recipe, replace(placement, **changes), seconds)

    n = in_flight_of(recipe, settled(recipe, placement))
    yield placed(f"--in-flight {2 * n}", in_flight=2 * n)
    if policy.split is None and not placement.split:
        yield placed("--split", split=True)
    if placement.release == "stage" and "layer" in policy.releases:
        yield placed("--release layer", release="layer")
    if policy.chunked and placement.plan is None:
        more = placement.chunks + 1
        if placement.workers * more <= len(block_order(recipe.built)):
            yield placed(f"--chunks {more}", chunks=more)
    if recipe.batch_size % (2 * recipe.micro_batches) == 0:
        yield _other_rows(recipe, placement, seconds, 2 * recipe.micro_batches)
    if recipe.micro_batches % 2 == 0:
        yield _other_rows(recipe, placement, seconds, recipe.micro_batches // 2)
    if placement.chunks > 1 and placement.plan is None:
        yield placed(f"--chunks {placement.chunks - 1}", chunks=placement.chunks - 1)
    if placement.plan is not None and placement.chunks == 1:
        yield placed("no --plan", plan=None)
    alone = placement.replicas == 1 and placement.plan is None
    if alone and placement.workers > 2 and not recipe.sync_rule.per_placement:
        yield placed(f"--workers {placement.workers - 1}", workers=placement.workers - 1)
    if recipe.sampler == "uniform" and recipe.sync_rule.kind == "csp":
        yield Lever('sampler = "fair"', with_changes(recipe, sampler="fair"), placement, seconds)
    if recipe.built.always[0] and recipe.sharing.kind == "strict" and recipe.sync_rule.kind == "csp":
        yield Lever('shared = "delayed:2"', with_changes(recipe, shared="delayed:2"), placement, seconds)


def _other_rows(recipe: Recipe, placement: Placement, seconds: Seconds, micro_batches: int) -> Lever:
    made = with_changes(recipe, micro_batches=micro_batches)
    by = rows_of(made.built) / rows_of(recipe.built)
    return Lever(f"micro_batches = {micro_batches}", made, placement, seconds.scaled(by), ROWS)


def load_of(
    recipe: Recipe, held: Placement, seconds: Seconds, steps: int, *, cut_by: Costs | None = None
) -> RecipeLoad:
    """The first `steps` subnets, cut by what their blocks take; `held` is settled.

    Args:
        cut_by: what the plan takes blocks to take, if that is not `seconds`.
    """
    plans = plans_of(recipe.built, held, waits=cut_by or seconds.costs)
    return RecipeLoad(recipe, held, plans, seconds.costs, steps, seconds.stepping, seconds.sizes)


def with_changes(recipe: Recipe, **changes: Any) -> Recipe:
    """Another recipe with the same recorded programs."""
    made = replace(recipe, **changes)
    built = copy.copy(recipe.built)
    built.recipe = made
    made.__dict__["built"] = built
    return made
