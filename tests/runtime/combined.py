"""A layer that writes something in forward for some combination of choices only, which no covering arch shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sennit as sn

WIDTH, CLASSES = 6, 5


class Held(nn.Module):
    """Something to write into, in a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x


class Gauge(nn.Module):
    """Gives x, scaled by what it has counted. `writes` says when it counts, by the widths of other tensors."""

    def __init__(self, kind: str, writes: Callable[[list[int]], bool]) -> None:
        super().__init__()
        self.kind, self.writes = kind, writes
        self.register_buffer("seen", torch.zeros(1), persistent=kind != "hidden")
        self.scale = nn.Parameter(torch.ones(1))
        self.held = Held()
        if kind == "statistics":
            self.register_buffer("mean", torch.zeros(WIDTH))
            self.register_buffer("var", torch.ones(WIDTH))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.scale)
        nn.init.zeros_(self.seen)
        nn.init.zeros_(self.held.seen)
        if self.kind == "statistics":
            nn.init.zeros_(self.mean)
            nn.init.ones_(self.var)

    def forward(self, x: Tensor, others: list[Tensor]) -> Tensor:
        if self.writes([other.shape[1] for other in others]):
            x = self.write(x)
        if self.kind == "beside":
            self.seen.add_(1)
        return x * (self.scale + 0.01 * self.seen + 0.01 * self.held.seen)

    def write(self, x: Tensor) -> Tensor:
        if self.kind in ("buffer", "hidden"):
            self.seen += 1
        elif self.kind == "data":
            self.seen.data.add_(1)
        elif self.kind == "view":
            self.seen.view(1, 1)[0, 0] = 2
        elif self.kind == "out":
            torch.add(self.seen, 1, out=self.seen)
        elif self.kind == "foreach":
            torch._foreach_add_([self.seen], 1)
        elif self.kind in ("inner", "beside"):
            self.held.seen.add_(1)
        elif self.kind == "replaced":
            self.seen = self.seen + 1
        elif self.kind == "rebound":
            self.seen.data = self.seen.data + 1
        elif self.kind == "parameter":
            with torch.no_grad():
                self.scale.clamp_(-0.5, 0.5)
        elif self.kind == "parameter's data":
            self.scale.data.mul_(0.9)
        elif self.kind == "parameter replaced":
            self.scale = nn.Parameter(self.scale.detach() * 0.9)
        elif self.kind == "statistics":
            x = F.batch_norm(x, self.mean, self.var, training=True)
        return x


def alternating(widths: list[int]) -> bool:
    return all(width == (7 if i % 2 else 4) for i, width in enumerate(widths))


class Combined(sn.ModelSpace):
    """(B, D) to (B, CLASSES). The covering archs take the same option at all choices, so `Gauge` writes in none."""

    def __init__(self, kind: str = "buffer", choices: int = 2) -> None:
        super().__init__()
        self.choices = nn.ModuleList(sn.LayerChoice([nn.Linear(WIDTH, 4), nn.Linear(WIDTH, 7)]) for _ in range(choices))
        self.gauge = Gauge(kind, alternating)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        others = [choice(x) for choice in self.choices]
        return self.head(self.norm(self.gauge(x, others))) + self.mean(others)

    def mean(self, others: list[Tensor]) -> Tensor:
        return torch.stack([other.mean(1) for other in others]).mean(0)[:, None]


class OneChoice(Combined):
    """The same with a write that a covering arch shows: the first one (`option` 0), or a later one (1)."""

    def __init__(self, option: int, kind: str = "buffer") -> None:
        super().__init__(kind)
        self.gauge.writes = wide if option else narrow


def narrow(widths: list[int]) -> bool:
    return widths[0] == 4


def wide(widths: list[int]) -> bool:
    return widths[0] == 7


class Looks(Combined):
    """Inlined code that looks at a norm's statistics, for some combination only."""

    def forward(self, x: Tensor) -> Any:
        others = [choice(x) for choice in self.choices]
        h = self.norm(x)
        if alternating([int(other.shape[1]) for other in others]):
            h = h + self.norm.running_mean
        return self.head(h) + self.mean(others)


class Adds(Combined):
    """Inlined code that computes more for one combination only, and, if `uses`, with parameters of its own."""

    def __init__(self, uses: bool = False) -> None:
        super().__init__()
        self.gauge.writes = narrow
        self.more = nn.Linear(WIDTH, WIDTH)
        self.uses = uses

    def forward(self, x: Tensor) -> Any:
        others = [choice(x) for choice in self.choices]
        h = self.norm(x) if self.uses else self.more(self.norm(x))
        if alternating([int(other.shape[1]) for other in others]):
            h = (torch.tanh(self.more(h)) if self.uses else torch.tanh(h * 2)) + h[:, :1] + others[1][:, :6]
        return self.head(self.gauge(h, others)) + self.mean(others)


class Reaches(nn.Module):
    """Writes into what another module holds."""

    def __init__(self, other: Held) -> None:
        super().__init__()
        self.others = [other]

    def forward(self, x: Tensor) -> Tensor:
        self.others[0].seen.add_(1)
        return x


class Foreign(Combined):
    """One of its candidates does."""

    def __init__(self) -> None:
        super().__init__()
        self.held = sn.LayerChoice([nn.Identity(), Reaches(self.gauge.held)])

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.held(x))


class WithDataOnly(Gauge):
    """Hides from a recording."""

    def forward(self, x: Tensor, others: list[Tensor]) -> Tensor:
        return super().forward(x, others) if not x.is_meta else x * self.scale


class Hides(Combined):
    """Writes all the time, and shows it in no recording."""

    def __init__(self) -> None:
        super().__init__()
        self.gauge = WithDataOnly("buffer", lambda widths: True)


class AsksData(Gauge):
    """A layer that numbers decide in."""

    def forward(self, x: Tensor, others: list[Tensor]) -> Tensor:
        if others[0].mean() > 0:
            self.seen += 1
        return x * (self.scale + 0.01 * self.seen)


class Asks(Combined):
    """Whether it counts is in the data."""

    def __init__(self) -> None:
        super().__init__()
        self.gauge = AsksData("buffer", alternating)


def first_two_then(space: sn.ModelSpace, seed: int) -> Any:
    """A learner that comes to the combination at subnet 5."""
    for y in range(1000):
        yield {"choices.0": y % 2 if y != 5 else 0, "choices.1": y % 2 if y != 5 else 1}
