"""`PairSet`: what the encoder and the decoder read, padding, greedy decoding, BLEU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sennit.data.order import KeyedBatches
from sennit.data.pairs.decode import BOS, EOS, PAD, greedy
from sennit.data.pairs.number_words import number_pairs
from sennit.data.pairs.pair_set import PairSet

SOURCES = [[4, 5], [6], [7, 8, 9, 10, 11, 12]]
TARGETS = [[20, 21, 22], [23], [24, 25]]


def made(lengths: tuple[int, ...] = (4, 8)) -> PairSet:
    return PairSet(
        SOURCES, TARGETS, ["t u v", "w", "x y"], lambda tokens: " ".join(map(str, tokens)),
        lengths=lengths, rows_multiple=1, score_samples=10, sha256="0",
    )  # fmt: skip


def one_hot(tokens: Tensor, vocab: int = 40) -> Tensor:
    return torch.nn.functional.one_hot(tokens, vocab).float()


def test_the_decoder_reads_what_came_before_what_it_says() -> None:
    (source, so_far), wanted = made()[0]
    assert source.tolist() == [4, 5, EOS]
    assert so_far.tolist() == [BOS, 20, 21, 22]
    assert wanted.tolist() == [20, 21, 22, EOS]


def test_a_batch_is_padded_to_the_length_of_its_bucket() -> None:
    data = made()
    (source, so_far), wanted = data.collate([data[0], data[1]])
    assert source.tolist() == [[4, 5, EOS, PAD], [6, EOS, PAD, PAD]]
    assert so_far.tolist() == [[BOS, 20, 21, 22], [BOS, 23, PAD, PAD]]
    assert wanted.tolist() == [[20, 21, 22, EOS], [23, EOS, PAD, PAD]]
    (source, so_far), wanted = data.collate([data[1], data[2]])
    assert source.shape == so_far.shape == wanted.shape == (2, 8)


def test_pairs_longer_than_the_longest_length_are_left_out_and_counted() -> None:
    assert len(made((4,))) == 2 and made((4,)).left_out == 1
    assert len(made()) == 3 and made().left_out == 0


def test_batches_come_in_few_shapes_whoever_asks() -> None:
    data = number_pairs("train", count=600, rows_multiple=4)
    batches = KeyedBatches(data, 192, seed=7)
    shapes = {}
    for seq_id in range(25):
        (source, so_far), wanted = batches[seq_id]
        assert source.shape == so_far.shape == wanted.shape and source.shape[0] % 4 == 0
        shapes.setdefault(source.shape[1], set()).add(source.shape[0])
    assert len(shapes) <= 8 and all(len(rows) == 1 for rows in shapes.values())
    again = KeyedBatches(number_pairs("train", count=600, rows_multiple=4), 192, seed=7)
    assert torch.equal(again[11][1], batches[11][1])


def test_greedy_says_the_most_likely_token_until_the_end() -> None:
    """A "network" that copies its source to the output, whatever the decoder reads."""
    calls = []

    def copying(source: Tensor, so_far: Tensor) -> Tensor:
        calls.append(so_far.shape[1])
        return one_hot(source)[:, : so_far.shape[1]]

    source = torch.tensor([[4, 5, EOS, PAD], [6, 7, 8, EOS]])
    assert greedy(copying, source, (4, 8)) == [[4, 5], [6, 7, 8]]
    assert calls == [4, 4, 4, 4]  # four positions, each on the smallest length that holds it


def test_greedy_reads_its_own_output_and_stops_at_the_longest_length() -> None:
    """A "network" that counts: it says one more than the token before. It never ends a sentence."""

    def counting(source: Tensor, so_far: Tensor) -> Tensor:
        return one_hot((so_far + 1).clamp(min=5))

    assert greedy(counting, torch.tensor([[4, EOS]]), (2, 4)) == [[5, 6, 7]]
    assert greedy(counting, torch.tensor([[4] * 4]), (4,)) == [[5, 6, 7]]


def test_greedy_never_says_padding_or_begin() -> None:
    def stuck(source: Tensor, so_far: Tensor) -> Tensor:
        return (
            one_hot(torch.zeros_like(so_far))
            + one_hot(torch.full_like(so_far, BOS))
            + 0.5 * one_hot(torch.full_like(so_far, EOS))
        )

    assert greedy(stuck, torch.tensor([[4, EOS]]), (4,)) == [[]]


def test_score_is_bleu_with_its_signature() -> None:
    pytest.importorskip("sacrebleu")
    data = number_pairs("valid", score_samples=40)
    of_source = {tuple(s): t for s, t in zip(data.sources, data.targets, strict=True)}

    def knowing(source: Tensor, so_far: Tensor) -> Tensor:
        said = torch.zeros_like(so_far)
        for row, tokens in enumerate(source.tolist()):
            right = of_source[tuple(t for t in tokens if t)][: so_far.shape[1]]
            said[row, : len(right)] = torch.tensor(right)
        return one_hot(said, 80)

    assert data.signature == ""
    assert data.score(knowing) == {"bleu": pytest.approx(100.0)}
    assert data.signature.startswith("nrefs:1|case:mixed") and "version:" in data.signature
    assert data.score(lambda source, so_far: one_hot(torch.full_like(so_far, 9), 80))["bleu"] < 5
