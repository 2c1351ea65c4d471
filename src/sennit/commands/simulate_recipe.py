"""`sennit simulate --recipe`: a recipe's own stream, before it runs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from sennit.errors import UserError

if TYPE_CHECKING:
    from sennit.commands.simulate import Simulate
    from sennit.runtime.recipe_run import RecipeRun

OF_SPACE = (
    "sync", "warmup", "micro_batches", "sizes", "joined", "sampler", "shared", "seed", "out_bytes", "held_bytes",
    "swap_bytes",
)  # fmt: skip
ONLY_SPACES = ("warmup", "sizes", "joined")
OF_RECIPE = ("waits", "plan")


def refuse_mixtures(options: Simulate) -> None:
    """A space or a recipe, each with its own options.

    Raises:
        UserError: both, none, or an option of the other.
    """
    if bool(options.space) == (options.recipe is not None):
        raise UserError(
            "give --space NAME, choice blocks alone, or --recipe RECIPE with --waits PROFILE, what you train"
        )
    if options.recipe is not None and options.waits is None:
        raise UserError(
            f"--recipe {options.recipe} needs what its layers take: measure it with `sennit profile {options.recipe} "
            "--out FILE`, and give --waits FILE"
        )
    if options.subnets < 1:
        raise UserError(f"--subnets must be at least 1, got {options.subnets}")
    mine, others = ("--recipe", OF_SPACE) if options.recipe is not None else ("--space", OF_RECIPE)
    defaults = {field.name: field.default for field in fields(options)}
    for name in others:
        if getattr(options, name) != defaults[name]:
            where = "the recipe or the profile says it" if mine == "--recipe" else "it belongs to --recipe"
            where = "it is of --space alone" if name in ONLY_SPACES else where
            option = "-M" if name == "micro_batches" else f"--{name.replace('_', '-')}"
            raise UserError(f"{option} does not go with {mine}: {where}; leave it out")


def recipe_run(options: Simulate) -> RecipeRun:
    """What the options describe.

    Raises:
        UserError: something is missing, or cannot run so.
    """
    from sennit.commands.simulate import read_in_flight, read_release
    from sennit.commands.train import recipe_file
    from sennit.recipe import Placement, load_recipe
    from sennit.runtime.recipe_run import RecipeRun, seconds_of
    from sennit.runtime.refuse import check
    from sennit.runtime.request import Request

    assert options.recipe is not None and options.waits is not None, "refused before"
    recipe = load_recipe(recipe_file(options.recipe))
    if options.in_flight == "best":
        raise UserError("--in-flight best is found with --space; with --recipe give a number, or leave it out")
    device, seconds = seconds_of(options.waits, recipe)
    virtual = Placement(
        workers=options.workers, replicas=options.replicas, device="virtual", schedule=options.schedule,
        plan=None if options.plan is None else str(options.plan),
        in_flight=read_in_flight(options.in_flight) if options.in_flight not in ("", "0") else 0,
        chunks=options.chunks, release=read_release(options.release) or "stage", split=options.split,
    )  # fmt: skip
    check(Request(recipe=recipe, placement=virtual))
    return RecipeRun(recipe, replace(virtual, device=device), seconds, options.subnets, options.described_cluster())
