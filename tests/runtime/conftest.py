"""What tests of workers leave open is closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime.lines import OPEN


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()
