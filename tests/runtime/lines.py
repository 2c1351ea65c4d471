"""Lines that a test opens; `conftest.py` closes them."""

from __future__ import annotations

from sennit.runtime.control import Line

OPEN: list[Line] = []
