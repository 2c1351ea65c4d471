"""NASPipe's Table 5 beside ours: forward, backward and copy to the device of eight kinds of layers.

    python benchmarks/table5.py --out table5.json                         # one GPU, under two minutes
    python benchmarks/table5.py --device cpu --small --out table5.json    # rehearsal
    python benchmarks/table5.py --show table5.json                        # the table of a kept result, nothing runs

Layers are those of the project's own spaces (`nlp.*`, `cv.*`) without the residual, norm or addition of the block
around them; the `cv` ones have their ReLU and BatchNorm. Two clocks:

    call      on the host, around one call, the device waited for at both ends: what a layer costs that runs alone
    kernels   events of the device around ten calls in one CUDA graph: what it costs where launches are hidden

The paper prints "(192, 1024)" and "(64, 112, 112)" and no more. 192 and 64 are the batch sizes of its Table 2, and 64
tokens a sentence is what its artifact's timed runs have. 64 channels is the reading under which the printed times fit
the paper's GPU (2080 Ti, fp32: 7.5 TFLOP/s in Conv 3x3). The printed swaps do not go with it: at the 7 to 8 GB/s of its
language rows, 4.6 ms are about 33 MB, a Conv 3x3 of some 950 channels, where one of 64 has 144 KiB.

Copies: all parameters of the layer as one flat buffer, from pinned memory. `Meter` of `sennit.profile` measures the
steps of a recipe's space; here layers stand alone, so its way of measuring is used (the first lap left out, medians)
and not itself.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from given import device, kept, positive, showing, whole, writable
from torch import Tensor, nn

from sennit.profile.measure import MOST
from sennit.runtime.fingerprint import fingerprint
from sennit.space.ready.cv.catalogue import operator
from sennit.space.ready.nlp.catalogue import own_layer
from sennit.supernet.context import PRECISIONS, set_kernel_flags

IN_GRAPH = 10
"""Calls in one CUDA graph."""

REPLAYS = 5


@dataclass(frozen=True)
class Layer:
    """A row of the table.

    Attributes:
        paper: what the paper calls it; what it prints as forward, backward and swap, in ms. None: not in the paper.
        space: "nlp" or "cv".
        name: in the catalogue of the space.
    """

    space: str
    name: str
    paper: str
    printed: tuple[float, float, float] | None


LAYERS = (
    Layer("nlp", "conv3x1", "Conv 3x1", (5.0, 10.0, 1.76)),
    Layer("nlp", "sep7", "Sep Conv 7x1", (4.2, 5.7, 0.56)),
    Layer("nlp", "lconv5h16", "Light Conv 5x1", (0.68, 1.4, 0.03)),
    Layer("nlp", "att8", "8 Head Attention", (7.9, 13.8, 2.07)),
    Layer("cv", "conv3", "Conv 3x3", (7.9, 13.8, 4.6)),
    Layer("cv", "dw3", "Sep Conv 3x3", (2.8, 4.0, 0.68)),
    Layer("cv", "dw5", "Sep Conv 5x5", (6.7, 9.9, 2.04)),
    Layer("cv", "dil3", "Dil Conv 3x3", (2.5, 3.4, 0.58)),
    Layer("cv", "sep3", "(Sep Conv 3x3, twice)", None),
    Layer("cv", "sep5", "(Sep Conv 5x5, twice)", None),
)
"""NASNet's separable convolution is one applied twice (`sep`); the paper's times are those of one applied once (`dw`):
its dilated one, which is applied once, costs as much."""


@dataclass(frozen=True)
class Sizes:
    """Inputs: (rows, length, d) and (images, channels, side, side)."""

    rows: int
    length: int
    d: int
    images: int
    channels: int
    side: int


PAPER = Sizes(192, 64, 1024, 64, 64, 112)
SMALL = Sizes(4, 8, 64, 2, 8, 14)


@dataclass
class Measured:
    """Milliseconds; kernels are None where there are no CUDA graphs."""

    call_forward: float
    call_backward: float
    kernels_forward: float | None
    kernels_backward: float | None
    copy: float
    copy_event: float | None
    parameter_bytes: int


class Bench:
    """Times one layer after the other on a device.

    Args:
        each_s: how long one measurement is repeated, seconds.
    """

    def __init__(self, device: torch.device, sizes: Sizes, each_s: float) -> None:
        self.device, self.sizes, self.each_s = device, sizes, each_s
        self.cuda = device.type == "cuda"

    def layer(self, row: Layer) -> Measured:
        torch.manual_seed(0)
        s = self.sizes
        if row.space == "nlp":
            module: nn.Module = own_layer(row.name, s.d, False, 0.0)
            x = torch.randn(s.rows, s.length, s.d, device=self.device)
        else:
            module = operator(row.name, s.channels, s.channels, 1)
            x = torch.randn(s.images, s.channels, s.side, s.side, device=self.device)
        module = module.to(self.device)
        x.requires_grad_()
        forward, backward = self.calls(module, x)
        kernels = self.kernels(module, x) if self.cuda else (None, None)
        size = sum(p.nbytes for p in module.parameters())
        return Measured(forward, backward, *kernels, *self.copies(size), size)

    def calls(self, module: nn.Module, x: Tensor) -> tuple[float, float]:
        """Forward and backward as the host sees them: medians, the first lap warms up."""
        leaves = [x, *module.parameters()]
        forward, backward = list[float](), list[float]()
        end = time.monotonic() + self.each_s
        while len(forward) < 4 or (time.monotonic() < end and len(forward) < MOST):
            t = self.now()
            out = module(x)
            middle = self.now()
            forward.append(middle - t)
            ones = torch.ones_like(out)
            t = self.now()
            torch.autograd.grad(out, leaves, ones)
            backward.append(self.now() - t)
        return 1e3 * statistics.median(forward[1:]), 1e3 * statistics.median(backward[1:])

    def kernels(self, module: nn.Module, x: Tensor) -> tuple[float, float]:
        """Forward and backward by the device's clock, launches left out."""
        leaves = [x, *module.parameters()]
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):  # libraries choose kernels and take workspaces before a capture
            for _ in range(3):
                out = module(x)
                torch.autograd.grad(out, leaves, torch.ones_like(out))
        torch.cuda.current_stream(self.device).wait_stream(side)
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(forward):
            for _ in range(IN_GRAPH):
                out = module(x)
        ones = torch.ones_like(out)
        with torch.cuda.graph(backward, pool=forward.pool()):
            for _ in range(IN_GRAPH):
                torch.autograd.grad(out, leaves, ones, retain_graph=True)
        return self.replayed(forward), self.replayed(backward)

    def replayed(self, graph: torch.cuda.CUDAGraph) -> float:
        """Median of a call in a graph."""
        graph.replay()
        return statistics.median(self.event_ms(graph.replay) / IN_GRAPH for _ in range(REPLAYS))

    def event_ms(self, what: Callable[[], Any]) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        what()
        end.record()
        torch.cuda.synchronize(self.device)
        return begin.elapsed_time(end)

    def copies(self, size: int) -> tuple[float, float | None]:
        """A flat buffer of so many bytes from (pinned) host memory: by the host's clock, and by events."""
        source = torch.ones(size, dtype=torch.uint8, pin_memory=self.cuda)
        target = torch.empty(size, dtype=torch.uint8, device=self.device)
        laps = list[float]()
        for _ in range(MOST):
            t = self.now()
            target.copy_(source, non_blocking=True)
            laps.append(self.now() - t)
        events = [self.event_ms(lambda: target.copy_(source, non_blocking=True)) for _ in range(MOST * self.cuda)]
        return 1e3 * statistics.median(laps[1:]), statistics.median(events) if events else None

    def now(self) -> float:
        """After all that the device has been given."""
        if self.cuda:
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def cell(*numbers: float | None) -> str:
    """Times as the paper prints them: forward/backward."""
    return "–" if numbers[0] is None else "/".join(f"{n:.3g}" for n in numbers if n is not None)


