"""`Told`: numbers that a device tells the host, which need not wait for them.

    device   ── norms ── copy ─┐ event ── what comes next ──▶
    host     ── goes on ───────┴─ there? ── numbers

On a CPU they are there at once.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Told:
    """On their way to the host.

    Args:
        numbers: of any shape; on a CPU not written before they have been read, on a GPU by its later work alone.
    """

    def __init__(self, numbers: Tensor) -> None:
        self._host, self._event = numbers, None
        if numbers.is_cuda:
            self._host = torch.empty_like(numbers, device="cpu", pin_memory=True)
            self._host.copy_(numbers, non_blocking=True)
            self._event = torch.cuda.current_stream(numbers.device).record_event()

    def there(self) -> bool:
        """Whether `numbers` would not wait."""
        return self._event is None or self._event.query()

    def numbers(self) -> list[float]:
        """In the order of memory, once they have arrived."""
        if self._event is not None:
            self._event.synchronize()
        return self._host.reshape(-1).tolist()
