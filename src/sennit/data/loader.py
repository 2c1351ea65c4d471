"""Loading batches ahead, in as many processes as the placement says; the batches do not depend on it.

Batches come through pipes, as bytes. torch would pass tensors as files in /dev/shm, which it removes once they are
open on both sides; a process killed between making one and removing it leaves it there for good.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import re
import signal
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from sennit.data.order import KeyedBatches
from sennit.errors import RunError, UserError

PR_SET_PDEATHSIG = 1
_DIED = re.compile(r"DataLoader worker \(pid.*(exited unexpectedly|is killed by signal)")
_GONE = "a process that loads data has died ({}); the system kills processes when memory is short: use fewer loaders"


def loader_death(error: BaseException) -> RunError | None:
    """What to say if `error` is torch's word that a loader process has died; None if it is something else.

    torch says so from a signal handler, wherever the process happens to be.
    """
    if isinstance(error, RuntimeError) and _DIED.search(str(error)):
        return RunError(_GONE.format(str(error).splitlines()[0].strip()))
    return None


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when `parent`, which started it, ends (Linux). Ends it if that is past."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _start_loader(parent: int, number: int) -> None:
    die_with_parent(parent)
    # default_collate asks this, and in a loader makes its batch in shared memory; besides, no data set should ask
    torch.utils.data._utils.worker._worker_info = None  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the worker ends its loaders


class _Pickled(Dataset[bytes]):
    """Batches as bytes.

    Args:
        loaded: in memory that all processes share, at seq id modulo its length: the last subnet loaded.
    """

    def __init__(self, batches: KeyedBatches, loaded: np.ndarray) -> None:
        self.batches, self.loaded = batches, loaded

    def __getitem__(self, seq_id: int) -> bytes:
        held = pickle.dumps(self.batches[seq_id], protocol=5)  # not torch's own pickler, which shares memory
        self.loaded[seq_id % len(self.loaded)] = seq_id
        return held


class _From(Sampler[int]):
    def __init__(self, start: int, stop: int | None) -> None:
        self.start, self.stop = start, stop

    def __iter__(self) -> Iterator[int]:
        i = self.start
        while self.stop is None or i < self.stop:
            yield i
            i += 1


class BatchSource:
    """Batches by seq id, mostly in order, each kept until `drop`.

    Args:
        batches: the keyed data.
        processes: loader processes; 0 loads here, when asked.
        prefetch: batches that each process prepares ahead.
    """

    def __init__(self, batches: KeyedBatches, processes: int = 0, prefetch: int = 2) -> None:
        self.batches, self.processes, self.prefetch = batches, processes, prefetch
        self.held: dict[int, Any] = {}
        self.stream: Iterator[Any] | None = None
        self.next_id = 0
        self.loaded = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), dtype=np.int64)

    def there(self, seq_id: int) -> bool:
        """Whether loader processes have a batch, so that `get` would not wait for them."""
        if seq_id in self.held:
            return True
        if self.stream is None or seq_id < self.next_id:
            return False
        return all(self.loaded[y % len(self.loaded)] == y for y in range(self.next_id, seq_id + 1))

    def get(self, seq_id: int) -> Any:
        """The batch `(x, y)` of a subnet."""
        if seq_id not in self.held:
            self.held[seq_id] = self._load(seq_id)
        return self.held[seq_id]

    def drop(self, seq_id: int) -> None:
        self.held.pop(seq_id, None)

    def close(self) -> None:
        """End the loader processes."""
        self.stream = None
        self.held.clear()

    def _load(self, seq_id: int) -> Any:
        if not self.processes:
            return self.batches[seq_id]
        if self.stream is None or seq_id < self.next_id:
            self.next_id = seq_id
            self.stream = self._start(seq_id)
        while True:
            try:
                batch = self._next()
            except Exception:
                self.stream = None  # it has gone past this batch: whoever asks again must not be given the next one
                raise
            loaded = self.next_id
            self.next_id += 1
            if loaded == seq_id:
                return batch
            self.held.setdefault(loaded, batch)

    def _start(self, seq_id: int) -> Iterator[Any]:
        self.loaded[:] = -1
        with warnings.catch_warnings():
            # how many is the user's choice; that this process has threads does not matter to a loader
            warnings.filterwarnings("ignore", "This DataLoader will create")
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            return iter(
                DataLoader(
                    _Pickled(self.batches, self.loaded), batch_size=None, sampler=_From(seq_id, None),
                    num_workers=self.processes, prefetch_factor=self.prefetch, generator=torch.Generator(),
                    worker_init_fn=partial(_start_loader, os.getpid()),
                    multiprocessing_context="fork",  # they write into memory that they share with this process
                )
            )  # fmt: skip

    def _next(self) -> Any:
        assert self.stream is not None
        try:
            return pickle.loads(next(self.stream))
        except (ConnectionError, EOFError) as error:
            raise RunError(_GONE.format(error)) from error
        except UserError as error:  # torch puts a whole traceback before the message
            raise UserError(str(error).rpartition("sennit.errors.UserError: ")[2].strip()) from error
        except RuntimeError as error:
            told = loader_death(error)
            if told is None:
                raise
            raise told from error
