"""The errors a user can meet. Each message states the rule, the values seen and the knob to turn.

`UserError` (a `ValueError`) is bad input: exit code 2. `RunError` is a run that failed: exit code 1.
Everything else that escapes is a bug of ours and keeps its traceback.
"""

from __future__ import annotations


def why(error: Exception) -> str:
    """What a reader of a file came upon, without the file's name, which the message has already."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


class UserError(ValueError):
    """Bad input: a recipe, a space, an arch, a file or a flag that cannot be used as given."""


class ArchError(UserError):
    """An arch names a choice or a value that the space does not have."""


class SpaceError(UserError):
    """A model space that cannot be built, initialised or recorded as written."""


class RecipeError(UserError):
    """A recipe or placement with an unknown key, a wrong type or an impossible combination."""


class CheckpointError(UserError):
    """A checkpoint that is corrupt, or that belongs to another recipe."""


class RunError(RuntimeError):
    """A run that started well and failed: NaN loss, a dead worker, a full disk."""


class HaltError(RunError):
    """A subnet cannot be trained; those before it have been, as far as nothing of later ones was in the way.

    Attributes:
        seq_id: the subnet.
    """

    def __init__(self, message: str, seq_id: int) -> None:
        super().__init__(message)
        self.seq_id = seq_id


class NanLossError(HaltError):
    """The loss of a subnet is not finite.

    Attributes:
        micro_batch: the first micro-batch of it where that shows; where several workers compute losses of one subnet,
            the first of those that were computed.
    """

    def __init__(self, message: str, seq_id: int, micro_batch: int) -> None:
        super().__init__(message, seq_id)
        self.micro_batch = micro_batch

    @property
    def place(self) -> tuple[int, int]:
        """Where it is in the order of a plain loop."""
        return self.seq_id, self.micro_batch


class BudgetError(HaltError):
    """The budget of a worker does not hold what a subnet needs there."""


class SubnetError(HaltError):
    """A subnet whose program is refused. Bad input, in the end: a run that meets it says so with exit code 2."""


class Interrupted(RunError):
    """Ctrl-C or SIGTERM: the run left a checkpoint and stopped. Exit code 130."""


def first_line(error: BaseException) -> str:
    """Its type and the first line of what it says, for a message."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"
