"""Whether forward does the same when it is called again in the same way, and if not, what it draws from.

Asked once recordings have disagreed: then neither shapes nor the mode are at fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from sennit.errors import SpaceError
from sennit.program.agreement import difference, made_anew
from sennit.program.step import Program
from sennit.supernet.generators import generators_restored

TIMES = 8
"""Recordings that are compared: a coin thrown in forward falls on one side in all of them once in 128 times."""

GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "Python's `random`": (random.getstate, random.setstate),
    "numpy's global generator (`np.random`)": (np.random.get_state, np.random.set_state),
    "torch's generator, as a Python number": (torch.get_rng_state, torch.set_rng_state),
}

NOT_REPEATED = """{where}: `{call}` was recorded differently when the same arch was called again in the same way
({why}): forward does not repeat itself.
{source}
A program is recorded once and runs for every batch, so in code outside of layers what Python draws or counts would be
fixed for good. Let tensors draw, which is keyed by subnet and micro-batch:
    wrong:  x * random.random()              if random.random() < 0.5: x = self.layer(x)
    right:  x * torch.rand(1, device=x.device)
or put the code into a module of its own without choices inside: it is one step, in which draws of `random`, numpy and
torch are keyed."""

DRAWS = "It draws from {}."
OWN = """Nothing changes when the generators of Python, numpy and torch are set back: it keeps a counter or a generator
of its own, or asks the clock or the order of a set."""


def refuse_unrepeated(record: Callable[[], Program]) -> None:
    """Raise if recordings of one and the same call differ.

    Args:
        record: records it once.

    Raises:
        SpaceError: they do. It names the step, both values and the generator that they come from.
    """
    with generators_restored():
        found = _differs([record() for _ in range(TIMES)])
        if found is None:
            return
        step, why = found
        drawn = [name for name in GENERATORS if _differs(_from_one_state(record, [name])) is None]
        if not drawn and _differs(_from_one_state(record, list(GENERATORS))) is None:
            drawn = [name for name in GENERATORS if _moved(record, name)]
    source = DRAWS.format(" and ".join(drawn)) if drawn else OWN
    where, call = (step.where, step.call) if step else ("forward", "forward")
    raise SpaceError(NOT_REPEATED.format(where=where or "forward", call=call, why=why, source=source))


def _differs(programs: list[Program]) -> Any:
    """The first difference between the first and another; None for what differs by its address alone."""
    first, *others = programs
    for other in others:
        found = difference(first, other)
        if found is not None and (found[0] is None or made_anew(found[0], other) is None):
            return found
    return None


def _from_one_state(record: Callable[[], Program], names: list[str]) -> list[Program]:
    """Recordings before each of which these generators are set to what they are now."""
    states = {name: GENERATORS[name][0]() for name in names}
    programs: list[Program] = []
    with ExitStack() as after:
        for name, state in states.items():
            after.callback(GENERATORS[name][1], state)
        for _ in range(TIMES):
            for name, state in states.items():
                GENERATORS[name][1](state)
            programs.append(record())
    return programs


def _moved(record: Callable[[], Program], name: str) -> bool:
    before = repr(GENERATORS[name][0]())
    record()
    return repr(GENERATORS[name][0]()) != before
