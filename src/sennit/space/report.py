"""`space_report`: what a space contains, and what its always-shared layers cost. Printed before training.

A network's parameters are those that its program reads. In a space whose choices form a tree the smallest
and the largest network are found exactly, from the leaves up:

    cost(choice) = min (or max) over its options of: parameters under it + cost of choices under it

Where that does not hold (a choice of inputs leaves layers unused, a module stands under several choices) small
spaces are counted through, and larger ones get bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from sennit.space.always import SMALL
from sennit.space.choice import Option
from sennit.space.input_choice import InputChoice
from sennit.space.names import all_tensors, canonical_names
from sennit.space.structure import Condition, Structure, condition_of

if TYPE_CHECKING:
    from sennit.supernet.build import Built
    from sennit.supernet.sync import Shared
    from sennit.supernet.sync_rule import SyncRule

Range = tuple[int, int]


@dataclass(frozen=True)
class SpaceReport:
    """What a space contains.

    Attributes:
        networks: how many; None if there are more than can be counted.
        blocks: places of the network that a plan can give to workers.
        parameters, nbytes: of the smallest and of the largest network.
        exact: whether these are networks' own; else they are bounds.
        all_parameters, all_nbytes: of the supernet.
        always: names of the always-shared groups of parameters.
        always_parameters, always_nbytes: in them.
        shared: the recipe's policy for them.
        sync: the recipe's synchronisation rule.
        policy: what the two cost, in words.
    """

    networks: int | None
    blocks: int
    parameters: Range
    nbytes: Range
    exact: bool
    all_parameters: int
    all_nbytes: int
    always: tuple[str, ...]
    always_parameters: int
    always_nbytes: int
    shared: str
    sync: str
    policy: str

    def lines(self) -> list[str]:
        """For people."""
        low, high = self.parameters
        bound = "" if self.exact else "at least / at most "
        size = "more networks than can be counted" if self.networks is None else f"{_count(self.networks)} networks"
        rule = "" if self.sync == "csp" else f", sync = {self.sync!r}"
        named = ", ".join(self.always[:4]) + (f" and {len(self.always) - 4} more" if len(self.always) > 4 else "")
        return [
            f"space: {size}; {self.blocks} blocks to place; supernet {_count(self.all_parameters)} parameters, "
            f"{_bytes(self.all_nbytes)}",
            f"network: {bound}{_count(low)} to {_count(high)} parameters, {_bytes(self.nbytes[0])} to "
            f"{_bytes(self.nbytes[1])}",
            f"always shared: {named or 'nothing'}"
            + (f" ({_count(self.always_parameters)} parameters)" if self.always else ""),
            f"shared = {self.shared!r}{rule}: {self.policy}",
        ]


@dataclass(frozen=True)
class _Storage:
    """A parameter that some network reads, and under which choices it stands."""

    numel: int
    nbytes: int
    places: frozenset[Condition]


def space_report(built: Built) -> SpaceReport:
    """The report of a recipe's space. Its programs are recorded if they are not yet."""
    from sennit.profile.quick import block_order

    structure = built.recordings.structure
    tensors = _parameters(built.skeleton)
    used = {name for program in built.covering for step in program.steps for name in step.params}
    storages = {name: _storage(built.skeleton, name, tensor, paths) for name, (tensor, paths) in tensors.items()}
    parameters, nbytes, exact = _extremes(built, structure, storages, used)
    always = tuple(sorted(built.always[0]))
    shared_names = [n for group in always for n in built.groups.by_name[group].names]
    n, size = (sum(getattr(storages[name], key) for name in shared_names) for key in ("numel", "nbytes"))
    return SpaceReport(
        networks=structure.size(),
        blocks=len(block_order(built)),
        parameters=parameters,
        nbytes=nbytes,
        exact=exact,
        all_parameters=sum(s.numel for s in storages.values()),
        all_nbytes=sum(s.nbytes for s in storages.values()),
        always=always,
        always_parameters=n,
        always_nbytes=size,
        shared=built.recipe.shared,
        sync=built.recipe.sync,
        policy=_policy(built.recipe.sharing, built.recipe.sync_rule, always, size),
    )


def _parameters(root: nn.Module) -> dict[str, tuple[Tensor, list[str]]]:
    """Canonical name to tensor and all its paths."""
    names = canonical_names(root)
    found: dict[str, tuple[Tensor, list[str]]] = {}
    for path, tensor in all_tensors(root):
        if isinstance(tensor, nn.Parameter):
            found.setdefault(names[id(tensor)], (tensor, []))[1].append(path)
    return found


def _storage(root: nn.Module, name: str, tensor: Tensor, paths: list[str]) -> _Storage:
    places = frozenset(condition_of(root, path.rpartition(".")[0]) for path in paths)
    if () in places:  # used in any case
        places = frozenset[Condition]({()})
    return _Storage(tensor.numel(), tensor.numel() * tensor.element_size(), places)


