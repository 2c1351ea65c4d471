"""Canonical names: one per parameter or buffer storage, the first in sorted order (docs/files.md).

`state_dict` lists a tied tensor under every path that leads to it. Here each storage has one name; the other
paths are its aliases.
"""

from __future__ import annotations

from torch import Tensor, nn

from sennit.errors import SpaceError


def all_tensors(root: nn.Module) -> list[tuple[str, Tensor]]:
    """Every path to a parameter or buffer, aliases included, sorted by path."""
    pairs = [*root.named_parameters(remove_duplicate=False), *root.named_buffers(remove_duplicate=False)]
    return sorted(pairs, key=lambda pair: pair[0])


def canonical_names(root: nn.Module) -> dict[int, str]:
    """`id(tensor)` to canonical name.

    Raises:
        SpaceError: two different tensors share memory, so that no name could stand for both.
    """
    names: dict[int, str] = {}
    storages: dict[int, tuple[str, int]] = {}
    for path, tensor in all_tensors(root):
        if id(tensor) in names:
            continue
        names[id(tensor)] = path
        first = storages.setdefault(tensor.untyped_storage()._cdata, (path, id(tensor)))
        if first[1] != id(tensor):
            raise SpaceError(
                f"{first[0]!r} and {path!r} share memory but are two tensors; tie them by assigning the same "
                "Parameter to both: b.weight = a.weight"
            )
    return names


def unique_tensors(root: nn.Module) -> dict[str, Tensor]:
    """Canonical name to tensor, sorted by name; parameters and buffers."""
    names = canonical_names(root)
    found = {names[id(tensor)]: tensor for _, tensor in all_tensors(root)}
    return dict(sorted(found.items()))


def non_persistent(root: nn.Module) -> frozenset[str]:
    """Canonical names of buffers that a state dict leaves out."""
    names = canonical_names(root)
    out: set[str] = set()
    for module in root.modules():
        for attribute in module._non_persistent_buffers_set:
            buffer = module._buffers.get(attribute)
            if buffer is not None:
                out.add(names[id(buffer)])
    return frozenset(out)
