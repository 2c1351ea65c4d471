"""How hosts find each other: host 0 leaves its port and a key in torch's store at `MASTER_ADDR`, the others read them.

    host 0   claim number 0 ── port, key ──▶ store             then `Meeting.await_others`
    host h   claim number h ◀── port, key ── store             then `Meeting.join`

Whoever waits says for whom, and does not wait for ever.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sennit.errors import RunError, UserError
from sennit.runtime.hosts.wire import KEY_BYTES, listen

if TYPE_CHECKING:
    from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

FIRST_NOTE_S, NOTE_S = 3.0, 30.0
"""After how long it is said that somebody is waited for, and how often then, seconds."""

POLL_S = 0.2

STORED = "sennit"
"""Where host 0's port and the key lie in the store."""

CLAIMED = "sennit/host {}"
"""Counts who has come under a number."""

Note = Callable[[str], None]


class Waiting:
    """For other hosts, with a limit.

    Args:
        who: is waited for, and where: `host 1 of 2 at 10.0.0.1:29400`.
        note: told so after a few seconds, and again now and then.
    """

    def __init__(self, who: str, patience: float, note: Note, clock: Callable[[], float] = time.monotonic) -> None:
        self.who, self.patience, self.note, self.clock = who, patience, note, clock
        self.began = clock()
        self.next_note = self.began + FIRST_NOTE_S

    def look(self, why: str = "") -> float:
        """Seconds that are left.

        Args:
            why: what keeps them away, as far as it is known.

        Raises:
            RunError: none are.
        """
        now, of_it = self.clock(), f" ({why})" if why else ""
        if now >= self.began + self.patience:
            raise RunError(
                f"{self.who} did not come within {self.patience:g} s{of_it}. Start every host with the same "
                "--master-addr, --master-port and --nnodes, and a --node-rank of its own"
            )
        if now >= self.next_note:
            self.next_note = now + NOTE_S
            self.note(f"waiting for {self.who}{of_it}")
        return self.began + self.patience - now


@dataclass(frozen=True)
class Found:
    """What is known once host 0's address is.

    Attributes:
        here, count: which host this is, of how many.
        where: all meet, in words.
        address, key: of host 0.
        listener: on host 0, takes connections there.
        store: on host 0, to be kept until all have come.
    """

    here: int
    count: int
    where: str
    address: tuple[str, int]
    key: bytes
    listener: socket.socket | None = None
    store: Store | None = None


def find(environment: Mapping[str, str], patience: float, note: Note) -> Found:
    """Meet in torch's store.

    Raises:
        UserError: another process has this host's number, or that is none.
        RunError: the store cannot be reached or set up.
    """
    here, count = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    if not 0 <= here < count:
        raise UserError(f"--node-rank {here} is none of {count} hosts; use 0 to {count - 1}, or raise --nnodes")
    master, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    where = f"{master}:{port}"
    waiting = Waiting(f"host 0 of {count} at {where}", patience, note)
    leads = not here and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = _store(master, port, leads, waiting)
        if store.add(CLAIMED.format(here), 1) > 1:
            raise UserError(
                f"another process has come to {where} as host {here} already: give every host a --node-rank of its "
                f"own, 0 to {count - 1}; one that ended early needs the others started again, too"
            )
        if not here:
            listener, key = listen(), secrets.token_bytes(KEY_BYTES)
            address = master, int(listener.getsockname()[1])
            store.set(STORED, json.dumps({"port": address[1], "key": key.hex()}))
            return Found(here, count, where, address, key, listener, store)
        while not store.check([STORED]):
            waiting.look()
            time.sleep(POLL_S)
        held = json.loads(store.get(STORED))
    except (RuntimeError, ValueError) as error:  # torch's, for what cannot be reached or set up
        if isinstance(error, RunError | UserError):
            raise
        raise RunError(f"the hosts did not meet at {where}: {str(error).splitlines()[0][:300]}") from error
    return Found(here, count, where, (master, int(held["port"])), bytes.fromhex(held["key"]))


def _store(master: str, port: int, leads: bool, waiting: Waiting) -> Store:
    """The store, here or there. Of torch's own waiting nobody would be told."""
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    left = timedelta(seconds=waiting.patience if leads else _reach((master, port), waiting))
    return TCPStore(master, port, is_master=leads, timeout=left, wait_for_workers=False)


def _reach(address: tuple[str, int], waiting: Waiting) -> float:
    """Wait until somebody takes connections there; returns the seconds that are left."""
    while True:
        try:
            socket.create_connection(address, 1.0).close()
        except OSError as error:
            waiting.look(error.strerror or str(error))
            time.sleep(POLL_S)
        else:
            return waiting.look()
