"""Arguments from a recipe's tables: what cannot be given is refused by name, never by a traceback."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import pytest

import sennit as sn
from sennit.data import DATA
from sennit.errors import UserError
from sennit.space.initialise import build_on_meta
from sennit.space.ready import SPACES
from sennit.strict_call import parameters_of

SMALL: dict[str, dict[str, Any]] = {
    "digits": {"width": 8, "blocks": 1}, "mnist5k": {"width": 2, "blocks": 1},
    "nlp.c3": {"vocab": 50, "d": 16, "layers": 1}, "cv.c3": {"width": 4, "blocks": 3},
}  # fmt: skip
WRONG = ["big", -1, -0.5, 2.5, [1], {"a": 1}, [], ["a"]]
"""None of them is what an argument of a ready space can be."""


@pytest.mark.parametrize("name", SMALL)
def test_every_argument_of_every_ready_space_wrong_once(name: str) -> None:
    """Some were tracebacks of torch, some advice about device 'meta', and `blocks = -1` trained nothing."""
    parameters = parameters_of(SPACES[name])
    assert parameters and "kwargs" not in parameters
    for argument in parameters:
        for wrong in WRONG:
            with pytest.raises(UserError) as caught:
                build_on_meta(SPACES[name], {**SMALL[name], argument: wrong})
            assert argument in str(caught.value) and repr(wrong) in str(caught.value), str(caught.value)
    with pytest.raises(UserError, match=r"space_args \w+ must be .* got 7$"):
        build_on_meta(SPACES[name], {**SMALL[name], "d" if name == "nlp.c3" else "width": 7})


@pytest.mark.parametrize("name", SPACES)
def test_the_candidates_that_a_name_stands_for_cannot_be_given_again(name: str) -> None:
    with pytest.raises(UserError, match=r"no argument 'candidate' \(= 3\); (did you mean|it takes)"):
        build_on_meta(SPACES[name], {"candidate": 3})
    assert "candidates" not in (parameters_of(SPACES[name]) or {})


@pytest.mark.parametrize("name", ["digits", "mnist5k", "pairs"])
def test_every_argument_of_every_data_set_wrong_once(name: str) -> None:
    for argument in inspect.signature(DATA[name]).parameters:
        for wrong in ["big", -1, -0.5, 2.5, {"a": 1}]:
            if argument == "split":
                continue
            recipe = sn.Recipe(space="digits", data=name, batch_size=100, steps=1, data_args={argument: wrong})
            with pytest.raises(UserError, match=argument):
                recipe.built.batches[0]


def test_a_users_function_is_asked_for_its_names_only() -> None:
    """Its annotations may be narrower than what it takes; what it cannot take, it says itself."""

    class Net(sn.ModelSpace):
        def __init__(self, width: int, *, depth: int = 1) -> None:
            super().__init__()
            assert width == 2.5 and depth == 1

    build_on_meta(Net, {"width": 2.5})
    build_on_meta(partial(Net, 2.5), {})
    with pytest.raises(
        UserError, match=r"Net does not take .*no argument 'dept' \(= 1\); did you mean 'depth'\? It ta"
    ):
        build_on_meta(Net, {"width": 2.5, "dept": 1})
    with pytest.raises(UserError, match=r"'width' is missing; set it in \[space_args\]"):
        build_on_meta(Net, {"depth": 1})
    with pytest.raises(AssertionError):
        build_on_meta(Net, {"width": 3})


def test_a_function_of_any_names_is_given_all() -> None:
    def make(**more: Any) -> sn.ModelSpace:
        raise UserError(repr(more))

    with pytest.raises(UserError, match="'any': 1"):
        build_on_meta(make, {"any": 1})
