"""`ende`: sub-words of the sentence pairs. The real table is used where it is found beside the repository."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from sennit.data.fetch import SOURCES
from sennit.data.pairs.bpe import encoder
from sennit.data.pairs.ende import ende_pairs
from sennit.data.pairs.help_text import HEADER
from sennit.data.pairs.number_words import sentence
from sennit.data.splits import split_of
from sennit.data.store import sha256
from sennit.errors import UserError

pytest.importorskip("sentencepiece")

REAL = Path(__file__).parents[3] / "shared" / "data" / "en_de_help.tsv.gz"


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SENNIT_DATA", str(tmp_path / "data"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = sorted((split_of(s), s, t) for s, t in {sentence(i) for i in range(500)})
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{line}\n" for line in (HEADER, *("\t".join(row) for row in rows))))
    return path


def test_tokens_say_what_the_text_says(table: Path) -> None:
    data = ende_pairs("train", path=table, vocab=120)
    assert len(data) > 300 and data.left_out == 0
    for i in (0, 5, 50):
        assert data.text([t for t in data.targets[i] if t > 3]) == data.references[i]
    assert max(max(tokens) for tokens in data.sources + data.targets) < 120
    assert data.sha256 == sha256(table.read_bytes())


def test_units_are_learnt_once_and_the_same_again(table: Path, tmp_path: Path) -> None:
    first = ende_pairs("valid", path=table, vocab=120)
    cached = list((tmp_path / "data" / "cache").glob("bpe-*.model"))
    assert len(cached) == 1
    content = cached[0].read_bytes()
    again = ende_pairs("valid", path=table, vocab=120)
    assert again.sources == first.sources
    cached[0].unlink()
    assert ende_pairs("valid", path=table, vocab=120).targets == first.targets
    assert cached[0].read_bytes() == content


def test_a_gzip_file_is_the_same_table(table: Path, tmp_path: Path) -> None:
    packed = tmp_path / "pairs.tsv.gz"
    packed.write_bytes(gzip.compress(table.read_bytes()))
    assert ende_pairs("test", path=packed, vocab=120).targets == ende_pairs("test", path=table, vocab=120).targets
    packed.write_bytes(b"no gzip")
    with pytest.raises(UserError, match="not a gzip file"):
        ende_pairs("test", path=packed, vocab=120)


def test_a_set_that_was_not_fetched_says_how_to_get_it() -> None:
    with pytest.raises(UserError, match="run `sennit data fetch ende`, or give data_args path"):
        ende_pairs()


def test_a_damaged_set_is_refused_with_both_hashes(table: Path, tmp_path: Path) -> None:
    pin = SOURCES["ende"].sha256
    place = tmp_path / "data" / f"ende-{pin[:16]}.tsv"
    place.parent.mkdir(parents=True)
    place.write_bytes(table.read_bytes())
    with pytest.raises(UserError, match=f"is damaged: SHA-256 of its content is .*, expected {pin}"):
        ende_pairs()
    with pytest.raises(UserError, match="is damaged"):
        ende_pairs(path=table, pin="0" * 64)


@pytest.mark.parametrize("vocab", [4, 0, "many", 100_000])
def test_vocabularies_that_cannot_be_are_refused(table: Path, vocab: Any) -> None:
    with pytest.raises(UserError, match="vocab"):
        ende_pairs(path=table, vocab=vocab)


def test_special_tokens_have_their_numbers(table: Path) -> None:
    bpe = encoder(["one two three"] * 10, "0" * 64, 30)
    assert [bpe.pad_id(), bpe.bos_id(), bpe.eos_id(), bpe.unk_id()] == [0, 1, 2, 3]


@pytest.mark.skipif(not REAL.is_file(), reason="the table of help texts is not beside the repository")
def test_the_real_table_is_the_pinned_one() -> None:
    data = {split: ende_pairs(split, path=REAL, pin=SOURCES["ende"].sha256) for split in ("valid", "test")}
    assert {split: len(part) + part.left_out for split, part in data.items()} == {"valid": 1372, "test": 1374}
    shapes = {data["valid"].collate([data["valid"][i]])[1].shape[1] for i in range(0, 1372, 20)}
    assert shapes <= {8, 16, 24, 32, 48, 64, 96, 128}
