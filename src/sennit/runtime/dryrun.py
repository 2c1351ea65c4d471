"""A dry run before training: every step once, forward and backward, on two rows and the real device.

Recording has seen shapes only. Whether an operator has a deterministic kernel shows when the kernel is called,
so it is called here, step by step, where it can be refused by name before anything has been trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sennit.errors import SpaceError, UserError, first_line
from sennit.executor.eager import EagerExecutor, Gradients, RunContext
from sennit.program.copied import copied
from sennit.program.cut import Run, cut
from sennit.program.run import bind_inputs
from sennit.program.spec import Spec
from sennit.program.step import Program, Step
from sennit.program.template import leaves, map_tree
from sennit.runtime.dry_slots import Moves, Slots, filled, refuse_readers
from sennit.runtime.usercode import place_in_user_code
from sennit.space.grafted import KEEPS_HOLD
from sennit.space.model_space import as_call
from sennit.space.names import canonical_names, unique_tensors
from sennit.supernet.bits import same_bits
from sennit.supernet.build import Built
from sennit.supernet.context import StepContext, step_context
from sennit.supernet.generators import generator_states, generators_restored
from sennit.supernet.loss import count_terms

BUDGET_S = {"cpu": 4.0, "cuda": 30.0}
"""Seconds for all steps together. What is not reached is refused when it comes up, by the same message."""

ROWS = 2

NO_KERNEL = """step {name!r} ({call}, {where}) uses an operator without a deterministic kernel on {device}:
  {reason}
