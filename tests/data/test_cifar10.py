"""`cifar10`: JPEG files in one array, decoded once. The real file is used where it is beside the
repository."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from sennit.data.images.cifar10 import cifar10_images
from sennit.errors import UserError

Image = pytest.importorskip("PIL.Image")

REAL = Path(__file__).parents[3] / "shared" / "data" / "cifar10_jpeg.npz"


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SENNIT_DATA", str(tmp_path / "data"))


def jpeg(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), (value, 0, 255 - value)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file of the right form, with so many training images that 10 are left beside "valid"."""
    arrays = {}
    for part, n in (("train", 3010), ("test", 20)):
        files = [jpeg((i % 10) * 20) for i in range(n)]
        arrays[f"{part}_bytes"] = np.frombuffer(b"".join(files), np.uint8)
        arrays[f"{part}_offsets"] = np.cumsum([0, *map(len, files)])
        arrays[f"{part}_labels"] = (np.arange(n) % 10).astype(np.uint8)
    path = tmp_path / "cifar10_jpeg.npz"
    np.savez(path, **arrays)
    return path


def test_images_are_decoded_once_and_normalised(small: Path, tmp_path: Path) -> None:
    data = {split: cifar10_images(split, path=small) for split in ("train", "valid", "test")}
    assert {split: len(part) for split, part in data.items()} == {"train": 10, "valid": 3000, "test": 20}
    x, y = data["test"][3]
    assert x.shape == (3, 32, 32) and int(y) == 3
    assert abs(int(data["test"].pixels[3][0, 5, 5]) - 60) < 4 and int(data["test"].pixels[3][1].max()) < 4
    assert len(list((tmp_path / "data" / "cache").glob("cifar10-*.npy"))) == 2
    again = cifar10_images("test", path=small)
    assert again.sha256 == data["test"].sha256


def test_the_file_is_looked_for_in_the_data_folder(small: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"put cifar10_jpeg\.npz into the data folder"):
        cifar10_images()
    (tmp_path / "data").mkdir(exist_ok=True)
    small.rename(tmp_path / "data" / "cifar10_jpeg.npz")
    assert len(cifar10_images("test")) == 20


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(UserError, match="train_bytes"):
        cifar10_images(path=tmp_path / "other.npz")
    with pytest.raises(UserError, match="cannot be joined"):
        cifar10_images("train+test", path=tmp_path / "other.npz")


@pytest.mark.skipif(not REAL.is_file(), reason="the images are not beside the repository")
def test_the_real_file() -> None:
    data = cifar10_images("test", path=REAL)
    assert len(data) == 5000
    assert np.abs(data.pixels.mean((0, 2, 3)) - [125.3, 123.0, 113.9]).max() < 3
