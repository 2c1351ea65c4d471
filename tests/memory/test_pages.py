"""Shared memory in large pages, where all of it will be used."""

import mmap
import re
from pathlib import Path

import numpy as np
import pytest
from tests.memory.test_store import store

from sennit.memory import pages
from sennit.memory.pinning import address

SMAPS = Path("/proc/self/smaps")


def flags(memory: mmap.mmap) -> list[str]:
    """What the kernel notes of a mapping, such as `hg`: large pages are wanted."""
    if not SMAPS.exists() or "VmFlags" not in (told := SMAPS.read_text()):
        pytest.skip("this system does not tell what it notes of a mapping")
    begin = address(memory)
    for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", told):
        low, high = (int(end, 16) for end in mapping.split(maxsplit=1)[0].split("-"))
        if low <= begin < high:
            return mapping.partition("VmFlags:")[2].split()
    raise AssertionError("not mapped")


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("nbytes", [0, 1, mmap.PAGESIZE, 5 << 20])
def test_large_pages_are_asked_for_where_all_is_used(whole: bool, nbytes: int) -> None:
    memory = pages.shared(nbytes, whole)
    assert len(memory) == max(nbytes, mmap.PAGESIZE) and not np.frombuffer(memory, dtype=np.uint8).any()
    assert ("hg" in flags(memory)) == whole


@pytest.mark.parametrize("whole", [True, False])
def test_a_store_for_gpus_asks_for_them(whole: bool) -> None:
    assert ("hg" in flags(store(whole=whole).memory)) == whole


def test_a_kernel_without_them_is_content(monkeypatch: pytest.MonkeyPatch) -> None:
    class Without(mmap.mmap):
        def madvise(self, *arguments: int) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Without)
    assert len(pages.shared(10, whole=True)) == mmap.PAGESIZE
