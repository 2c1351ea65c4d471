"""Spaces that come with sennit, by the names that recipes use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sennit.space.model_space import ModelSpace
from sennit.space.ready.cv.nasnet import NasNetSpace
from sennit.space.ready.digits import Digits
from sennit.space.ready.mnist5k import Mnist5k
from sennit.space.ready.nlp.evolved import EvolvedTransformer

SPACES: dict[str, Callable[..., ModelSpace]] = {
    "digits": Digits,
    "mnist5k": Mnist5k,
    "nlp.c0": partial(EvolvedTransformer, 96),
    "nlp.c1": partial(EvolvedTransformer, 72),
    "nlp.c2": partial(EvolvedTransformer, 48),
    "nlp.c3": partial(EvolvedTransformer, 24),
    "cv.c1": partial(NasNetSpace, 48),
    "cv.c2": partial(NasNetSpace, 24),
    "cv.c3": partial(NasNetSpace, 12),
}
"""`SPACES[name](**space_args)`."""
