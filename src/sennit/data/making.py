"""`make_dataset`: the data set that a recipe names, of one split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sennit.data import DATA
from sennit.errors import RecipeError, UserError, first_line
from sennit.frames import raised_within
from sennit.strict_call import is_ours, parameters_of, refuse_arguments
from sennit.supernet.resolve import resolve


def make_dataset(name: str, base: str, data_args: Mapping[str, Any], split: str) -> Any:
    """Call the factory that `name` stands for.

    Args:
        name: a built-in data set or `file.py:Name`.
        base: folder that file names are relative to.

    Raises:
        RecipeError: it is not found, or does not take these arguments.
        UserError: as the factory says.
    """
    factory = DATA[name] if name in DATA else resolve(name, base, "data", DATA)
    arguments = dict(data_args)
    parameters = parameters_of(factory) or {}
    if "split" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        arguments["split"] = split
    elif split != "train":
        raise RecipeError(
            f"data = {name!r} takes no argument `split`, so there is no {split!r} data, which [evaluate] asks for; add "
            'split="train" to its arguments, or set every = 0 there'
        )
    refuse_arguments(factory, arguments, "data_args", RecipeError)
    try:
        return factory(**arguments)
    except UserError:
        raise
    except TypeError as error:
        if (where := raised_within(error)) and not is_ours(factory):
            raise RecipeError(
                f"{where} raised TypeError while data = {name!r} was made with these data_args {arguments!r}: {error}"
            ) from error
        raise RecipeError(f"data = {name!r} does not take these data_args {arguments!r}: {error}") from error
    except Exception as error:
        if not is_ours(factory):
            raise
        raise RecipeError(
            f"data = {name!r} cannot be made with these data_args {arguments!r}: {first_line(error)}; change the one "
            "that it is about"
        ) from error
