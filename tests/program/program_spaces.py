"""Networks that have everything which makes recording and cutting hard, and a plain way to run them."""

from __future__ import annotations

import copy
import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn
from sennit.program.template import leaves
from sennit.space.choice import selecting


class EncoderDecoder(sn.ModelSpace):
    """Two inputs, several outputs, ties, cross attention, inputs to choose, sizes taken from shapes."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, width)
        layers = lambda: [nn.Linear(width, width), [nn.Linear(width, width), nn.Tanh()], nn.Identity()]  # noqa: E731
        self.encoder = nn.Sequential(*[sn.LayerChoice(layers()) for _ in range(2)])
        attention = lambda: nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)  # noqa: E731
        self.cross = sn.LayerChoice({"one": attention(), "other": attention()})
        self.join = sn.InputChoice(3, 2, "mean")
        self.out = nn.Linear(width, 11, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("position", torch.randn(20, width))
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, source: Tensor, target: Tensor) -> dict[str, Any]:
        memory = self.encoder(self.embed(source) + self.position[: source.shape[1]])
        t = self.embed(target) * self.scale
        crossed, weights = self.cross(t, memory, memory, need_weights=True)
        joined = self.join([crossed, t, crossed * 2])
        n, length = target.shape
        joined = F.dropout(joined.reshape(n * length, -1), 0.3, training=self.training).view(n, length, -1)
        return {"logits": self.out(joined), "more": (memory.mean(), [weights])}


ENCODER_DECODER_ARCH = {"encoder.0": 0, "encoder.1": 1, "cross": "other", "join": [0, 1]}


class Slots(sn.ModelSpace):
    """One module in two slots, with statistics; a value read three times, once of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm1d(4)
        self.choice = sn.LayerChoice([nn.Sequential(nn.Conv1d(4, 4, 1), nn.Dropout(0.2)), nn.Identity()])

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(x))
        h = self.norm(h * torch.sigmoid(h)) + self.choice(h) + h
        return self.conv(h.transpose(1, 2).transpose(1, 2)).flatten(1)


class Strides(sn.ModelSpace):
    """Channels-last convolutions, transposes, chunks: values that are not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        conv = nn.Conv2d(4, 8, 3, padding=1).to(memory_format=torch.channels_last)
        self.first = conv
        self.choice = sn.LayerChoice([nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)])
        self.norm = nn.BatchNorm2d(8)
        self.line = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.norm(self.choice(self.first(x)))
        a, b = self.line(h.permute(0, 2, 3, 1)).chunk(2, dim=-1)
        return a.transpose(1, 3), (a * b).sum(dim=(1, 2))


class RandomNet(sn.ModelSpace):
    """A random graph of modules and functions; values have several readers, who may use them twice."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.plan: list[tuple[str, int, int, int]] = []
        kinds = "linear linear norm drop add mul twice chunk tie tanh strided".split()
        for i in range(draw.randint(3, 9)):
            self.plan.append((draw.choice(kinds), draw.randrange(i + 1), draw.randrange(i + 1), draw.randrange(2)))
        self.lines = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.3)
        self.choice = sn.LayerChoice([nn.Linear(6, 6), nn.Tanh()])

    def forward(self, x: Tensor) -> Tensor:
        values = [self.choice(x)]
        for kind, i, j, k in self.plan:
            a, b = values[i], values[j]
            if kind == "linear":
                made = self.lines[k](a)
            elif kind == "tie":
                made = F.linear(a, self.lines[k].weight)
            elif kind == "chunk":
                left, right = a.chunk(2, dim=1)
                made = torch.cat([right, left], dim=1)
            elif kind == "strided":
                made = torch.stack([a, b], dim=2)[:, :, k]
            elif kind in ("norm", "drop"):
                made = getattr(self, kind)(a)
            elif kind == "add":
                made = a + b
            elif kind == "mul":
                made = a * torch.sigmoid(b)
            else:
                made = torch.maximum(a, -a) if kind == "twice" else torch.tanh(a)
            values.append(made)
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in leaves(tree) if isinstance(leaf, Tensor)]


def plainly(space: sn.ModelSpace, arch: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    """The space's own forward in plain Python: no recording, no Edges."""
    with selecting(space.structure.parse_filled(arch)[0]):
        return space.forward(*args, **kwargs)


def same_as_plain(
    space: sn.ModelSpace,
    arch: dict[str, Any],
    *args: Any,
    train: bool = True,
    exact: bool = True,
    **kwargs: Any,
) -> Any:
    """Run both ways from one generator state; outputs, buffers and which gradients exist must agree.

    Not to the bit (`exact=False`) where values are not contiguous: an Edge settles them, Python does not.
    """
    space.train(train)
    space.zero_grad()
    other = copy.deepcopy(space)
    torch.manual_seed(0)
    out = space(*args, arch=arch, **kwargs)
    torch.manual_seed(0)
    wanted = plainly(other, arch, *args, **kwargs)
    assert type(out) is type(wanted)
    assert len(tensors(out)) == len(tensors(wanted))
    for a, b in zip(tensors(out), tensors(wanted), strict=True):
        assert torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-4, atol=1e-6)
    for (name, a), (_, b) in zip(space.named_buffers(), other.named_buffers(), strict=True):
        assert torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-4), name
    if train:
        for tree in (out, wanted):
            sum(t.double().pow(2).sum() for t in tensors(tree)).backward()  # type: ignore[union-attr]
        for (name, a), (_, b) in zip(space.named_parameters(), other.named_parameters(), strict=True):
            assert (a.grad is None) == (b.grad is None), name
            if a.grad is not None and b.grad is not None:
                torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)
    return out
