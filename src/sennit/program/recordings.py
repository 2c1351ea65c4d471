"""`Recordings`: the programs of a space, each checked by recording it more than once.

An arch with an option that has not been seen yet is recorded on two batches of different shape and once in eval
mode. A size that Python has turned into a plain number, a loop over the batch, or `if self.training:` shows as a
difference and is refused. An arch of known options runs the same code in another combination and is recorded once.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from sennit.errors import SpaceError
from sennit.program.agreement import SHAPE_BOUND, merge_flags, same, with_mode
from sennit.program.copied import copied
from sennit.program.groups import refuse_reads_elsewhere
from sennit.program.recorder import Recorder
from sennit.program.refusals import UNCOVERED, UNFORESEEN
from sennit.program.repeating import refuse_unrepeated
from sennit.program.spec import Spec
from sennit.program.step import Program, Step
from sennit.program.template import ModeConst, leaves, map_tree
from sennit.space.choice import Choice
from sennit.space.names import canonical_names
from sennit.space.structure import Structure

UNCALLED = """{what} is run by no arch: no forward calls it. Call it, or leave it out of the space."""


def spec_of(tree: Any) -> Any:
    """`tree` with a `Spec` in place of every tensor."""
    return map_tree(lambda t: Spec.of(t) if isinstance(t, Tensor) else t, tree)


def other_batch(inputs: Any) -> Any:
    """`inputs` (specs) with one row more: the same first dimension grows in every tensor."""

    def grow(leaf: Any) -> Any:
        if isinstance(leaf, Spec) and leaf.shape:
            return replace(leaf, shape=(leaf.shape[0] + 1, *leaf.shape[1:]))
        return leaf

    return map_tree(grow, inputs)


KEPT = 512
"""Programs that are kept: more than are in flight or evaluated at once."""


LATEST = 64
"""Calls that are answered without a look at the arch."""


class Recordings:
    """Programs by canonical arch.

    Args:
        space: the model space; a copy without data is taken, the space itself is left alone.
    """

    def __init__(self, space: nn.Module) -> None:
        self.skeleton = _meta_copy(space).train()
        self.structure = Structure(self.skeleton)
        self.recorder = Recorder(self.skeleton, canonical_names(self.skeleton))
        self._programs: OrderedDict[str, Program] = OrderedDict()
        """Those asked for last, at most `KEPT`; a stream of random archs hardly ever asks for one again."""
        self._latest: dict[Any, Program] = {}
        """The few that were asked for last, by what was asked: a plain loop asks once per micro-batch."""
        self._looks: dict[Any, Program] = {}
        """The same of programs that need not be ones to train."""
        self._shapes: set[Any] = set()
        self._options: set[tuple[str, Any]] = set()
        self._flags: dict[str, tuple[Any, Any]] = {}
        """Arguments of steps that follow `self.training`, by name of the step."""
        self.settle_first: Callable[[], object] | None = None
        """Records what covers the space and calls `settle`; called before the first program that is to be trained."""
        self._covering = self._settled = False
        self._writers: dict[str, str] = {}
        """Buffers, once they are settled, to a step that writes them."""
        self._blocks: frozenset[str] = frozenset()
        """Those that plans know, once they are settled."""

    def program(self, arch: Any, inputs: Any, other: Any = None, *, trains: bool = True) -> Program:
        """The program of `arch`, recorded unless it is still known.

        Args:
            arch: any dict that `Structure.parse` accepts.
            inputs: `(args, kwargs)` of the call with a `Spec` for each tensor.
            other: the same with other shapes; one more row if None.
            trains: False for a look, as at a network that is evaluated on buffers of its own: that may write what no
                covering arch writes.

        Raises:
            SpaceError: what cannot be recorded, is not the same program in every recording, or writes in forward what
                is not settled.
        """
        asked, latest = _key_of(arch, inputs), self._latest if trains else self._looks
        program = latest.get(asked)
        if program is None:
            if trains and not self._covering and self.settle_first is not None:
                first, self.settle_first = self.settle_first, None
                first()
            program = self._looked_up(arch, inputs, other, trains)
            _keep_last(latest, asked, program)
        return program

    # -- what forwards write

    @contextlib.contextmanager
    def covering(self) -> Iterator[None]:
        """Around recordings of what covers the space: what these write is what may be written."""
        before, self._covering = self._covering, True
        try:
            yield
        finally:
            self._covering = before

    def settle(self, covering: Iterable[Program]) -> list[str]:
        """From here on, a program that writes in forward what is not known yet is refused, and so is one that uses
        parameters or buffers where none is known to.

        Args:
            covering: programs that run every candidate.

        Returns:
            Names of all buffers that some forward writes.

        Raises:
            SpaceError: a step reads a buffer that another one writes.
        """
        self.settle_first = None
        held = list(covering)
        for program in [*self._programs.values(), *held]:
            self._with_what_is_known(program)
        self._writers = refuse_reads_elsewhere(held)
        self._blocks = frozenset(block for program in held for block in program.blocks)
        self._settled = True
        self._programs.update([(key, self._placed(program)) for key, program in self._programs.items()])
        self._latest.clear()  # of these nobody has asked whether they are settled
        return list(dict.fromkeys(name for names in self.recorder.written.values() for name in names))

    @property
    def _notes(self) -> bool:
        return self._covering or not (self._settled or self.settle_first is not None)

    def _refuse_unsettled(self, program: Program) -> None:
        """Refuse to train what writes, or looks at, a buffer in another way than has been settled."""
        for step in program.steps:
            if self._settled and step.block not in self._blocks and (step.params or step.buffers):
                tensors = ", ".join(map(repr, (*step.params, *step.buffers)[:3]))
                raise SpaceError(UNCOVERED.format(where=step.where, name=step.name, tensors=tensors, arch=program.arch))
            if step.unforeseen:
                raise SpaceError(
                    UNFORESEEN.format(
                        where=step.where, name=step.name, buffers=", ".join(map(repr, step.unforeseen)),
                        arch=program.arch,
                    )
                )  # fmt: skip
        if self._settled:
            refuse_reads_elsewhere([program], self._writers)

    def once(self, arch: Any, inputs: Any) -> tuple[str, Program] | None:
        """One recording of an arch, and the key of its program, for `put` in the process that this one was forked from.

        Returns:
            None for an option or a shape that has not been seen: it takes more than one recording.

        Raises:
            SpaceError: as `program`.
        """
        options, filled = self.structure.parse_filled(arch)
        canonical = self.structure.encode(options)
        if _trailing(inputs) not in self._shapes or not self._options.issuperset(options.items()):
            return None
        program = self.recorder.record(canonical, options, inputs, notes=self._notes)
        self._refuse_filled(filled, program)
        self._refuse_unsettled(program)
        return _known_as(canonical, inputs), program

    def put(self, arch: Any, inputs: Any, key: str, program: Program) -> None:
        """Keep what `once` has given in a process forked from this one, as if recorded here.

        What recordings in both modes and of new shapes have shown since the fork is put in.
        """
        known = self._programs.get(key)
        if known is None:
            known = self._keep(key, self._with_what_is_known(program))
        _keep_last(self._latest, _key_of(arch, inputs), known)

    def _looked_up(self, arch: Any, inputs: Any, other: Any, trains: bool) -> Program:
        options, filled = self.structure.parse_filled(arch)
        canonical = self.structure.encode(options)
        key = _known_as(canonical, inputs)
        known = self._programs.get(key)
        if known is not None:
            self._programs.move_to_end(key)
        trailing = _trailing(inputs)
        if known is not None and trailing in self._shapes:
            if trains:
                self._refuse_unsettled(known)
            return known
        record = partial(self.recorder.record, notes=self._notes)
        program = record(canonical, options, inputs)
        if trains:
            self._refuse_unsettled(program)
        unseen = [item for item in options.items() if item not in self._options]
        if known is None and not unseen and trailing in self._shapes:
            self._refuse_filled(filled, program)
            return self._keep(key, self._with_what_is_known(program))
        self._options.update(unseen)
        try:
            same(program, record(canonical, options, other_batch(inputs) if other is None else other), SHAPE_BOUND)
            program = with_mode(program, record(canonical, options, inputs, training=False))
            if known is not None:  # a shape that no recording has seen: the known program must fit it as well
                same(known, program, SHAPE_BOUND)
        except SpaceError:
            refuse_unrepeated(lambda: record(canonical, options, inputs))
            raise
        calls = [step for step in program.steps if step.kind == "call" and _has_flag(step)]
        self._flags.update({step.name: (step.args, step.kwargs) for step in calls})
        if known is None:
            self._refuse_filled(filled, program)
            known = self._keep(key, program)
        self._shapes.add(trailing)
        return known

    def _keep(self, key: str, program: Program) -> Program:
        self._programs[key] = program
        if len(self._programs) > KEPT:
            self._programs.popitem(last=False)
        return program

    def _refuse_filled(self, filled: tuple[str, ...], program: Program) -> None:
        for label in filled:
            if label in program.arch:
                raise self.structure.missing(label)

    def _with_what_is_known(self, program: Program) -> Program:
        """Mode-dependent flags put in where a recording in both modes has shown them; buffers that units write, too."""
        before = list(program.steps)
        for i, step in enumerate(before):
            if step.kind == "call" and step.name in self._flags:
                merged = merge_flags((step.args, step.kwargs), self._flags[step.name])
                program.steps[i] = replace(step, args=merged[0], kwargs=merged[1])
            elif step.kind == "module":
                now = self.recorder.written.get(step.target, ())
                new = tuple(name for name in step.unforeseen if name not in now)
                if (now, new) != (step.written, step.unforeseen):
                    program.steps[i] = replace(step, written=now, unforeseen=new)
        if any(step is not was for step, was in zip(program.steps, before, strict=True)):
            program.note_entries()
        return self._placed(program)

    def _placed(self, program: Program) -> Program:
        """A step outside of choices that no covering arch runs (`if a.shape == b.shape: h = h + b`) goes where the step
        before it is: no plan knows a block of its own. One with parameters stays, to be refused if it is trained."""
        if not self._settled or self._blocks.issuperset(program.blocks):
            return program
        block = next(step.block for step in program.steps if step.block in self._blocks)
        steps: list[Step] = []
        for step in program.steps:
            block = step.block if step.block in self._blocks else block
            stays = step.block == block or step.params or step.buffers
            steps.append(step if stays else replace(step, block=block))
        return Program(program.arch, program.inputs, program.n_inputs, steps, program.output, program.outputs)

    def refuse_uncalled(self) -> None:
        """Call this once archs that cover the space are recorded.

        Raises:
            SpaceError: a choice or a candidate that no recording has called: it would never be trained.
        """
        called = self.recorder.called
        for path, module in self.skeleton.named_modules():
            if not isinstance(module, Choice):
                continue
            if id(module) not in called:
                raise SpaceError(UNCALLED.format(what=f"the choice at {path!r}"))
            for name, candidate in module.named_children():
                if id(candidate) not in called:
                    raise SpaceError(UNCALLED.format(what=f"candidate {name!r} of the choice at {path!r}"))


def _keep_last(latest: dict[Any, Program], asked: Any, program: Program) -> None:
    if asked is not None:
        latest[asked] = program
        if len(latest) > LATEST:
            del latest[next(iter(latest))]


def _key_of(arch: Any, inputs: Any) -> Any:
    """A key of a call whose arch holds numbers and words and whose arguments are tensors; None for others."""
    args, kwargs = inputs
    given = (*args, *kwargs.values())
    if not all(type(leaf) is Spec for leaf in given) or not isinstance(arch, dict):
        return None
    items = cast("dict[Any, Any]", arch).items()
    if not all(type(value) in (int, str) for _, value in items):
        return None
    return tuple(items), args, tuple(kwargs.items())


def _known_as(canonical: Any, inputs: Any) -> str:
    """The key of an arch's program, whatever the shapes of the tensors."""
    return repr((canonical, map_tree(lambda s: "tensor" if isinstance(s, Spec) else s, inputs)))


def _trailing(inputs: Any) -> str:
    """What decides whether a recording has seen these shapes."""
    return repr(map_tree(lambda s: (s.shape[1:], s.dtype) if isinstance(s, Spec) else s, inputs))


def _has_flag(step: Step) -> bool:
    return any(isinstance(leaf, ModeConst) for leaf in leaves((step.args, step.kwargs)))


def _meta_copy(space: nn.Module) -> nn.Module:
    if all(t.is_meta for t in [*space.parameters(), *space.buffers()]):
        return copied(space)
    with torch.no_grad():
        memo: dict[int, Any] = {}
        for tensor in [*space.parameters(), *space.buffers()]:
            if id(tensor) in memo:
                continue
            empty = torch.empty_like(tensor, device="meta")
            memo[id(tensor)] = (
                nn.Parameter(empty, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
            )
        return copied(space, memo)
