"""One thread and deterministic kernels for every test, as recipes have by default; and no GPU in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests import gpus

gpus.hide()
gpus.settle()


@pytest.fixture(autouse=True)
def _same_process_state() -> Iterator[None]:
    """A test that sets threads or kernels (loading a recipe does) leaves them to the next as they were."""
    yield
    gpus.settle()


@pytest.fixture(autouse=True)
def _turn_at_the_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests that fill a GPU have it alone."""
    marks = list(request.node.iter_markers("gpu"))
    with gpus.turn(alone=any(mark.kwargs.get("alone", False) for mark in marks)) if marks else nullcontext():
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("gpu"):
            if gpus.gpu_count() < (count := mark.kwargs["count"]):
                item.add_marker(pytest.mark.skip(reason=f"needs {count} CUDA device{'s' * (count > 1)}"))


def pytest_unconfigure() -> None:
    gpus.end()
