"""Which modules of a network are inlined and which are steps (contract, rule 1).

A module that contains a choice, and the root, is inlined: its own `forward` is followed. Every other module
below an inlined one is one *unit*: it runs as a single step and is never looked into.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from sennit.space.choice import Choice


def is_inlined(module: nn.Module, root: nn.Module) -> bool:
    return module is root or any(isinstance(inner, Choice) for inner in module.modules())


def units(root: nn.Module) -> dict[str, nn.Module]:
    """First path to module, for every unit of `root`, in module order. A module in two slots appears once."""
    seen: set[int] = set()
    found: dict[str, nn.Module] = {}

    def walk(module: nn.Module, path: str) -> None:
        for name, child in module.named_children():
            child_path = f"{path}.{name}" if path else name
            if id(child) in seen:
                continue
            seen.add(id(child))
            if is_inlined(child, root):
                walk(child, child_path)
            else:
                found[child_path] = child

    walk(root, "")
    return found


def loose_tensors(root: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """`(path, owner, attribute)` of parameters and buffers held directly by an inlined module."""
    seen: set[int] = set()
    for path, module in root.named_modules():
        if id(module) in seen or not is_inlined(module, root):
            continue
        seen.add(id(module))
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for name, _ in own:
            yield (f"{path}.{name}" if path else name), module, name
