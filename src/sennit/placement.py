"""`Placement`: settings of a run that may not change its result (docs/contract.md). Those that may are in `Recipe`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sennit.errors import RecipeError
from sennit.plan.replicated import depth_of


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Everything that may not change the result."""

    workers: int = 1
    """Number of worker processes."""
    replicas: int = 1
    """Workers of each stage, which take different micro-batches; `workers` is a multiple of it."""
    device: str = "cpu"
    """`cpu`, `cuda`, or `virtual`: workers wait where they would compute."""
    transport: str = "auto"
    """Between workers on GPUs: `direct`, one reads memory of the other's GPU; `host`, through memory of the host; or
    `auto`: direct if the system lets them."""
    waits: str | None = None
    """A file of seconds per block for virtual devices; default is a quick profile."""
    plan: str | None = None
    """A file of cuts; default is a balanced partition from a quick profile."""
    in_flight: int = 0
    """How many subnets may be unfinished at once; 0 chooses."""
    schedule: str = ""
    """Name of a policy (`sennit.schedule.policy`); the default is causal order, or PipeDream's for `sync = asp:*`."""
    chunks: int = 1
    """Stretches of the network that each worker gets, in turn."""
    release: str = "stage"
    """What is run in one piece, and whose versions are there at once: all blocks of a `stage`, or each `layer`."""
    split: bool = False
    """Gradients of weights as tasks of their own, after those that others wait for."""
    executor: str = "eager"
    """`eager`, or `graphs`: layers that are seen often are replayed from CUDA graphs."""
    activations: str = "recompute"
    """What graphs do with what a forward makes: the backward makes it again (`recompute`), or finds it (`keep`)."""
    activations_gib: float = 0.0
    """GiB of each worker for what graphs keep; 0: what is free at the first one, less layers to come and a quarter."""
    budget: float = 0.0
    """GiB of each device for layers and their optimizer state that come and go; 0: all stay."""
    evict: str = "next-use"
    """Which layer leaves a device with a budget: the one that is used latest, or `lru`, the one used longest ago."""
    ahead: int = 8
    """Runs whose layers are fetched before their turn; 0 fetches none."""
    loaders: int = 0
    """Loader processes per worker that reads data; 0 loads in the worker, and leaves recording to it as well."""
    prefetch: int = 2
    """Batches that each loader process prepares ahead."""

    @property
    def depth(self) -> int:
        """Workers that a micro-batch of a subnet passes, chunks counted once."""
        return depth_of(self.workers, self.replicas)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise RecipeError(f"--workers must be at least 1, got {self.workers}")
        depth_of(self.workers, self.replicas)
        if self.device not in ("cpu", "cuda", "virtual"):
            raise RecipeError(f"--device must be cpu, cuda or virtual, got {self.device!r}")
        if self.transport not in ("auto", "direct", "host"):
            raise RecipeError(f"--transport must be auto, direct or host, got {self.transport!r}")
        if self.transport != "auto" and self.device != "cuda":
            raise RecipeError(
                f"--transport {self.transport} says how tensors travel between GPUs, got --device {self.device}; use "
                "--device cuda, or leave it out"
            )
        if self.waits is not None and self.device != "virtual":
            raise RecipeError(f"--waits {self.waits} belongs to --device virtual, got {self.device!r}")
        if self.executor not in ("eager", "graphs"):
            raise RecipeError(f"--executor must be eager or graphs, got {self.executor!r}")
        if self.executor == "graphs" and self.device != "cuda":
            raise RecipeError(
                f"--executor graphs replays CUDA graphs, got --device {self.device}; use --device cuda, or leave it out"
            )
        self._check_activations()
        if self.chunks < 1 or self.release not in ("stage", "layer"):
            raise RecipeError(
                f"--chunks must be at least 1 and --release stage or layer, got {self.chunks} and {self.release!r}"
            )
        if not 0 <= self.budget < math.inf:
            raise RecipeError(f"--budget must be a number of GiB, or 0 so that all stays, got {self.budget:g}")
        if self.budget and self.device == "virtual":
            raise RecipeError(
                f"--budget {self.budget:g} is memory of a device, and --device virtual has none; leave one of them out"
            )
        if self.evict not in ("next-use", "lru"):
            raise RecipeError(f"--evict must be next-use or lru, got {self.evict!r}")
        if self.ahead < 0:
            raise RecipeError(f"--ahead must be at least 0, got {self.ahead}")
        for name, value, usual in (("evict", self.evict, "next-use"), ("ahead", self.ahead, 8)):
            if not self.budget and value != usual:
                raise RecipeError(
                    f"--{name} {value} says how layers come and go under a --budget, and there is none: give one, or "
                    f"leave out --{name}"
                )
        for name, value, least in (
            ("in-flight", self.in_flight, 0), ("loaders", self.loaders, 0), ("prefetch", self.prefetch, 1),
        ):  # fmt: skip
            if value < least:
                raise RecipeError(f"--{name} must be at least {least}, got {value}")

    def _check_activations(self) -> None:
        if self.activations not in ("recompute", "keep"):
            raise RecipeError(f"--activations must be recompute or keep, got {self.activations!r}")
        if self.activations == "keep" and self.executor != "graphs":
            raise RecipeError(
                f"--activations keep says what CUDA graphs keep between forward and backward, got --executor "
                f"{self.executor}, which keeps it anyway; leave it out, or use --executor graphs, on GPUs"
            )
        if not 0 <= self.activations_gib < math.inf:
            raise RecipeError(
                f"--activations-gib must be a number of GiB, or 0 to choose, got {self.activations_gib:g}"
            )  # fmt: skip
        if self.activations_gib and self.activations != "keep":
            raise RecipeError(
                f"--activations-gib {self.activations_gib:g} is memory for --activations keep, got --activations "
                f"{self.activations}; leave one of them out"
            )

    @property
    def activations_bytes(self) -> int:
        return int(self.activations_gib * 2**30)

    @property
    def budget_bytes(self) -> int:
        return int(self.budget * 2**30)
