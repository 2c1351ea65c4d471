"""`UnitCalls`: the call of a unit module becomes one step.

A unit runs once per shapes of its arguments. What it returned and wrote is remembered by the recorder, so that
recording the next arch costs the Python of the inlined code only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from sennit.errors import SpaceError
from sennit.program.calls import place
from sennit.program.opaque import Opaque
from sennit.program.refusals import GIVEN_LIST
from sennit.program.spec import Spec, call_key, made, run_with_data, specs_of
from sennit.program.tape import Tape
from sennit.program.template import boxes, contents, leaves
from sennit.program.writes import Held, Writes

if TYPE_CHECKING:
    from sennit.program.recorder import Recorder


class UnitCalls:
    """Of one recording.

    Args:
        notes: a write that is seen for the first time is taken in as one that the unit makes.
    """

    def __init__(self, recorder: Recorder, tape: Tape, opaque: Opaque, notes: bool) -> None:
        self.r, self.tape, self.opaque, self.notes = recorder, tape, opaque, notes

    def add(self, original: Callable[..., Any], module: nn.Module, path: str, args: Any, kwargs: Any) -> Any:
        """Append the call of a unit as a step. Returns its result, without data.

        Args:
            original: `nn.Module.__call__`.
        """
        where = place()
        called = self._as_before(module, args) if not kwargs else None
        known = self.r.answers.get(called) if called is not None else None
        if known is not None:
            return self.tape.add_known(
                self.tape.numbered(path), path, args, known, where, *self._tensors(module), self.r.written.get(path, ())
            )
        template = self.tape.template((args, kwargs), path, where)
        inputs = [t for t in leaves((args, kwargs)) if isinstance(t, Tensor)]
        key = call_key(module, args, kwargs)
        known = self.r.memo.get(key) if key is not None else None
        if known is None:
            result, moved = self._first_time(original, module, path, args, kwargs, inputs, where)
            specs = specs_of(result, inputs) if key is not None else None
            if key is not None:
                self.r.memo[key] = specs, moved
        else:
            specs, moved = known
            result = made(specs, inputs)
        unforeseen = self._note_written(path, moved)
        if called is not None and isinstance(specs, Spec) and not unforeseen:
            self.r.answers[called] = specs
        params, buffers = self._tensors(module)
        return self.tape.add(
            self.tape.numbered(path), "module", path, template, result, where, params, buffers,
            self.r.written.get(path, ()), unforeseen,
        )  # fmt: skip

    def _first_time(
        self, original: Callable[..., Any], module: nn.Module, path: str, args: Any, kwargs: Any, inputs: list[Tensor],
        where: str,
    ) -> tuple[Any, tuple[str, ...]]:  # fmt: skip
        """Run a unit on such arguments. Returns its result, and the names of the buffers that its forward wrote.

        Raises:
            SpaceError: it has written what it may not, or replaced a tensor.
        """
        held, writes = Held(module, self.r.names), Writes(self.r.homes)
        told: list[Tensor] | None = None

        def call() -> Any:
            with writes:
                return original(module, *args, **kwargs)

        def with_data() -> Any:
            nonlocal told
            result, told = run_with_data(module, args, kwargs)
            return result

        given = [(box, contents(box)) for box in boxes((args, kwargs))]
        try:
            result = self.opaque.call(call, path, inputs, where, with_data)
        finally:
            replaced = held.put_back()
        for box, before in given:
            now = contents(box)
            if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
                raise SpaceError(GIVEN_LIST.format(where=where, name=path, kind=type(box).__name__))
        seen = [*writes.found, *(self.r.names[id(tensor)] for tensor in told or ())]
        return result, held.moved(path, where, replaced, seen, all_buffers=told is not None)

    def _as_before(self, module: nn.Module, args: Any) -> Any:
        """Key of a call of a unit on values of the program alone; None for other calls."""
        key: list[Any] = [id(module)]
        for arg in args:
            number = self.tape.value_of.get(id(arg))
            if number is None:
                return None
            key.append(self.tape.spec(number, arg))
        return tuple(key)

    def _note_written(self, path: str, moved: tuple[str, ...]) -> tuple[str, ...]:
        """Take in which buffers a unit's forward wrote. Returns those that are new, if they come too late."""
        known = self.r.written.get(path, ())
        new = tuple(name for name in moved if name not in known)
        if new and self.notes:
            self.r.written[path] = (*known, *new)
            return ()
        return new

    def _tensors(self, module: nn.Module) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of its parameters and of its buffers."""
        known = self.r.param_memo.get(id(module))
        if known is None:
            params = dict.fromkeys(self.r.names[id(p)] for p in module.parameters())
            buffers = dict.fromkeys(self.r.names[id(b)] for b in module.buffers())
            known = self.r.param_memo[id(module)] = (tuple(params), tuple(buffers))
        return known
