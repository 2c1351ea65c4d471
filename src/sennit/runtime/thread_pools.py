"""Thread pools of OpenMP end before a fork: GNU's does not notice one, and a child waits for threads it does not have.

    parent   a convolution by 2 threads ─ pools end ─ fork ──▶ the next one starts new threads
    child                                              └─────▶ so does its own

Other implementations see to it themselves. Nothing is lost: who needs threads starts them, in a tenth of a millisecond.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

HARD = 2
"""`omp_pause_hard`: let go of all that can be (OpenMP 5.0, section 3.2.43)."""


def end_thread_pools() -> None:
    """Those of the calling thread."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return  # no such file: no Linux
    for name in sorted({line.split(maxsplit=5)[-1] for line in lines if "libgomp" in line}):
        with suppress(OSError):  # a file that has been replaced since
            pause = getattr(ctypes.CDLL(name), "omp_pause_resource_all", None)
            if pause is not None:
                pause(HARD)
