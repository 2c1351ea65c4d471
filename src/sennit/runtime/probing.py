"""`Probing`: finished subnets are shown to the probes of a run. They get copies of facts, after the fact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sennit.errors import UserError
from sennit.runtime.segment import Engine
from sennit.supernet.samplers import Result

Probe = Callable[[dict[str, Any]], None]


class Probing:
    """Of one run.

    Args:
        losses: of all subnets that are finished, by seq id; others append to it.
    """

    def __init__(self, probes: Sequence[Probe], losses: Sequence[float]) -> None:
        self.probes, self.losses = probes, losses
        self._waiting: list[Result] = []

    def add(self, result: Result) -> None:
        """A finished subnet, in order of seq id."""
        if self.probes:
            self._waiting.append(result)

    def show(self, engine: Engine, done: int) -> None:
        """Show those below `done`.

        Raises:
            UserError: a probe has failed.
        """
        while self._waiting and self._waiting[0].seq_id < done:
            result = self._waiting.pop(0)
            event = {
                "seq_id": result.seq_id, "arch": dict(result.arch), "loss": result.loss,
                "gradient_norms": engine.gradient_norms(result.seq_id),
                "rank": sum(loss < result.loss for loss in self.losses[: result.seq_id]),
            }  # fmt: skip
            for probe in self.probes:
                try:
                    probe(event)
                except Exception as error:
                    raise UserError(
                        f"the probe {getattr(probe, '__name__', probe)!r} failed at subnet {result.seq_id}: "
                        f"{type(error).__name__}: {error}"
                    ) from error
