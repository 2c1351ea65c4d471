"""`export`: a network as a folder that plain PyTorch loads.

    network.pt2           a torch.export program: graph and weights
    weights.safetensors   the same parameters and buffers, each storage once, by its first name
    arch.json             what it is, what it was measured at, and how to load it

The folder is checked before it appears under its name: the program is read back from the file, and its
outputs and metrics must be those of the network that was evaluated, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import safetensors.torch
import torch
from torch import nn

from sennit.errors import RunError, UserError
from sennit.explore.evaluate import DEFAULT, Evaluation, Evaluator, as_space
from sennit.explore.frozen import FrozenNetwork
from sennit.explore.traced import Traced, load, save, trace
from sennit.space.choice import Arch
from sennit.supernet.bits import same_bits
from sennit.supernet.hashes import hash_tensors, model_tensors

if TYPE_CHECKING:
    from sennit.recipe import Recipe

PROGRAM, WEIGHTS, ARCH = "network.pt2", "weights.safetensors", "arch.json"


@dataclass(frozen=True)
class Exported:
    """A folder that `export` wrote.

    Attributes:
        folder: where.
        metrics: measured on the program in it.
        note: what is restricted, as a fixed batch size; None if nothing is.
    """

    folder: Path
    metrics: dict[str, float]
    note: str | None


def export(
    recipe: Recipe,
    model: nn.Module,
    arch: Arch,
    folder: str | Path,
    *,
    evaluation: Evaluation = DEFAULT,
    metrics: Mapping[str, float] | None = None,
    weights: Literal["inherited", "retrained"] = "inherited",
    overwrite: bool = False,
    device: torch.device | str = "cpu",
) -> Exported:
    """Write the network `arch` of a trained space to a folder.

    Args:
        recipe: of the model.
        model: a space with trained weights; it is only read.
        evaluation: as in the search that found the arch; its BatchNorm statistics are exported.
        metrics: what the search reported; every one of them must come out again.
        weights: where the model's weights come from, for the record.
        overwrite: replace a folder that is there.
        device: where the model lives, and what the program is made for. Another device gives other bits, so
            a search on a GPU is confirmed on a GPU; to export for the CPU, move the model there first.

    Raises:
        UserError: the folder exists, or the arch or the evaluation cannot be used.
        RunError: the exported program differs from the network by a bit, gives other metrics than reported,
            or torch.export refuses the network.
    """
    folder = Path(folder)
    if folder.exists() and not overwrite:
        raise UserError(f"{folder} exists already; choose another folder, or allow to overwrite it")
    evaluator = Evaluator(recipe, evaluation, device)
    space = as_space(model)
    network = evaluator.prepared(space, arch, copy_parameters=True)
    measured = {**evaluator.measure(network), **evaluator.costs(network)}
    _compare_metrics(metrics or {}, measured, "was reported with")
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        traced = _write_network(aside, network, evaluator)
        checked = _check(aside, network, traced, evaluator, measured)
        hashes = {name: _sha256(aside / name) for name in (PROGRAM, WEIGHTS)}
        hashes["weights_sha256"] = hash_tensors(model_tensors(network))
        note = _joined(traced.note, checked)
        facts = {
            "format": 1,
            "arch": network._frozen_program.arch,
            "metrics": measured,
            "evaluation": {**asdict(evaluation), "batch_size": evaluation.batch_size or recipe.batch_size},
            "weights": weights,
            "space": recipe.space,
            "recipe": recipe.identity(),
            "hashes": hashes,
            "inputs": [{"name": n, "dtype": d, "shape": s} for n, d, s in traced.inputs],
            "note": note,
            "torch": torch.__version__,
            "settings": {
                "threads": recipe.threads,
                "precision": recipe.precision,
                "device": evaluator.device.type,
            },
            "load": _how_to_load(recipe),
        }
        (aside / ARCH).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        _publish(aside, folder)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror or error}; nothing was left there") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Exported(folder, measured, note)


def _write_network(folder: Path, network: FrozenNetwork, evaluator: Evaluator) -> Traced:
    with evaluator.quiet("measure"):
        traced = trace(network, [x for x, _ in evaluator.batches])
    save(traced.program, folder / PROGRAM)
    tensors = {name: t.detach().contiguous() for name, t in model_tensors(network).items()}
    held = traced.program.state_dict
    for name, tensor in tensors.items():
        if name not in held or not same_bits(held[name], tensor):
            raise RunError(f"the exported program does not hold {name!r} as the network does; please report this")
    # not by `save_file`, whose files only their owner may read
    (folder / WEIGHTS).write_bytes(safetensors.torch.save(tensors, metadata={"format": "pt"}))
    return traced


def _check(
    folder: Path, network: FrozenNetwork, traced: Traced, evaluator: Evaluator, measured: dict[str, float]
) -> str | None:
    """Compare the program in the folder with the network. Returns what could not be compared."""
    loaded = load(folder / PROGRAM)
    fits = [traced.takes(x) for x, _ in evaluator.batches]
    if not any(fits):
        raise RunError("the exported program takes none of the held-out batches; please report this")
    for number, (x, _) in enumerate(evaluator.batches):
        if fits[number] and not same_bits(evaluator.output(loaded, x), evaluator.output(network, x)):
            raise RunError(
                f"the exported program gives other bits than the network on held-out batch {number}, so "
                "nothing was exported; look for a step whose code asks whether it is exported or traced"
            )
    if not all(fits):
        return f"compared on {sum(fits)} of {len(fits)} held-out batches, those of the fixed size"
    note = None
    try:
        again = evaluator.measure(loaded)
    except RuntimeError as error:  # the score calls the network with shapes that no held-out batch has
        again = evaluator.measure(loaded, score=False)
        note = f"the data set's score could not be compared: {str(error).strip().splitlines()[0]}"
    _compare_metrics(again, measured, "gives as exported program")
    return note


def _compare_metrics(one: Mapping[str, float], measured: Mapping[str, float], how: str) -> None:
    different = [name for name, value in one.items() if not _equal(value, measured.get(name))]
    if different:
        shown = "; ".join(f"{name} {one[name]!r}, here {measured.get(name)!r}" for name in different)
        raise RunError(
            f"the network measures otherwise than it {how}: {shown}. Weights, recipe, evaluation settings, "
            "torch version and device must be the same"
        )


def _equal(one: float, two: float | None) -> bool:
    return one == two or (one != one and two is not None and two != two)


def _how_to_load(recipe: Recipe) -> list[str]:
    return [
        "import torch",
        f"torch.set_num_threads({recipe.threads})  # another number may give other bits",
        f'network = torch.export.load("{PROGRAM}").module()',
        "with torch.no_grad():",
        "    y = network(x)",
    ]


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _joined(*notes: str | None) -> str | None:
    return "; ".join(note for note in notes if note) or None


def _publish(aside: Path, folder: Path) -> None:
    """Sync the files and give the folder its name in one step."""
    for path in [*aside.iterdir(), aside]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        os.replace(folder, old)
    os.replace(aside, folder)
    shutil.rmtree(old, ignore_errors=True)
