"""`check`: what cannot run is refused before a run folder is made."""

from __future__ import annotations

from pathlib import Path

import torch

from sennit.errors import UserError
from sennit.profile.costs import read_costs
from sennit.profile.profile import is_profile
from sennit.profile.quick import block_order
from sennit.recipe import Placement
from sennit.runtime.dryrun import dry_run
from sennit.runtime.forked import in_child
from sennit.runtime.full import told_if_full
from sennit.runtime.placing import read_plan, refuse_races
from sennit.runtime.request import Request
from sennit.runtime.scheduling import settled
from sennit.runtime.taking import refuse_existing
from sennit.runtime.transport import gpu_count
from sennit.supernet.bits import same_bits
from sennit.supernet.samplers import refuse_unrepeatable

FULL = (
    "the device is full while layers are tried on it one by one ({why}). Other programs hold its memory, see "
    "`nvidia-smi`; or one layer alone is too large for it"
)


def check(request: Request) -> None:
    """Refuse what cannot run, before anything is written.

    Raises:
        UserError: it cannot run as it is.
        RunError: the device is full already.
    """
    if request.out is not None and not request.resume:
        refuse_existing(request.out)
    recipe, built = request.recipe, request.recipe.built
    if request.steps is not None and request.steps < 1:
        raise UserError(f"--steps must be at least 1, got {request.steps}")
    bulk = recipe.sync_rule.bulk(request.placement.workers)
    steps = recipe.steps if request.steps is None else request.steps
    if steps % bulk:
        legal = " or ".join(str(n) for n in (steps // bulk * bulk, (steps // bulk + 1) * bulk) if n)
        raise UserError(
            f"sync = {recipe.sync!r} steps once per {bulk} subnets, so their number must be a multiple of {bulk}, got "
            f"{steps}; use --steps {legal}"
        )
    if request.offload and request.engine != "plain":
        raise UserError("--offload belongs to --engine plain; the pipeline keeps the supernet in host memory anyway")
    if request.engine == "plain" and request.placement.workers > 1:
        raise UserError(f"--engine plain runs in one process, got --workers {request.placement.workers}")
    if request.placement.device == "virtual" and (request.engine == "plain" or request.resume):
        what = "--engine plain" if request.engine == "plain" else "--resume"
        raise UserError(f"--device virtual trains nothing, so it does not go with {what}")
    if request.placement.executor == "graphs" and recipe.sync_rule.kind == "asp" and not recipe.sync_rule.stash:
        raise UserError(
            f"--executor graphs computes a layer again in its backward, and under sync = {recipe.sync!r} its weights "
            "may have changed since its forward; use sync = 'asp:stash', or --executor eager"
        )
    if request.placement.budget and request.engine == "plain":
        raise UserError(
            f"--budget {request.placement.budget:g} belongs to --engine pipeline; --engine plain keeps everything, or "
            "with --offload only what the subnet uses"
        )
    if request.placement.waits is not None:
        read_costs(Path(request.placement.waits), built)
    if request.placement.device == "cuda":
        gpus = gpu_count()
        if not gpus:
            build = "" if torch.version.cuda else f"; this torch ({torch.__version__}) is built without CUDA"
            raise UserError(f"--device cuda needs a GPU, torch sees none{build}. Use --device cpu; see `sennit doctor`")
    built.loss_function  # noqa: B018 - found now, not at the first step
    built.example  # noqa: B018
    if not recipe.allow_nondeterministic and not same_bits(built.batches[0], built.batches[0]):
        raise UserError(
            f"data = {recipe.data!r} gives another batch 0 when it is loaded again: it keeps state, changes its "
            "samples, or draws from a generator of its own, so the batch would depend on the process that loads it. "
            "Draw with torch, random or numpy's global functions, which are keyed by sample, and return copies; or set "
            "allow_nondeterministic = true"
        )
    built.covering  # noqa: B018
    built.always  # noqa: B018
    if not built.trained:
        frozen = recipe.sharing.kind == "frozen"
        why = (
            "every layer is always shared, and shared = 'frozen'" if frozen else "the space has no trainable parameter"
        )
        knob = "set shared = 'strict'" if frozen else "give it layers with weights"
        raise UserError(f"nothing would be trained: {why}; {knob}")
    sampler = built.sampler()
    if sampler.learning and not recipe.allow_nondeterministic:
        refuse_unrepeatable(built.sampler, recipe.feedback_lag)
    if sampler.learning and request.placement.in_flight > recipe.feedback_lag:
        raise UserError(
            f"--in-flight {request.placement.in_flight} exceeds feedback_lag = {recipe.feedback_lag}: the draw for a "
            "subnet waits for results of earlier ones; lower --in-flight or raise feedback_lag in the recipe"
        )
    placement = request.placement
    if request.engine == "pipeline":
        placement = settled(recipe, placement)
        _check_placement(request, placement)
    if recipe.evaluate.every:
        built.dataset(recipe.evaluate.split)
        for arch in recipe.evaluate.archs:
            built.looked_at(arch)
    run = (placement.device, placement.split)
    if placement.device == "virtual":
        return
    if not recipe.allow_nondeterministic and not {run, (placement.device, True)} & built.dry:
        with told_if_full(FULL):
            in_child(lambda: dry_run(built, torch.device(placement.device), placement.split))
        built.dry.add(run)


def _check_placement(request: Request, placement: Placement) -> None:
    """More workers than blocks; a file of cuts that does not fit."""
    n, v, blocks = placement.depth, placement.chunks, block_order(request.recipe.built)
    stages = f"{n} workers" if placement.replicas == 1 else f"{n} stages of {placement.replicas} workers"
    if request.placement.chunks > 1 and placement.plan is not None and not is_profile(Path(placement.plan)):
        raise UserError(f"--chunks {v}: the plan says how many there are; leave it out, or leave out --plan")
    if v > 1 and n * v > len(blocks):
        raise UserError(
            f"--chunks {v}: {stages} x {v} chunks need as many blocks, the space has {len(blocks)}; use at most "
            f"{max(1, len(blocks) // n)}"
        )
    if n > len(blocks):
        raise UserError(
            f"--workers {placement.workers}: the space has only {len(blocks)} blocks to place; use at most "
            f"{len(blocks) * placement.replicas} workers"
        )
    if placement.plan is not None:
        read_plan(Path(placement.plan), request.recipe.built, n, v)
    refuse_races(request.recipe.built, placement)
