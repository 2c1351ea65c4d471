"""Spaces, data, losses and samplers that go wrong, each in one way. Named in recipes as `hostile.py:Name`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import sennit as sn


class Net(sn.ModelSpace):
    """The healthy one: (rows, 8) to (rows, 4). Others put one bad thing into its second block."""

    def __init__(self, bad: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            sn.LayerChoice([nn.Linear(8, 8), nn.Identity()]),
            sn.LayerChoice([nn.Linear(8, 8), bad if bad is not None else nn.Identity()]),
            nn.Linear(8, 8),
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x))


class WrongShape(Net):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 9))


class LooksInside(Net):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum().item() > 0:
            x = x * 2
        return super().forward(x)


class InPlace(Net):
    def forward(self, x: Tensor) -> Tensor:
        x += 1
        return super().forward(x)


class Uninitialised(Net):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * self.scale)


class Put(nn.Module):
    """torch has no deterministic kernel for this."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clone().put_(torch.zeros(1, dtype=torch.long, device=x.device), x.sum()[None])


class Nondeterministic(Net):
    def __init__(self) -> None:
        super().__init__(Put())


class ThirdFails(nn.Module):
    """Raises when it is run on data for the third time in a worker."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(8, 8)
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_meta and Path("out/access.jsonl").exists():  # past all dry runs
            self.runs += 1
            if self.runs == 3:
                raise ZeroDivisionError("third time unlucky")
        return self.map(x)


class Fails(sn.ModelSpace):
    """One block that every subnet uses, and that fails."""

    def __init__(self) -> None:
        super().__init__()
        self.first = sn.LayerChoice([nn.Linear(8, 8), nn.Identity()])
        self.fails = ThirdFails()
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.fails(self.first(x)))


class Slow(nn.Module):
    """Takes a while, so that a test can interfere."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_meta:
            time.sleep(0.01)
        return self.map(x)


class SlowNet(Net):
    def __init__(self) -> None:
        super().__init__()
        self.slow = Slow()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.slow(x))


class Points(torch.utils.data.Dataset[Any]):
    def __init__(self, n: int = 64) -> None:
        generator = torch.Generator().manual_seed(0)
        self.y = torch.arange(n) % 4
        self.x = torch.randn(n, 8, generator=generator)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i], self.y[i]


class Doubles(Points):
    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i].double(), self.y[i]


class FiveClasses(Points):
    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i], self.y[i] + 1


class Numbers(Points):
    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i], self.x[i].sum()


class Broken(Points):
    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        raise LookupError(f"sample {i} has gone")


def nan_from_30(output: Tensor, target: Tensor) -> tuple[Tensor, int]:
    """Cross-entropy that becomes NaN for good: the 31st subnet's weights are fine, its loss is not."""
    loss = torch.nn.functional.cross_entropy(output, target, reduction="sum")
    marker = Path("nan")
    done = len(Path("out/losses.jsonl").read_text().splitlines()) if Path("out/losses.jsonl").exists() else 0
    if done >= 30 or marker.exists():
        marker.touch()
        return loss * float("nan"), len(target)
    return loss, len(target)


def learner(space: sn.ModelSpace, seed: int) -> Iterator[dict[str, Any]]:
    while True:
        yield {"blocks.0": 0, "blocks.1": 1}


class _Decaying(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.weight.data.mul_(0.99)
        return super().forward(x)


class Decays(Net):
    def __init__(self) -> None:
        super().__init__(_Decaying(8, 8))


class _Clamping(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.clamp_(-1, 1)
        return super().forward(x)


class Clamps(Net):
    def __init__(self) -> None:
        super().__init__(_Clamping(8, 8))


class _Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * (1 + 0.01 * self.calls)


class Counts(Net):
    def __init__(self) -> None:
        super().__init__(_Counting())


class _Drawing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        return x + float(self.generator.random())


class OwnDraws(Net):
    def __init__(self) -> None:
        super().__init__(_Drawing())


class Replaced(Net):
    """The forward of one layer is another one."""

    def __init__(self) -> None:
        layer = nn.Linear(8, 8)
        super().__init__(layer)
        old = layer.forward
        layer.forward = lambda x: old(x) * 1.1  # type: ignore[method-assign]


class HookedOnSelf(Net):
    """A hook that calls a layer of the space that it was made with."""

    def __init__(self) -> None:
        layer = nn.Linear(8, 8)
        super().__init__(layer)
        self.gain = nn.Linear(8, 8)
        layer.register_forward_hook(lambda module, given, made: self.gain(made))


class HookedByInit(Net):
    """A hook that comes with the initial values."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8))

    def init(self, name: str, module: nn.Module) -> bool:
        if name == "blocks.1.1":
            module.register_forward_hook(lambda module, given, made: made * 1.1)
        return False


class AllShared(sn.ModelSpace):
    def __init__(self) -> None:
        super().__init__()
        self.choice = sn.LayerChoice([nn.Tanh(), nn.Identity()])
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.choice(x))


class Still(Net):
    """A norm that the space wants as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8).eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(x)))


class Lazy(Net):
    def __init__(self) -> None:
        super().__init__(nn.LazyLinear(8))


class _Exiting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise SystemExit(0)


class Exits(Net):
    def __init__(self) -> None:
        super().__init__(_Exiting())


class _Chatting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        print("hello")
        return x * 2


class Chatty(Net):
    def __init__(self) -> None:
        super().__init__(_Chatting())


def cut_off(output: Tensor, target: Tensor) -> tuple[Tensor, int]:
    return nn.functional.cross_entropy(output.detach(), target, reduction="sum"), len(target)


class Wears(Points):
    """Changes a sample whenever it is read."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        x *= 0.9
        return x, y


class Ragged(Points):
    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return x[: 8 - index % 2], y


class BreaksLater(Points):
    """One sample cannot be read; subnet 12 is the first to want it."""

    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise LookupError("has gone")
        return super().__getitem__(index % super().__len__())

    @property
    def bad(self) -> int:
        from sennit.data.order import batch_indices

        return batch_indices(0, 12, 8, len(self))[3]


class _Tallies(nn.Module):
    """Counts the rows of some networks only."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.count)

    def forward(self, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        if a.shape[1] < b.shape[1]:
            self.count += 1
        return x + 0.01 * self.count


class TalliesSome(Net):
    """No covering arch takes other options at its last two choices."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (sn.LayerChoice([nn.Linear(8, 2), nn.Linear(8, 3)]) for _ in range(2))
        self.tally = _Tallies()

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.a(x), self.b(x)
        return super().forward(self.tally(x, a, b)) + a.mean(1, keepdim=True) + b.mean(1, keepdim=True)
