"""Random and mutated archs, from counter-based draws."""

from __future__ import annotations

from typing import Any

from sennit.space.choice import Arch, Option
from sennit.space.structure import Structure
from sennit.supernet.keys import below, mix, name_key


class Draws:
    """Numbers from a key. Each depends on the key and its coordinates only, not on what else was drawn."""

    def __init__(self, key: int) -> None:
        self.key = key

    def below(self, n: int, *coordinates: str | int) -> int:
        """A number in `0 .. n-1` for these coordinates."""
        parts = [name_key(c) if isinstance(c, str) else c for c in coordinates]
        return below(mix(self.key, *parts), n)

    def unit(self, *coordinates: str | int) -> float:
        """A number in [0, 1), of 53 bits, for these coordinates."""
        return self.below(1 << 53, *coordinates) / (1 << 53)


def random_options(structure: Structure, draws: Draws) -> dict[str, Option]:
    """An option for every label, active or not, each option with equal probability."""
    found: dict[str, Option] = {}
    for label, site in structure.sites.items():
        options = site.choice.options()
        found[label] = options[draws.below(len(options), "random", label)]
    return found


def random_arch(structure: Structure, draws: Draws) -> dict[str, Any]:
    """Every option of every choice with equal probability."""
    return structure.canonical(_encoded(structure, random_options(structure, draws)))


def mutated_arch(structure: Structure, arch: Arch, draws: Draws, probability: float) -> dict[str, Any]:
    """`arch` with some choices changed: each with `probability`, and at least one.

    A changed choice takes one of its other options. Choices that become active by this are drawn at random.

    Args:
        arch: canonical.
        probability: per choice. 0 changes exactly one, as in Real et al. 2019, section 3.
    """
    options = random_options(structure, draws)
    options.update({label: structure.sites[label].choice.parse(value) for label, value in arch.items()})
    open_labels = [label for label in arch if len(structure.sites[label].choice.options()) > 1]
    if open_labels:
        hit = [label for label in open_labels if draws.unit("mutate", label) < probability]
        hit = hit or [open_labels[draws.below(len(open_labels), "which")]]
        for label in hit:
            others = [o for o in structure.sites[label].choice.options() if o != options[label]]
            options[label] = others[draws.below(len(others), "other", label)]
    return structure.canonical(_encoded(structure, options))


def _encoded(structure: Structure, options: dict[str, Option]) -> dict[str, Any]:
    return {label: site.choice.encode(options[label]) for label, site in structure.sites.items()}
