"""`sennit doctor`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rich.table import Table

from sennit.commands.arguments import Json
from sennit.commands.output import Output
from sennit.commands.recorded import HASHES
from sennit.errors import RunError
from sennit.runtime.cores import Cores, container_limit

HELP = """Can this machine run sennit, and how: versions, processors, memory, GPUs, extras. A self-test trains
a tiny supernet as plain loop and on 1 and 2 workers and compares the hashes. Exit code 1 if not.

    sennit doctor"""

EXTRAS = {"data": ("sklearn", "mlxtend"), "mt": ("sentencepiece", "sacrebleu")}
"""Extra to the modules that it brings."""

CORE = ("numpy", "safetensors", "msgspec", "tyro", "rich")

LOADER_MIB = 64
"""Less than this in /dev/shm, the default of containers, is too little for loader processes."""

MINIMUM = ((3, 11), (2, 11))
"""Python and torch."""

Status = Literal["ok", "note", "FAIL"]


@dataclass(frozen=True)
class Check:
    """One thing looked at; `advice` says what to do about it."""

    name: str
    status: Status
    found: str
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Options of `sennit doctor`."""

    json: Json = False
    """One JSON object on stdout, for errors too."""

    def run(self, out: Output) -> int:
        """Look at everything, then try it."""
        looks: list[Callable[[], Check]] = [
            _system,
            _python,
            _torch,
            _processors,
            _memory,
            _shared_memory,
            _gpus,
            _threads,
            _extras,
            _data_folder,
        ]
        checks = [look() for look in looks]
        out.say("self-test: a tiny supernet as plain loop and on 1 and 2 workers ...")
        checks.append(_self_test())
        good = not any(check.status == "FAIL" for check in checks)
        table = Table(show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for check in checks:
            advice = f"\n→ {check.advice}" if check.advice else ""
            table.add_row(check.name, check.status, check.found + advice)
        verdict = "this machine can run sennit" if good else "this machine cannot run sennit yet: see FAIL"
        out.result({"ok": good, "checks": [asdict(check) for check in checks]}, table, verdict)
        return 0 if good else 1


def _system() -> Check:
    found = f"{platform.system()} {platform.release()} {platform.machine()}"
    good = sys.platform == "linux"
    advice = "" if good else "sennit needs Linux: fork, flock, prctl"
    return Check("system", "ok" if good else "FAIL", found, advice)


def _python() -> Check:
    good = sys.version_info[:2] >= MINIMUM[0]
    advice = "" if good else f"needs Python {MINIMUM[0][0]}.{MINIMUM[0][1]} or newer"
    found = f"{platform.python_version()} ({sys.executable})"
    return Check("python", "ok" if good else "FAIL", found, advice)


def _torch() -> Check:
    import torch

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    good = version >= MINIMUM[1]
    advice = "" if good else f"needs torch {MINIMUM[1][0]}.{MINIMUM[1][1]} or newer: pip install -U torch"
    kernels = torch.backends.cpu.get_cpu_capability()
    return Check("torch", "ok" if good else "FAIL", f"{torch.__version__}, CPU kernels {kernels}", advice)


def _processors() -> Check:
    cores = Cores.usable()
    limited = f", limited to {cores.limit:.1f}" if cores.limit < cores.allowed else ""
    advice = f"up to --workers {cores.most} on the CPU, one thread each"
    return Check("processors", "ok", f"{cores.allowed}{limited}", advice)


def _memory() -> Check:
    facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
    free = int(facts["MemAvailable"].split()[0]) / 2**20
    limit = container_limit("memory.max")
    limited = f", limited to {int(limit) / 2**30:.1f} GiB" if limit.isdecimal() else ""
    return Check("memory", "ok" if free > 1 else "note", f"{free:.1f} GiB free{limited}")


def _shared_memory() -> Check:
    try:
        free = shutil.disk_usage("/dev/shm").free / 2**20
    except OSError as error:
        advice = "do without --loaders, or mount it"
        return Check("shared memory", "note", f"/dev/shm: {error.strerror}", advice)
    if free > LOADER_MIB:
        return Check("shared memory", "ok", f"{free:.0f} MiB free in /dev/shm")
    advice = "too little for --loaders; workers do not need it (docker run --shm-size 1g)"
    return Check("shared memory", "note", f"{free:.0f} MiB free in /dev/shm", advice)


def _gpus() -> Check:
    from sennit.runtime.forked import in_child

    def look() -> list[str]:
        import torch

        properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        return [f"{p.name} ({p.total_memory / 2**30:.0f} GiB)" for p in properties]

    names = in_child(look)  # a process that has started CUDA cannot fork workers
    if not names:
        return Check("GPUs", "note", "none, or torch is built without them", "--device cpu works everywhere")
    advice = f"up to --device cuda --workers {len(names)} with a GPU each; more share them, for the same bits"
    return Check("GPUs", "ok", ", ".join(names), advice)


def _threads() -> Check:
    asked = os.environ.get("OMP_NUM_THREADS")
    found = f"OMP_NUM_THREADS = {asked}" if asked else "OMP_NUM_THREADS is not set"
    return Check("threads", "ok", f"{found}; a recipe sets its own (`threads`, default 1) in every worker")


def _extras() -> Check:
    parts, missing = [], []
    for extra, modules in EXTRAS.items():
        lacking = [module for module in modules if find_spec(module) is None]
        parts.append(f"{extra}: {f'lacks {chr(44).join(lacking)}' if lacking else 'installed'}")
        missing += [extra] if lacking else []
    advice = f"pip install 'sennit[{','.join(missing)}]'" if missing else ""
    core = ", ".join(f"{name} {_version(name)}" for name in CORE)
    return Check("packages", "note" if missing else "ok", f"{core}; extras {'; '.join(parts)}", advice)


def _data_folder() -> Check:
    from sennit.data.store import VARIABLE, data_root

    root = data_root()
    there = next(path for path in (root, *root.parents) if path.exists())
    good = os.access(there, os.W_OK)
    advice = "" if good else f"cannot be written; set ${VARIABLE} to a folder that can"
    state = "there" if root.exists() else "not made yet"
    return Check("data folder", "ok" if good else "note", f"{root} ({state})", advice)


def _self_test() -> Check:
    from sennit.recipe import Placement, Recipe, use_recipe
    from sennit.runtime.forked import in_child
    from sennit.runtime.request import Request
    from sennit.runtime.train import train

    recipe = Recipe(
        space="tiny.py:Tiny",
        data="tiny.py:Noise",
        batch_size=8,
        micro_batches=2,
        steps=24,
        lr=0.05,
        optimizer={"name": "adam"},
        clip="global:1.0",
        base=str(Path(__file__).parent),
    )
    use_recipe(recipe)
    began = time.monotonic()
    hashes: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="sennit-doctor-") as temporary:
        for workers in (0, 1, 2):
            name = f"{workers} worker(s)" if workers else "plain"
            request = Request(
                recipe=recipe,
                placement=Placement(workers=max(workers, 1)),
                out=Path(temporary) / str(workers),
                engine="pipeline" if workers else "plain",
            )
            try:
                result: dict[str, Any] = in_child(lambda request=request: train(request))
            except (RunError, OSError, RuntimeError) as error:
                return Check("self-test", "FAIL", f"{name}: {error}", "see above; please report this")
            hashes[name] = [result[key] for key in HASHES]
    seconds = time.monotonic() - began
    if len({tuple(found) for found in hashes.values()}) > 1:
        shown = ", ".join(f"{name} {found[0][:12]}" for name, found in hashes.items())
        return Check("self-test", "FAIL", f"hashes differ: {shown}", "please report this, with this table")
    found = f"plain loop, 1 and 2 workers: equal hashes {hashes['plain'][0][:12]} ({seconds:.1f} s)"
    return Check("self-test", "ok", found)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "MISSING"
