"""`Recorder`: what the recordings of one space have in common."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch import nn

from sennit.program.record import Recording
from sennit.program.spec import Spec
from sennit.program.step import Program
from sennit.program.writes import homes_of
from sennit.space.choice import Option, selecting
from sennit.space.inline import is_inlined, loose_tensors
from sennit.space.names import all_tensors

_lock = threading.RLock()


class Recorder:
    """Records programs of one space.

    Args:
        skeleton: the space on device `meta`. Not changed, apart from flags that are put back.
        names: canonical name of each parameter and buffer, by `id` of the skeleton's tensor.
    """

    def __init__(self, skeleton: nn.Module, names: dict[int, str]) -> None:
        self.root = skeleton
        self.names = names
        self.homes = homes_of((tensor for _, tensor in all_tensors(skeleton)), names)
        """The same by memory."""
        self.written: dict[str, tuple[str, ...]] = {}
        """Names of the buffers that a unit's forward writes in training mode, by unit path."""
        self.path_of: dict[int, str] = {}
        for path, module in skeleton.named_modules():
            self.path_of.setdefault(id(module), path)
        self.inlined_modules = [m for m in skeleton.modules() if is_inlined(m, skeleton)]
        self.inlined = {id(m) for m in self.inlined_modules}
        self.loose = [
            (owner, attribute, owner._parameters.get(attribute, owner._buffers.get(attribute)))
            for _, owner, attribute in loose_tensors(skeleton)
        ]
        self.called: set[int] = set()
        """`id` of every module that some recording has called."""
        self.memo: dict[Any, Any] = {}
        self.answers: dict[Any, Spec] = {}
        """What units return that give one new tensor, by unit and shapes of what they read."""
        self.param_memo: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self.returned: dict[str, dict[Option, str]] = {}
        """What each option of a choice returned, for messages about shapes that do not fit."""

    @contextlib.contextmanager
    def mode(self, training: bool) -> Iterator[None]:
        """Inlined modules see `self.training == training`."""
        others = [module for module in self.inlined_modules if module.training is not training]
        for module in others:
            module.training = training
        try:
            yield
        finally:
            for module in others:
                module.training = not training

    def record(
        self, arch: dict[str, Any], options: dict[str, Option], inputs: Any, *, training: bool = True,
        notes: bool = True,
    ) -> Program:  # fmt: skip
        """Run the root on `inputs` (`(args, kwargs)` with a `Spec` for every tensor) and write down its steps.

        Args:
            notes: take in what units write (`written`); if not, a step says itself what is not known.

        Raises:
            SpaceError: what cannot be recorded, with file and line; a candidate whose shapes do not fit.
        """
        with _lock, self.mode(training), selecting(options):
            return Recording(self, arch, notes).run(inputs)
