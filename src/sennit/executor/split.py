"""Split backward: gradients of inputs now (I), gradients of weights later (W), each kernel called once.

    loss ◀─ ... ◀─ Addmm ◀──── x ◀─ ...          I goes along here, and notes the gradient that arrives at Addmm
                     ◀─ T ◀── weight              W starts from that note: Addmm's weight part alone

A *joint* is an operation where the way to some weights leaves the way to the inputs: linear, convolution, norm,
embedding, or whatever a step calls. torch calculates for an operation only those gradients that are asked for, so I
leaves out the weight part and W the rest. Nothing is traversed twice (two whole `autograd.grad` calls cost 1.4 to
1.9 times one), no operation has to be known by name, and the kernels are those of an ordinary backward.

A weight that several operations of a run use is left to I: its contributions are summed there in autograd's order.
So are those of a recurrence, which are one weight used at every place.

Hooks on what an operation makes (`y.register_hook`) see the gradient that arrives there, and may change it. Autograd
gives I what arrived before them if it goes on from there, and what they made of it if it does not; W calls them in any
case. So where there may be hooks, weights behind which I has nothing to look for are left to I, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

Key = tuple[str, int]
"""`(name, using step)` of a parameter leaf."""


@dataclass
class Joint:
    """An operation whose weight part is calculated later.

    Attributes:
        edges: its outputs that are used.
        keys: the weights behind it.
        grads: what arrives at `edges`, once I has run.
    """

    edges: list[GradientEdge]
    keys: list[Key] = field(default_factory=list)
    grads: list[Tensor | None] = field(default_factory=list)


@dataclass
class Split:
    """The parts of one run's backward.

    Attributes:
        joints: what W starts from.
        whole: weights that I does.
    """

    joints: list[Joint]
    whole: list[Key]


def split(
    roots: Iterable[Tensor], leaves: Mapping[Key, Tensor], values: Iterable[Tensor] = (), *, hooked: bool = False
) -> Split:  # fmt: skip
    """Find the joints between the roots of a graph and its weights.

    Args:
        values: leaves that are no weights.
        hooked: there may be hooks on tensors of the graph.
    """
    parents = _parents(roots)
    joints: dict[Node, Joint] = {}
    whole: list[Key] = []
    for key, leaf in leaves.items():
        node = _joint(torch.autograd.graph.get_gradient_edge(leaf).node, parents)
        if node is None:
            whole.append(key)
            continue
        if node not in joints:
            outputs = sorted({output for _, output in parents[node]})
            joints[node] = Joint([GradientEdge(node, output) for output in outputs])
        joints[node].keys.append(key)
    if hooked:
        nodes = [
            torch.autograd.graph.get_gradient_edge(leaf).node for leaf in (*values, *(leaves[key] for key in whole))
        ]
        passed = _above([*nodes, *joints], parents)
        whole += [key for node, joint in joints.items() if node not in passed for key in joint.keys]
        joints = {node: joint for node, joint in joints.items() if node in passed}
    return Split(list(joints.values()), whole)


def weight_gradients(joints: Iterable[Joint], leaves: Mapping[Key, Tensor]) -> dict[Key, Tensor | None]:
    """W: what I has left out. Frees what the joints kept."""
    found: dict[Key, Tensor | None] = {}
    for joint in joints:
        given = [(edge, grad) for edge, grad in zip(joint.edges, joint.grads, strict=True) if grad is not None]
        if not given:
            found.update(dict.fromkeys(joint.keys))
            continue
        grads = torch.autograd.grad(
            [edge for edge, _ in given], [leaves[key] for key in joint.keys], [grad for _, grad in given],
            allow_unused=True,
        )  # fmt: skip
        found.update(zip(joint.keys, grads, strict=True))
        joint.grads = []
    return found


Parents = dict[Node, list[tuple[Node | None, int]]]
"""Node to the nodes that send it a gradient (None: the backward starts there), and for which of its outputs."""


def _parents(roots: Iterable[Tensor]) -> Parents:
    parents: Parents = {}
    stack: list[Node] = []
    for root in roots:
        node, output = torch.autograd.graph.get_gradient_edge(root)[:2]
        if node not in parents:
            parents[node] = []
            stack.append(node)
        parents[node].append((None, output))
    while stack:
        node = stack.pop()
        for below, output in node.next_functions:
            if below is None:
                continue
            if below not in parents:
                parents[below] = []
                stack.append(below)
            parents[below].append((node, output))
    return parents


def _above(nodes: Iterable[Node], parents: Parents) -> set[Node]:
    """From which the way goes on to one of `nodes`."""
    found: set[Node] = set()
    stack = list(nodes)
    while stack:
        for above, _ in parents.get(stack.pop(), ()):
            if above is not None and above not in found:
                found.add(above)
                stack.append(above)
    return found


def _joint(leaf: Node, parents: Parents) -> Node | None:
    """The operation at which the way to a weight leaves; None if there are several ways to it, or none."""
    at = leaf
    while True:
        above = parents.get(at, [])
        node = above[0][0] if len(above) == 1 else None
        if node is None:
            return at if at is not leaf else None
        at = node
        if sum(below is not None for below, _ in at.next_functions) > 1:
            return at