Replace it, or set allow_nondeterministic = true in the recipe; such a run is not comparable with any other."""


DRAWS_BACK = """{what} draws random numbers in its backward (in a hook, an autograd.Function,
or a torch.utils.checkpoint that is told preserve_rng_state=False). They are keyed for each forward; what a backward
would draw depends on what its worker has run since. Draw in forward, and let the backward use that."""

SPLITS_BADLY = """{where}: step {name!r} ({call}) has another gradient of {what} when its backward is split.
Leave out --split."""

OWN_STATE = """{where}: step {name!r} ({call}) gives another output when it is run again on the same input and key.
It keeps state in Python, or draws from a generator of its own; workers are other processes, which would not see it.
Keep state in buffers (register_buffer) and draw with torch's own functions (torch.randn, nn.Dropout), which are keyed;
or set allow_nondeterministic = true in the recipe; such a run is not comparable with any other."""


def names_nondeterminism(error: BaseException) -> bool:
    """Whether torch refused an operator because it has no deterministic kernel."""
    text = str(error)
    return "deterministic" in text and ("implementation" in text or "does not have" in text)


def dry_run(built: Built, device: torch.device, split: bool = False) -> tuple[int, int]:
    """Run every distinct step of the archs that cover the space.

    Args:
        split: see, too, that a backward in two parts gives the same bits.

    Returns:
        How many steps were run, and how many distinct ones there are.

    Raises:
        UserError: an operator without a deterministic kernel, by step.
    """
    skeleton = built.recordings.skeleton
    like = unique_tensors(skeleton)
    modules = copied(skeleton)
    executor = EagerExecutor(modules, canonical_names(modules), frozenset(), device)
    seen: dict[str, dict[int, Spec]] = {}
    moves: Moves = {}
    total: set[str] = set()
    begin = time.perf_counter()
    with generators_restored():
        for number, program in enumerate(built.covering):
            if number == 0:
                _loss(built, program, executor, lambda name: filled(like[name], device), device)
            total.update(step.name for step in program.steps)
            if time.perf_counter() - begin < BUDGET_S[device.type]:
                _run(built, program, executor, seen, moves, lambda name: filled(like[name], device), device, split)
    refuse_readers(moves)
    return len(seen), len(total)


def _run(
    built: Built, program: Program, executor: EagerExecutor, seen: dict[str, dict[int, Spec]], moves: Moves,
    fill: Callable[[str], Tensor], device: torch.device, split: bool,
) -> None:  # fmt: skip
    context = StepContext.of(built.recipe.seed, 0, 0, built.recipe.precision, device)
    x, _ = built.micro_batches(built.batches[0])[0]
    x = map_tree(lambda t: t[:ROWS].to(device) if isinstance(t, Tensor) and t.dim() else t, x)
    inputs = bind_inputs(program, *as_call(x))
    made: dict[int, Any] = {}
    slots = Slots(fill)

    for run in cut(program, range(len(program.steps))):
        (step,) = run.steps
        known = seen.get(step.name)
        if known is not None and set(known) == {v for v, _ in run.departures}:
            made.update({v: _random(spec, device) for v, spec in known.items()})
            continue
        arrivals = {a.value: _wanted(made[a.value]) for a in run.arrivals}
        wanted = dict(inputs) if run.reads_input else {}
        try:
            # the loss is left out: run it as a plain step that ends the program
            slots.begin()
            out, ctx = executor.forward(
                program, _without_loss(run), slots, arrivals, wanted, context, None, lambda step: None
            )
            given = {v: [torch.ones_like(root)] for v, root in ctx.roots.items()}
            slots.after_forward()
            states = generator_states(device)
            grads = executor.backward(ctx, given)
            if generator_states(device) != states:
                raise UserError(DRAWS_BACK.format(what=f"{step.where}: step {step.name!r} ({step.call})"))
            slots.refuse_written(step)
            slots.refuse_moved_back(step)
            slots.note_moves(step, moves)
            slots.take_back()
            again, ctx = executor.forward(
                program, _without_loss(run), slots, arrivals, wanted, context, None, lambda step: None
            )
            if not same_bits(list(out.values()), list(again.values())):
                raise UserError(OWN_STATE.format(name=step.name, call=step.call, where=step.where))
            if split:
                _same_gradients(step, executor, ctx, given, grads)
        except UserError:
            raise
        except Exception as error:
            if not names_nondeterminism(error):
                raise _failed(step, dict(inputs) if run.reads_input else {}, error) from error
            raise UserError(
                NO_KERNEL.format(
                    name=step.name, call=step.call, where=step.where, device=device.type,
                    reason=str(error).splitlines()[0][:200],
                )
            ) from error  # fmt: skip
        made.update(out)
        seen[step.name] = {v: Spec.of(t) for v, t in out.items() if isinstance(t, Tensor)}


def _same_gradients(
    step: Step, executor: EagerExecutor, ctx: RunContext, given: dict[int, list[Tensor]], whole: Gradients
) -> None:
    """Raise if a backward in two parts gives other bits than one in a piece."""
    first = executor.backward_input(ctx, given)
    parts: dict[Any, Tensor | None] = {**first.values, **first.parameters, **executor.backward_weight(ctx)}
    for key, grad in {**whole.values, **whole.parameters}.items():
        other = parts.get(key)
        if (grad is None) != (other is None) or (grad is not None and not same_bits(grad, other)):
            what = f"parameter {key[0]!r}" if isinstance(key[0], str) else f"value {key[0]}"
            raise UserError(SPLITS_BADLY.format(where=step.where, name=step.name, call=step.call, what=what))


def _loss(
    built: Built, program: Program, executor: EagerExecutor, fill: Callable[[str], Tensor], device: torch.device
) -> None:
    """The loss of the first micro-batch: whether output and target fit each other.

    Raises:
        UserError: they do not, or the loss has no deterministic kernel.
    """
    x, y = map_tree(lambda t: t.to(device) if isinstance(t, Tensor) else t, built.micro_batches(built.batches[0])[0])
    context = StepContext.of(built.recipe.seed, 0, 0, built.recipe.precision, device)
    inputs = bind_inputs(program, *as_call(x))
    (run,) = cut(program, [0] * len(program.steps))
    reached: list[Any] = []  # the step that is run, and in the end the output

    def loss(output: Any) -> Tensor:
        reached.append(output)
        apart = map_tree(lambda t: t.detach().requires_grad_() if t.is_floating_point() else t, output)
        with step_context(context):
            value = built.loss_of(apart, y, count_terms(built.loss_function, [y], apart), 0)
        if not value.requires_grad:
            raise UserError(
                f"the loss {built.recipe.loss_name!r} does not depend on what the network gives, so nothing would be "
                "trained; leave out detach(), item() and no_grad() there"
            )
        states = generator_states(device)
        value.backward()
        if generator_states(device) != states:
            raise UserError(DRAWS_BACK.format(what=f"the loss {built.recipe.loss_name!r}"))
        return value

    try:
        executor.forward(program, run, fill, {}, dict(inputs), context, loss, reached.append)
    except UserError:
        raise
    except Exception as error:
        at = reached[-1]
        if isinstance(at, Step):
            if names_nondeterminism(error):
                return  # named below, with its backward
            raise _failed(at, dict(inputs), error) from error
        if place_in_user_code(error) is not None:
            raise
        shapes = [", ".join(str(Spec.of(t)) for t in leaves(tree) if isinstance(t, Tensor)) for tree in (at, y)]
        raise UserError(
            f"the loss {built.recipe.loss_name!r} cannot be computed: {first_line(error)}. The network gives "
            f"{shapes[0]}, the data gives y {shapes[1]}"
        ) from error


def _failed(step: Step, inputs: dict[int, Any], error: Exception) -> Exception:
    """What to raise for a step that recording could follow and that fails with data."""
    if isinstance(error, RuntimeError) and "device meta" in str(error):
        place = place_in_user_code(error) or step.where
        return SpaceError(
            f"{place}: step {step.name!r} ({step.call}) uses a tensor without memory ({first_line(error)}).{KEEPS_HOLD}"
        )
    if place_in_user_code(error) is not None:
        return error
    dtypes = {t.dtype for t in inputs.values() if isinstance(t, Tensor)}
    hint = ""
    if torch.float64 in dtypes:
        hint = "; the data gives float64, and weights are float32: let it give x.float()"
    return UserError(f"{step.where}: step {step.name!r} ({step.call}) fails: {first_line(error)}{hint}")


def _without_loss(run: Run) -> Run:
    return Run(run.index, run.part, run.steps, False, run.arrivals, run.departures, run.reads_input)


def _wanted(value: Any) -> tuple[Any, bool]:
    return value, isinstance(value, Tensor) and value.is_floating_point()


def _random(spec: Spec, device: torch.device) -> Tensor:
    if spec.dtype.is_floating_point:
        return torch.randn(spec.shape, dtype=spec.dtype, device=device)
    return torch.zeros(spec.shape, dtype=spec.dtype, device=device)