def table(rows: Sequence[tuple[Layer, Measured]], sizes: Sizes, cuda: bool) -> list[str]:
    """Markdown."""
    copied = "copy from pinned" if cuda else "copy, host to host"
    lines = [
        f"| input | layer | here | paper, comp. | call | kernels | paper, swap | {copied} | KiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    shapes = {
        "nlp": f"{sizes.rows} × {sizes.length} × {sizes.d}",
        "cv": f"{sizes.images} × {sizes.channels} × {sizes.side} × {sizes.side}",
    }
    for layer, found in rows:
        compute, swap = (cell(*layer.printed[:2]), cell(layer.printed[2])) if layer.printed else ("–", "–")
        lines.append(
            f"| {shapes[layer.space]} | {layer.paper} | `{layer.name}` | {compute} "
            f"| {cell(found.call_forward, found.call_backward)} "
            f"| {cell(found.kernels_forward, found.kernels_backward)} "
            f"| {swap} | {cell(found.copy)} | {found.parameter_bytes / 1024:.0f} |"
        )
    return lines


def shown(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The tables of results."""

    def made(kind: type, row: Mapping[str, Any]) -> Any:
        return kind(**{field.name: row[field.name] for field in fields(kind)})

    lines: list[str] = []
    for held in results:
        rows = [(made(Layer, row), made(Measured, row)) for row in held["rows"]]
        lines += table(rows, made(Sizes, held["sizes"]), "gpus" in held["fingerprint"])
    return lines


def commit() -> str:
    """The commit of this checkout, if it is one."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description="NASPipe's Table 5 beside ours.")
    parser.add_argument("--show", type=kept, nargs="+", action=showing(shown), metavar="FILE", help="results to print")
    parser.add_argument("--device", type=device, default="cuda", metavar="{cuda,cpu}")
    parser.add_argument("--small", action="store_true", help="sizes for a rehearsal")
    parser.add_argument("--length", type=whole(), help="tokens per sentence, which the paper does not print (64)")
    parser.add_argument("--channels", type=whole(), help="of the images (64)")
    parser.add_argument("--precision", default="fp32", choices=[p for p in PRECISIONS if p != "bf16"])
    parser.add_argument("--each", type=positive, default=1.0, help="seconds that a measurement is repeated")
    parser.add_argument("--commit", help="of this code, where git cannot tell")
    parser.add_argument("--out", type=writable, required=True)
    given = parser.parse_args()
    chosen = SMALL if given.small else PAPER
    sizes = Sizes(
        chosen.rows, given.length or chosen.length, chosen.d, chosen.images, given.channels or chosen.channels,
        chosen.side,
    )  # fmt: skip
    set_kernel_flags(given.precision)
    if given.device == "cpu":
        torch.set_num_threads(1)
    began = time.monotonic()
    bench = Bench(torch.device(given.device), sizes, given.each)
    rows: list[tuple[Layer, Measured]] = []
    for layer in LAYERS:
        rows.append((layer, bench.layer(layer)))
        if given.device == "cuda":
            torch.cuda.empty_cache()
    written = {
        "command": " ".join(sys.argv),
        "commit": given.commit or commit(),
        "fingerprint": fingerprint(given.device),
        "precision": given.precision,
        "sizes": asdict(sizes),
        "seconds": time.monotonic() - began,
        "rows": [{**asdict(layer), **asdict(found)} for layer, found in rows],
    }
    given.out.write_text(json.dumps(written, indent=1) + "\n")
    print(f"milliseconds, forward/backward; {given.precision}, {given.device}, {written['seconds']:.0f} s\n")
    print("\n".join(table(rows, sizes, given.device == "cuda")))


if __name__ == "__main__":
    main()
