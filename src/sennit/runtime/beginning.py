"""Where a run begins: at the newest checkpoint of its folder, or at subnet 0."""

from __future__ import annotations

import json

from sennit.errors import UserError
from sennit.runtime import checkpoint
from sennit.runtime.facts import Facts
from sennit.runtime.going_on import refuse_other_placement, refuse_torn
from sennit.runtime.runfolder import RunFolder
from sennit.runtime.segment import State
from sennit.supernet.samplers import Result


def beginning(facts: Facts, folder: RunFolder) -> tuple[int, State | None]:
    """The first subnet, and the state before it, None if that is the initial one. Logs are cut back to it.

    Raises:
        CheckpointError: the newest checkpoint is damaged, or of another recipe.
        UserError: going on from it would not give what one run gives, or it is beyond the end.
    """
    recipe = facts.request.recipe
    found = checkpoint.newest(folder.checkpoints, facts.identity, facts.recipe)
    if found is None:
        refuse_to_lose(folder)
        folder.rewind({"losses.jsonl": 0, "access.jsonl": 0, "trace.jsonl": 0})
        return 0, None
    if found.seq_id > facts.end:
        raise UserError(
            f"{folder.path} has {found.seq_id} finished subnets, more than the {facts.end} that are to be trained; "
            f"give --steps {found.seq_id} or more (without --steps it is what the recipe says)"
        )
    if changed := recipe.built.changed_sources(found.state.get("sources", {})):
        raise UserError(
            f"{', '.join(changed)}: the code has changed since the checkpoint at subnet {found.seq_id}, so going "
            "on would give what no one run gives. Put the old code back, or start a new run with another --out"
        )
    refuse_torn(recipe, found)
    refuse_other_placement(recipe, folder, facts.request.placement)
    folder.rewind({"trace.jsonl": 0, **found.state["lengths"]})  # 0: of a version that made no traces
    return found.seq_id, State(found.weights, found.optimizer, found.state["versions"])


def refuse_to_lose(folder: RunFolder) -> None:
    """A run that has ended does not begin anew, and write over its record, because its checkpoints are gone.

    Raises:
        UserError: that is so here, or its result is damaged.
    """
    ended = folder.read_result()
    if ended and ended["steps"]:
        raise UserError(
            f"{folder.path} has the result of {ended['steps']} subnets, and no checkpoint to go on from: it would "
            "begin at subnet 0, and write over losses.jsonl and result.json. Put its folder checkpoints back, or give "
            "another --out"
        )


def past(folder: RunFolder, start: int) -> list[Result]:
    """Results of the subnets before `start`, once logs are cut back to it."""
    results: list[Result] = []
    if start:
        for line in folder.losses.read_text(encoding="utf-8").splitlines():
            held = json.loads(line)
            if "loss" in held:
                results.append(Result(held["seq_id"], held["arch"], held["loss"]))
    return results
