"""Device time and bytes over PCIe of some subnets, as torch's profiler sees them.

Looked at are subnets behind the timed ones, since the profiler takes time of its own.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from sennit.supernet.keys import key_for


def summed(events: Iterable[Mapping[str, Any]], subnets: int) -> dict[str, float]:
    """Of the events of a Chrome trace: per subnet, milliseconds on the device, and bytes to it and back."""
    found = {"kernel_ms": 0.0, "there_bytes": 0.0, "back_bytes": 0.0, "kernels": 0.0}
    for event in events:
        kind, name = event.get("cat"), str(event.get("name"))
        if kind == "gpu_memcpy" and ("HtoD" in name or "DtoH" in name):
            found["there_bytes" if "HtoD" in name else "back_bytes"] += event["args"]["bytes"]
        elif kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            found["kernel_ms"] += event["dur"] / 1e3
            found["kernels"] += 1
    return {name: value / subnets for name, value in found.items()}


class Look:
    """Looks at a range of subnets of a process, and writes what it saw.

    Args:
        subnets: which.
        out: file for `summed`.
    """

    def __init__(self, subnets: range, out: Path) -> None:
        self.subnets, self.out = subnets, out
        self.profiler: Any = None

    def at(self, seq_id: int) -> None:
        """A subnet begins."""
        if self.out.exists():
            return
        try:
            if self.profiler is None and seq_id == self.subnets.start:
                torch.cuda.synchronize()
                self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
                self.profiler.start()
            elif self.profiler is not None and seq_id == self.subnets.stop:
                torch.cuda.synchronize()
                self.profiler.stop()
                self.out.write_text(json.dumps(self.seen()))
        except Exception as error:  # the run itself is none the worse
            self.out.write_text(json.dumps({"failed": f"{type(error).__name__}: {error}"[:500]}))

    def seen(self) -> dict[str, float]:
        """What the profiler saw."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            self.profiler.export_chrome_trace(str(file))
            return summed(json.loads(file.read_text())["traceEvents"], len(self.subnets))


class LookingExecutor:
    """An executor that tells a `Look` when the first and the last of its subnets begin."""

    def __init__(self, executor: Any, look: Look, seed: int, micro_batches: int) -> None:
        self.executor, self.look = executor, look
        ends = (look.subnets.start, look.subnets.stop)
        self.known = {key_for(seed, "step", y, j): y for y in ends for j in range(micro_batches)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executor, name)

    def forward(self, program: Any, run: Any, slot: Any, arrivals: Any, inputs: Any, context: Any, *more: Any) -> Any:
        if (y := self.known.get(context.key)) is not None:
            self.look.at(y)
        return self.executor.forward(program, run, slot, arrivals, inputs, context, *more)
