"""`fetch`: content is built once, pinned by hash, put in place whole. Packages are made up here."""

from __future__ import annotations

import gzip
import io
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sennit.data import fetch as fetching
from sennit.data.debian import unpack
from sennit.data.fetch import SOURCES, fetch, fetched
from sennit.data.images.fashion import content_of, fashion_images, from_package
from sennit.data.store import sha256
from sennit.errors import UserError

CONTENT = b"the content"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """A source "ende" whose packages need no download; the list has a folder per build."""
    builds: list[Path] = []

    def pretend(packages: Any, folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
        builds.append(folder)
        return dict.fromkeys(packages, folder), dict.fromkeys(packages, "1.0")

    monkeypatch.setenv("SENNIT_DATA", str(tmp_path))
    monkeypatch.setattr(fetching, "unpack", pretend)
    source = replace(SOURCES["ende"], build=lambda folders: CONTENT, sha256=sha256(CONTENT))
    monkeypatch.setitem(SOURCES, "ende", source)
    return builds


def test_a_set_is_built_once(built: list[Path], tmp_path: Path) -> None:
    path = fetch("ende")
    assert path.read_bytes() == CONTENT and path == fetched("ende") == fetch("ende")
    assert len(built) == 1
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith(".")] == [path.name]  # no folder is left
    assert fetch("ende", root=tmp_path / "other").parent == tmp_path / "other"


def test_a_damaged_file_is_built_again(built: list[Path]) -> None:
    fetch("ende").write_bytes(b"cut off")
    assert fetch("ende").read_bytes() == CONTENT
    assert len(built) == 2


def test_other_content_is_refused_unless_it_is_pinned(built: list[Path], tmp_path: Path) -> None:
    other = sha256(CONTENT)
    SOURCES["ende"] = replace(SOURCES["ende"], sha256="0" * 64)
    with pytest.raises(UserError) as refused:
        fetch("ende")
    for part in ("libreoffice-help-de 1.0", other, "0" * 64, f'pin = "{other}"'):
        assert part in str(refused.value)
    assert not list(tmp_path.glob("ende-*"))
    assert fetch("ende", sha256=other) == fetched("ende", sha256=other)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wmt", "no data set 'wmt' to fetch; there are ende, fashion"),
        ("digits", "not fetched: it comes with scikit-learn"),
        ("cifar10", "without a licence"),
        ("pairs", "made where it is used"),
    ],
)
def test_other_names_say_where_the_data_comes_from(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        fetch(name)


def test_a_system_without_apt_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="needs apt-get, which is missing; fetch it on Debian or Ubuntu"):
        unpack(["a-package"], tmp_path)


def test_what_apt_says_is_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in (
        ("apt-get", "echo 'E: Unable to locate package' >&2; exit 100"),
        ("dpkg-deb", "exit 0"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UserError, match=r"code 100: E: Unable to locate package.*apt-get update"):
        unpack(["a-package"], tmp_path)


def test_packages_are_unpacked_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = tmp_path / "made"
    (made / "DEBIAN").mkdir(parents=True)
    (made / "DEBIAN" / "control").write_text(
        "Package: a-package\nVersion: 2:1.5\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: x\n"
    )
    (made / "usr").mkdir()
    (made / "usr" / "file").write_text("inside")
    try:
        subprocess.run(["dpkg-deb", "-b", str(made), str(tmp_path / "a.deb")], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no dpkg-deb that builds packages")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "apt-get").write_text(f"#!/bin/sh\ncp {tmp_path}/a.deb a-package_1.5_all.deb\n")
    (tools / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    (tmp_path / "out").mkdir()
    folders, versions = unpack(["a-package"], tmp_path / "out")
    assert (folders["a-package"] / "usr" / "file").read_text() == "inside"
    assert versions == {"a-package": "2:1.5"}


def idx(array: np.ndarray[Any, Any]) -> bytes:
    return gzip.compress(struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes())


def test_fashion_is_read_from_the_idx_files_of_its_package(tmp_path: Path) -> None:
    folder = tmp_path / "package" / "usr"
    folder.mkdir(parents=True)
    images = np.arange(5200 * 784, dtype=np.uint32).astype(np.uint8).reshape(5200, 28, 28)
    labels = (np.arange(5200) % 10).astype(np.uint8)
    for prefix, n in (("train", 5200), ("t10k", 30)):
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(idx(images[:n]))
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(idx(labels[:n]))
    npz = from_package(tmp_path / "package")
    assert content_of(npz) == images[:30].tobytes() + labels[:30].tobytes() + images.tobytes() + labels.tobytes()
    path = tmp_path / "fashion.npz"
    path.write_bytes(npz)
    sizes = {split: len(fashion_images(split, path=path)) for split in ("train", "valid", "test")}
    assert sizes == {"train": 200, "valid": 5000, "test": 30}
    x, y = fashion_images("test", path=path, size=32)[3]
    assert x.shape == (1, 32, 32) and int(y) == 3
    with pytest.raises(UserError, match="is damaged"):
        fashion_images("test", path=path, pin=SOURCES["fashion"].sha256)
    np.savez(buffer := io.BytesIO(), other=labels)
    path.write_bytes(buffer.getvalue())
    with pytest.raises(UserError, match="does not hold Fashion-MNIST"):
        fashion_images("test", path=path)
