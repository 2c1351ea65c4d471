"""Memory that forked processes share, in large pages where all of it will be used.

A supernet's store is tens of GB: millions of pages of 4 KiB, each of which the system has to give and CUDA to pin; of
2 MiB there are 512 times fewer. Linux gives them to shared memory where
`/sys/kernel/mm/transparent_hugepage/shmem_enabled` is `advise` or more; by default it is `never`.
"""

from __future__ import annotations

import contextlib
import mmap


def shared(nbytes: int, whole: bool) -> mmap.mmap:
    """Anonymous memory of at least a page, shared by inheritance, all zeros.

    Args:
        whole: every byte will be in the host's memory anyhow, so large pages waste nothing.
    """
    memory = mmap.mmap(-1, max(nbytes, mmap.PAGESIZE))
    if whole:
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
