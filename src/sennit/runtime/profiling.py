"""A profile of a recipe's space on this machine, with the kernels that a run would use."""

from __future__ import annotations

import torch

from sennit.profile.links import measure_links
from sennit.profile.measure import Meter
from sennit.profile.profile import Profile
from sennit.recipe import Recipe
from sennit.runtime.fingerprint import fingerprint
from sennit.supernet.context import set_kernel_flags


def measure(recipe: Recipe, device: torch.device, each_s: float = 0.05) -> Profile:
    """Measure. Sets the kernels of this process, and starts CUDA in it on a GPU: call it in a child.

    Args:
        each_s: how long one measurement may be repeated, seconds.
    """
    set_kernel_flags(recipe.precision, deterministic=not recipe.allow_nondeterministic)
    measured = Meter(recipe.built, device, each_s).all()
    return Profile(
        device=device.type, micro_batch=-(-recipe.batch_size // recipe.micro_batches), kinds=measured.kinds,
        steps=measured.steps, fingerprint=fingerprint(device.type), links=measure_links(device),
    )  # fmt: skip
