"""What a placement may not say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sennit.errors import RecipeError
from sennit.placement import Placement

GRAPHS: dict[str, Any] = {"device": "cuda", "executor": "graphs"}

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "other word": ({**GRAPHS, "activations": "some"}, "--activations must be recompute or keep, got 'some'"),
    "eager": ({"activations": "keep"}, "got --executor eager, which keeps it anyway; leave it out, or use"),
    "nothing is kept": ({**GRAPHS, "activations_gib": 2.0}, "--activations-gib 2 .* got --activations recompute"),
    "below 0": ({**GRAPHS, "activations": "keep", "activations_gib": -1.0}, "must be a number of GiB.* got -1"),
    "no end": ({**GRAPHS, "activations": "keep", "activations_gib": float("inf")}, "must be a number of GiB.* got inf"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_words_about_activations_are_refused(case: str) -> None:
    words, told = WRONG[case]
    with pytest.raises(RecipeError, match=re.compile(told, re.DOTALL)):
        Placement(**words)


def test_a_limit_is_bytes() -> None:
    assert Placement(**GRAPHS, activations="keep", activations_gib=0.5).activations_bytes == 1 << 29
    assert Placement(**GRAPHS, activations="keep").activations_bytes == 0
    assert Placement().activations == "recompute", "what has not been seen on a GPU is not the default"
