"""`Opaque`: calls that a recording makes without looking inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from sennit.errors import SpaceError
from sennit.program.failed_step import failed_step
from sennit.program.refusals import MODIFIED
from sennit.program.tape import Tape
from sennit.space.choice import Option


class Opaque:
    """Of one recording.

    Args:
        arch: that is recorded.
        returned: shapes that each option of a choice has returned, by label. Both are for messages.
    """

    def __init__(self, tape: Tape, arch: Mapping[str, Any], returned: Mapping[str, Mapping[Option, str]]) -> None:
        self.tape, self.arch, self.returned = tape, arch, returned

    def call(
        self, call: Callable[[], Any], name: str, inputs: list[Tensor], where: str,
        with_data: Callable[[], Any] | None = None,
    ) -> Any:  # fmt: skip
        """The result of a call.

        Args:
            with_data: gives the result where there can be none without data; None if it cannot, either.

        Raises:
            SpaceError: it fails, or modifies one of `inputs`.
        """
        versions = [t._version for t in inputs]
        try:
            with self.tape.quiet():
                result = call()
        except SpaceError:
            raise
        except Exception as error:
            if with_data is not None and isinstance(error, NotImplementedError | RuntimeError | ValueError):
                again = with_data()
                if again is not None:
                    return again
            told = failed_step(name, inputs, where, error, self.tape.last, self.arch, self.returned)
            raise SpaceError(told) from error
        if [t._version for t in inputs] != versions:
            raise SpaceError(MODIFIED.format(where=where, call=name))
        return result