def _extremes(
    built: Built, structure: Structure, storages: dict[str, _Storage], used: set[str]
) -> tuple[Range, Range, bool]:
    """Parameters and bytes of the smallest and largest network, and whether these are exact.

    Args:
        used: names of the storages that the covering archs read; a module that nobody calls is in none.
    """
    living = {name: storage for name, storage in storages.items() if name in used}
    tree = all(len(set(site.conditions)) == 1 for site in structure.sites.values())
    tree = tree and all(len(storage.places) == 1 for storage in living.values())
    tree = tree and not any(
        isinstance(s.choice, InputChoice) and len(s.choice.options()) > 1 for s in structure.sites.values()
    )
    if tree and all(_expected(built, structure, living, program.arch) for program in built.covering):
        found = [_tree(structure, living.values(), key, pick) for key in ("numel", "nbytes") for pick in (min, max)]
        return (found[0], found[1]), (found[2], found[3]), True
    size = structure.size()
    if size is not None and size <= SMALL:
        counts = [[_of(built, storages, arch, key) for key in ("numel", "nbytes")] for arch in structure.enumerate()]
        n, b = zip(*counts, strict=True)
        return (min(n), max(n)), (min(b), max(b)), True
    always = [n for group in built.always[0] for n in built.groups.by_name[group].names]
    loose = [s if len(s.places) == 1 else _Storage(s.numel, s.nbytes, frozenset({()})) for s in storages.values()]
    ranges = [
        (sum(getattr(storages[n], key) for n in always), _tree(structure, loose, key, max))
        for key in ("numel", "nbytes")
    ]
    return ranges[0], ranges[1], False


def _of(built: Built, storages: dict[str, _Storage], arch: dict[str, object], key: str) -> int:
    names = {name for step in built.looked_at(arch).steps for name in step.params}
    return sum(getattr(storages[name], key) for name in names)


def _expected(built: Built, structure: Structure, living: dict[str, _Storage], arch: dict[str, object]) -> bool:
    """Whether the network reads just what stands under its choices: none of its layers goes unused."""
    options, _ = structure.parse_filled(arch)  # a choice that nothing reads is not in the arch
    wanted = sum(s.numel for s in living.values() if any(_holds(place, options) for place in s.places))
    return wanted == _of(built, living, arch, "numel")


def _holds(place: Condition, options: dict[str, Option]) -> bool:
    return all(options.get(label) in legal for label, legal in place)


def _tree(structure: Structure, storages: Iterable[_Storage], key: str, pick: Callable[[Iterable[int]], int]) -> int:
    """The extreme of `key` over all networks, from the leaves up. A choice under several others is counted at
    the root, each storage once, which makes the maximum an upper bound there."""
    own: dict[Condition, int] = {}
    for storage in storages:
        (place,) = storage.places
        own[place[-1:]] = own.get(place[-1:], 0) + getattr(storage, key)
    below: dict[Condition, list[str]] = {}
    for label, site in structure.sites.items():
        place = site.conditions[0][-1:] if len(set(site.conditions)) == 1 else ()
        below.setdefault(place, []).append(label)
    under: dict[str, list[Condition]] = {}
    for place in {*own, *below} - {()}:
        under.setdefault(place[0][0], []).append(place)

    def cost(label: str) -> int:
        totals = []
        for option in structure.sites[label].choice.options():
            here = [place for place in under.get(label, ()) if option in place[0][1]]
            totals.append(sum(own.get(p, 0) + sum(cost(child) for child in below.get(p, ())) for p in here))
        return pick(totals)

    return own.get((), 0) + sum(cost(label) for label in below.get((), ()))


def _policy(shared: Shared, rule: SyncRule, always: tuple[str, ...], nbytes: int) -> str:
    """Who waits for whom at these layers, and what is kept."""
    if always and shared.kind == "frozen":
        return "these layers stay at their initial values"
    if rule.kind == "asp":
        what = "these layers are" if always else "every layer is"
        return f"no subnet waits for another; {what} read in whatever version is there, so the result is not exact"
    if rule.kind == "bulk" and rule.size != 1:  # a bulk of one subnet is causal order
        size = f"{rule.size} subnets" if rule.size else "as many subnets as there are workers"
        where = "these layers" if always else "layers"
        waits = "each bulk waits for the one before at layers that both use"
        return f"the subnets of a bulk ({size}) read one version of {where} and do not wait for one another; {waits}"
    if not always:
        return "no layer is in every network, so subnets wait for each other only where they share a candidate"
    if shared.kind == "delayed":
        lag = shared.lag
        extra = (lag - 1) * nbytes + lag * nbytes
        kept = f"{lag} versions and gradients are kept, {_bytes(extra)} more"
        return f"these layers are read {lag} subnets late; {kept}"
    return "exact; at these layers each subnet waits for the one before (more micro_batches hide it)"


def _count(n: int) -> str:
    return f"{n:,}" if n < 10**12 else f"{n:.2e}" if n < 10**300 else f"10^{len(str(n)) - 1}"


def _bytes(n: int) -> str:
    size = float(n)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
