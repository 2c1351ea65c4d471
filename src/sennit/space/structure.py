"""The choices of a model, which of them are active under an arch, and how many networks there are.

A choice at path `blocks.3.conv.1.act` inside candidate `conv` of the choice at `blocks.3` is active only if
that candidate is chosen. A module that stands in several places has several paths and is active if any is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

from torch import nn

from sennit.errors import ArchError, SpaceError
from sennit.space.choice import Arch, Choice, Option
from sennit.space.repeat import Repeat

COUNT_LIMIT = 100_000
"""Parts of a space that depend on each other in more ways than one are counted by enumeration up to this."""

Condition = tuple[tuple[str, tuple[Option, ...]], ...]
"""All of these labels must have one of these options: `((label, options), ...)`."""


@dataclass(frozen=True)
class Site:
    """One label of the space.

    Attributes:
        label: key in an arch.
        choice: the choice (the first module with this label).
        conditions: alternatives; the label is active when one of them holds. `()` inside means always.
    """

    label: str
    choice: Choice
    conditions: tuple[Condition, ...]

    def active(self, options: Mapping[str, Option]) -> bool:
        return any(all(options.get(label) in legal for label, legal in cond) for cond in self.conditions)


def assign_labels(root: nn.Module) -> None:
    """Give every choice without a label its first module path. Done again when a space is nested in another."""
    for path, module in root.named_modules():
        if isinstance(module, Choice):
            module.label = module.given_label or path


class Structure:
    """The choices of `root`, by label in module order.

    Raises:
        ArchError: two different choices with one label that do not have the same options.
    """

    def __init__(self, root: nn.Module) -> None:
        found: dict[str, tuple[Choice, list[Condition]]] = {}
        paths: dict[int, list[str]] = {}
        for path, module in root.named_modules(remove_duplicate=False):
            if not isinstance(module, Choice):
                continue
            first, conditions = found.setdefault(module.label, (module, []))
            if first.options() != module.options():
                raise ArchError(
                    f"two choices are labelled {module.label!r} but differ: {first.legal()} against "
                    f"{module.legal()}; give them different labels or the same options"
                )
            conditions.append(condition_of(root, path))
            paths.setdefault(id(module), []).append(path)
        _refuse_unreachable(root, paths)
        self.sites = {label: Site(label, choice, tuple(conds)) for label, (choice, conds) in found.items()}

    def parse(self, arch: Arch) -> dict[str, Option]:
        """Validated options of `arch`, inactive labels dropped.

        Raises:
            ArchError: an unknown label, an illegal value, or an active label that is missing.
        """
        if not isinstance(arch, Mapping):
            raise ArchError(f"an arch is a flat dict of label to value, got {arch!r}")
        for label in arch:
            if label not in self.sites:
                raise ArchError(f"arch has no choice {label!r}; labels of this space: {self._known()}")
        options = {label: self.sites[label].choice.parse(value) for label, value in arch.items()}
        return self._active(options)

    def parse_filled(self, arch: Arch) -> tuple[dict[str, Option], tuple[str, ...]]:
        """Like `parse`, but a missing label gets its first option; also returns which labels were filled in.

        A choice that only feeds an unused input has no say in the network, so a canonical arch may lack it.
        """
        if not isinstance(arch, Mapping):
            raise ArchError(f"an arch is a flat dict of label to value, got {arch!r}")
        defaults = {label: site.choice.options()[0] for label, site in self.sites.items()}
        try:
            return self.parse(arch), ()
        except ArchError:
            given = {
                label: self.sites[label].choice.parse(value) for label, value in arch.items() if label in self.sites
            }
            if len(given) != len(arch):
                raise
            options = self._active({**defaults, **given})
            return options, tuple(label for label in options if label not in given)

    def given(self, arch: Arch) -> dict[str, Any]:
        """`arch` checked and in canonical order, without the labels that it leaves out; see `parse_filled`.

        Whether what it leaves out matters shows when the arch is recorded.
        """
        options, filled = self.parse_filled(arch)
        return self.encode({label: option for label, option in options.items() if label not in filled})

    def missing(self, label: str) -> ArchError:
        return ArchError(f"arch lacks {label!r}, which is active; legal: {self.sites[label].choice.legal()}")

    def canonical(self, arch: Arch) -> dict[str, Any]:
        """The one JSON-safe dict that stands for this network: active labels only, in space order."""
        return self.encode(self.parse(arch))

    def encode(self, options: Mapping[str, Option]) -> dict[str, Any]:
        return {label: site.choice.encode(options[label]) for label, site in self.sites.items() if label in options}

    def default(self) -> dict[str, Any]:
        """The arch with the first option of every choice."""
        return self.encode(self._active({label: site.choice.options()[0] for label, site in self.sites.items()}))

    def covering(self) -> list[dict[str, Any]]:
        """Archs that together run every candidate of every choice at least once.

        The k-th arch takes the k-th option (cyclically) everywhere; options of nested choices that this
        leaves out are added by varying one choice at a time. Places with one label have candidates of their
        own, so an option counts as used at the places where its choice was active.
        """
        widest = max((len(site.choice.options()) for site in self.sites.values()), default=1)
        archs: dict[str, dict[str, Any]] = {}
        seen: set[tuple[str, Condition, Option]] = set()

        def add(options: Mapping[str, Option]) -> None:
            kept = self._active(options)
            for label, option in kept.items():
                places = self.sites[label].conditions
                holding = [c for c in places if all(kept.get(above) in legal for above, legal in c)]
                seen.update((label, condition, option) for condition in holding)
            encoded = self.encode(kept)
            archs.setdefault(repr(encoded), encoded)

        deepest = {
            label: site.choice.options()[-1] if isinstance(site.choice, Repeat) else site.choice.options()[0]
            for label, site in self.sites.items()
        }
        add(deepest)
        for k in range(widest):
            cyclic = {
                label: site.choice.options()[k % len(site.choice.options())] for label, site in self.sites.items()
            }
            add(cyclic)
            repeats = {label: deepest[label] for label, s in self.sites.items() if isinstance(s.choice, Repeat)}
            add({**cyclic, **repeats})
        for label, site in self.sites.items():
            for condition in site.conditions:
                for option in site.choice.options():
                    if (label, condition, option) not in seen:
                        reaching = merged((*condition, (label, (option,))))
                        if reaching is not None:
                            add({**deepest, **{above: legal[-1] for above, legal in reaching.items()}})
        return list(archs.values())

    def size(self) -> int | None:
        """Number of different networks: the product over parts of the space that do not depend on each other.

        None when a part without a closed formula has more than `COUNT_LIMIT`.
        """
        count = 1
        for part in self._parts():
            if all(len(site.conditions) == 1 or () in site.conditions for site in part.values()):
                count *= prod(self._count(site) for site in part.values() if () in site.conditions)
                continue
            listed = sum(1 for _ in islice(_extend(part, {}), COUNT_LIMIT + 1))
            if listed > COUNT_LIMIT:
                return None
            count *= listed
        return count

    def enumerate(self) -> Iterator[dict[str, Any]]:
        """Every canonical arch, each once, in the order of options."""
        return (self.encode(options) for options in _extend(self.sites, {}))

    def _parts(self) -> list[dict[str, Site]]:
        """The labels in sets such that no condition names a label of another set."""
        part_of: dict[str, set[str]] = {label: {label} for label in self.sites}
        for label, site in self.sites.items():
            for above in {a for condition in site.conditions for a, _ in condition}:
                joined = part_of[label] | part_of[above]
                part_of.update(dict.fromkeys(joined, joined))
        parts = {id(part): part for part in part_of.values()}
        return [{label: s for label, s in self.sites.items() if label in part} for part in parts.values()]

    def _count(self, site: Site) -> int:
        total = 0
        for option in site.choice.options():
            inner = [
                child
                for child in self.sites.values()
                if () not in child.conditions
                and child.conditions[0][-1][0] == site.label
                and option in child.conditions[0][-1][1]
            ]
            total += prod(self._count(child) for child in inner)
        return total

    def _active(self, options: Mapping[str, Option]) -> dict[str, Option]:
        kept: dict[str, Option] = {}
        changed = True
        while changed:  # a condition may name a label that stands later, so repeat until nothing is added
            changed = False
            for label, site in self.sites.items():
                if label in kept or not site.active(kept):
                    continue
                if label not in options:
                    raise self.missing(label)
                kept[label] = options[label]
                changed = True
        return {label: kept[label] for label in self.sites if label in kept}

    def _known(self) -> str:
        labels = [repr(label) for label in self.sites]
        return ", ".join(labels[:12]) + (f", ... ({len(labels) - 12} more)" if len(labels) > 12 else "")


def _extend(sites: Mapping[str, Site], options: dict[str, Option]) -> Iterator[dict[str, Option]]:
    """All ways to choose for the labels of `sites` that are active and not in `options`."""
    for label, site in sites.items():
        if label not in options and site.active(options):
            for option in site.choice.options():
                yield from _extend(sites, {**options, label: option})
            return
    yield options


def condition_of(root: nn.Module, path: str) -> Condition:
    """What must be chosen for the module at `path` to run: one entry per choice above it."""
    parts = path.split(".") if path else []
    condition: list[tuple[str, tuple[Option, ...]]] = []
    module = root
    for part in parts:
        if isinstance(module, Choice):
            legal = module.requires(part)
            if legal is not None:
                condition.append((module.label, legal))
        module = getattr(module, part)
    return tuple(condition)


def merged(condition: Condition) -> dict[str, tuple[Option, ...]] | None:
    """Legal options per label when all of `condition` holds; None if it cannot hold."""
    legal: dict[str, tuple[Option, ...]] = {}
    for label, options in condition:
        legal[label] = tuple(o for o in legal.get(label, options) if o in options)
    return legal if all(legal.values()) else None


def _refuse_unreachable(root: nn.Module, paths: Mapping[int, list[str]]) -> None:
    """A candidate below another option of its own label can never run, so it would never be trained."""
    for places in paths.values():
        choice = root.get_submodule(places[0])
        assert isinstance(choice, Choice)
        for option in choice.options():
            conditions = [(*condition_of(root, path), (choice.label, (option,))) for path in places]
            if all(merged(condition) is None for condition in conditions):
                raise SpaceError(
                    f"option {option!r} of the choice at {places[0]!r} can never run: it stands below another "
                    f"option of a choice with the same label {choice.label!r}; give it another label, or leave "
                    "it out"
                )
