"""Debian packages as a source of data: downloaded and unpacked, never installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sennit.errors import UserError

TIMEOUT_S = 600


def unpack(packages: Sequence[str], folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Download `packages` through the system's apt and unpack each below `folder`.

    Returns:
        Folder of each package's files, and the version of each, by package name.

    Raises:
        UserError: no apt or dpkg on this system, a package that apt does not know, no network, a full disk.
    """
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise UserError(
                f"this set is built from Debian packages ({', '.join(packages)}) and needs {tool}, which is "
                "missing; fetch it on Debian or Ubuntu and copy the data folder, or give data_args path"
            )
    _run(["apt-get", "--quiet", "download", *packages], folder, packages)
    folders: dict[str, Path] = {}
    versions: dict[str, str] = {}
    for package in packages:
        files = sorted(folder.glob(f"{package}_*.deb"))
        if not files:
            raise UserError(f"apt-get download {package} ended well, but left no file {package}_*.deb")
        folders[package] = folder / package
        _run(["dpkg-deb", "-x", files[0].name, package], folder, packages)
        versions[package] = _run(["dpkg-deb", "-f", files[0].name, "Version"], folder, packages).strip()
    return folders, versions


def _run(command: list[str], folder: Path, packages: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{' '.join(command)} did not run: {error}") from error
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-3:]
        raise UserError(
            f"{' '.join(command)} failed with code {done.returncode}: {' / '.join(last) or 'no message'}. "
            f"Needed are the packages {', '.join(packages)} from an up-to-date package list (apt-get update)"
        )
    return done.stdout
