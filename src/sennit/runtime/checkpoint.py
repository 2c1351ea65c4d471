"""Checkpoints: all state after a number of finished subnets, in a folder that is there whole or not at all.

    checkpoints/00000050/            50 subnets are finished; the next seq id is 50
        weights.safetensors          canonical name -> parameter or buffer
        optimizer.safetensors        `parameter.key` -> state, `parameter.pending.SEQ` -> a delayed gradient
        state.json                   the rest, with size and SHA-256 of the two others and of itself

Everything is keyed by name, so a checkpoint does not know how many workers wrote it, and any number of them
can read it (docs/architecture.md). No pickle: a checkpoint from somebody else runs no code.

A folder is written under another name beside its place, forced to disk and renamed. A process killed at any
moment leaves the older checkpoints and at most a hidden folder, which the next write removes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from sennit.errors import CheckpointError, RunError
from sennit.runtime.tensorfile import TensorFile, write_tensors

WEIGHTS, OPTIMIZER, STATE = "weights.safetensors", "optimizer.safetensors", "state.json"
FORMAT = 1
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says when there is no room: disk, quota, size limit of a file."""

_NAME = re.compile(r"\d{8,}")
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Loaded:
    """A checkpoint that has been found whole. Tensors are read when they are asked for.

    Attributes:
        folder: where it lies.
        state: what `write` was given, and `next_seq_id`.
    """

    folder: Path
    state: dict[str, Any]

    @property
    def seq_id(self) -> int:
        """Number of finished subnets, which is the seq id to go on with."""
        return int(self.state["next_seq_id"])

    @cached_property
    def weights(self) -> Mapping[str, Tensor]:
        """Canonical name to tensor, on the CPU."""
        return TensorFile(self.folder / WEIGHTS)

    @cached_property
    def optimizer(self) -> Mapping[str, Tensor]:
        """`parameter.key` to tensor, on the CPU."""
        return TensorFile(self.folder / OPTIMIZER)


def folders(root: Path) -> list[Path]:
    """The checkpoints under `root`, oldest first, whole or not."""
    if not root.is_dir():
        return []
    found = [p for p in root.iterdir() if _NAME.fullmatch(p.name) and p.is_dir()]
    return sorted(found, key=lambda p: int(p.name))


def write(
    root: Path,
    seq_id: int,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep: int,
) -> Path:
    """Save a checkpoint, then remove all but the newest `keep`.

    Args:
        root: the folder `checkpoints`; made if it is not there.
        seq_id: number of finished subnets.
        weights: canonical name to parameter or buffer, any device, any strides.
        optimizer: `parameter.key` to state tensor.
        state: JSON-safe, with the recipe's `identity`; a `recipe` in it lets a refusal say which keys differ.
        keep: at least 1.

    Returns:
        The new folder.

    Raises:
        RunError: it could not be written, for instance because the disk is full. Older ones are untouched.
    """
    assert keep >= 1 and "identity" in state, "a checkpoint belongs to a recipe and is not removed at once"
    target = root / f"{seq_id:08d}"
    aside = root / f".{target.name}.writing"
    try:
        root.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(root)
        aside.mkdir()
        files = {
            name: dict(zip(("bytes", "sha256"), write_tensors(aside / name, tensors), strict=True))
            for name, tensors in ((WEIGHTS, weights), (OPTIMIZER, optimizer))
        }
        _write_state(aside / STATE, {**state, "format": FORMAT, "next_seq_id": seq_id, "files": files})
        sync_folder(aside)
        _put(aside, target)
        sync_folder(root)
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if isinstance(error, OSError):
            raise RunError(_not_written(root, target, error)) from error
        raise
    for old in folders(root)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def newest(root: Path, identity: str, recipe: Mapping[str, Any] | None = None) -> Loaded | None:
    """The newest checkpoint under `root`; None if there is none.

    Args:
        identity: of the recipe that wants to go on.
        recipe: that recipe as a dict, to say what differs.

    Raises:
        CheckpointError: the newest one is damaged or of another recipe. It is named, with what is wrong and
            what to do to go on from an older one. Nothing is skipped silently.
    """
    found = folders(root)
    if not found:
        return None
    try:
        return load(found[-1], identity, recipe)
    except CheckpointError as error:
        raise CheckpointError(f"{error}\n{_way_on(found, identity)}") from error


LONGER = ". To train longer, leave the recipe as it was and give --steps"


def load(folder: Path, identity: str | None = None, recipe: Mapping[str, Any] | None = None) -> Loaded:
    """One checkpoint, checked to the last byte.

    Args:
        identity: of the recipe it must belong to; None takes any.

    Raises:
        CheckpointError: a missing, shortened or changed file, or another recipe; names the folder.
    """
    state = _read_state(folder)
    if identity is not None and state.get("identity") != identity:
        difference = differences(state.get("recipe"), recipe)
        raise CheckpointError(
            f"checkpoint {folder} belongs to another recipe"
            + (f" ({'; '.join(difference)})" if difference else "")
            + f": identity {str(state.get('identity'))[:12]}, this recipe has {identity[:12]}"
            + (LONGER if difference and all(d.startswith("steps = ") for d in difference) else "")
        )
    for name, wanted in state["files"].items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            raise CheckpointError(f"checkpoint {folder} is damaged: {name} is missing")
        if size != wanted["bytes"]:
            raise CheckpointError(
                f"checkpoint {folder} is damaged: {name} has {size} bytes, {wanted['bytes']} were written"
            )
        if _hash_file(path) != wanted["sha256"]:
            raise CheckpointError(f"checkpoint {folder} is damaged: {name} does not hold what was written")
    return Loaded(folder, state)


def differences(theirs: Any, ours: Any) -> list[str]:
    """What differs between two recipes, as `key = theirs there, ours here`; first what decides bits."""
    there, here = _flat(theirs), _flat(ours)
    if not there or not here:
        return []
    keys = [k for k in sorted({*there, *here}) if there.get(k) != here.get(k)]
    deciding = [k for k in keys if k.split(".")[0] not in ("checkpoint", "evaluate", "steps")]
    return [f"{k} = {there.get(k)!r} there, {here.get(k)!r} here" for k in deciding or keys]


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, Mapping):
        return {}
    found: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        found.update(_flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value})
    return found


def _write_state(path: Path, state: Mapping[str, Any]) -> None:
    body = json.dumps(state, allow_nan=False)
    seal = hashlib.sha256(body.encode()).hexdigest()
    with path.open("x", encoding="utf-8") as file:
        file.write(f'{{"sha256": "{seal}", "state": {body}}}\n')
        file.flush()
        os.fsync(file.fileno())


def _read_state(folder: Path) -> dict[str, Any]:
    path = folder / STATE
    damaged = f"checkpoint {folder} is damaged: {STATE}"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        raise CheckpointError(f"{damaged} {reason}") from error
    start = re.match(r'\{"sha256": "([0-9a-f]{64})", "state": ', text)
    if start is None or not text.endswith("}\n"):
        raise CheckpointError(f"{damaged} is shortened or no checkpoint's state ({len(text)} characters)")
    body = text[start.end() : -2]
    if hashlib.sha256(body.encode()).hexdigest() != start[1]:
        raise CheckpointError(f"{damaged} is not what was written")
    state: dict[str, Any] = json.loads(body)
    if state.get("format") != FORMAT:
        raise CheckpointError(
            f"checkpoint {folder} has format {state.get('format')!r}; this version of sennit reads {FORMAT}"
        )
    if state["next_seq_id"] != int(folder.name):
        raise CheckpointError(
            f"checkpoint {folder} was renamed: it holds {state['next_seq_id']} finished subnets; "
            f"call it {state['next_seq_id']:08d}"
        )
    return state


def _way_on(found: list[Path], identity: str) -> str:
    """What to do about the newest of `found`: how to use an older one, if one is whole."""
    bad = found[-1]
    for folder in reversed(found[:-1]):
        with contextlib.suppress(CheckpointError):
            load(folder, identity)
            between = [f.name for f in found[found.index(folder) + 1 :]]
            what = "it" if len(between) == 1 else f"{', '.join(between)} (none is usable)"
            return f"Remove {what} to resume from {bad.parent.name}/{folder.name}: rm -r " + " ".join(
                shlex.quote(str(bad.parent / name)) for name in between
            )
    older = "There is no older one" if len(found) == 1 else "None of the older ones is usable either"
    return f"{older}. Resume with the recipe that made it, or start anew with another --out."


def _put(aside: Path, target: Path) -> None:
    """Give `aside` its name. A folder of that name (the same cut, saved before) makes place first."""
    if not target.exists():
        aside.rename(target)
        return
    old = target.with_name(f".{target.name}.old")
    target.rename(old)
    aside.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _remove_leftovers(root: Path) -> None:
    """Folders of a process that was killed while it wrote. The run folder's lock says that it is gone."""
    for path in root.glob(".[0-9]*"):
        if path.suffix in (".writing", ".old"):
            shutil.rmtree(path, ignore_errors=True)


def _not_written(root: Path, target: Path, error: OSError) -> str:
    kept = [f"{root.name}/{f.name}" for f in folders(root)]
    older = f"the older checkpoints are kept: {', '.join(kept)}" if kept else "there is no older checkpoint"
    if error.errno not in FULL:
        return f"checkpoint {target} could not be written: {error.strerror or error}; {older}"
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(root if root.is_dir() else root.parent).free
        return (
            f"the disk is full: checkpoint {target} could not be written ({error.strerror}, "
            f"{free / 2**20:.0f} MiB free); {older}. Make room and go on with --resume, "
            "or keep fewer with [checkpoint] keep"
        )
    return f"the disk is full: checkpoint {target} could not be written; {older}"


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
