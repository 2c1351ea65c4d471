"""What a run that goes on must find as it was."""

from __future__ import annotations

from sennit.errors import CheckpointError, UserError
from sennit.recipe import Placement, Recipe
from sennit.runtime.checkpoint import Loaded
from sennit.runtime.runfolder import RunFolder
from sennit.runtime.scheduling import name_of_policy
from sennit.supernet.sync import delayed_words

_PART_OF_RESULT = ("in_flight", "chunks", "plan")
"""Fields of a placement that decide under `asp:*` which version a forward meets."""


def refuse_torn(recipe: Recipe, found: Loaded) -> None:
    """Under `delayed:K` the next subnet reads one version and no other; one that has moved on would train other bits.

    Raises:
        CheckpointError: an always-shared group is not where the cut says.
    """
    if recipe.sharing.kind != "delayed":
        return
    wanted = delayed_words(found.seq_id, recipe.sharing.lag)
    for group in sorted(recipe.built.always[0]):
        words = found.state["versions"].get(group)
        if recipe.built.groups.by_name[group].kind == "parameters" and words != wanted:
            raise CheckpointError(
                f"{found.folder}: {group} must be in the version of subnet {wanted[0]} with the gradients of "
                f"{wanted[1:]} waiting (shared = {recipe.shared!r} at subnet {found.seq_id}); it says {words}. What "
                "follows would be other bits: remove this checkpoint and go on from an earlier one, or start anew"
            )


def refuse_other_placement(recipe: Recipe, folder: RunFolder, placement: Placement) -> None:
    """Under rules of which workers and schedule are part, a run goes on with those it began with.

    Raises:
        UserError: it would not.
    """
    if not recipe.sync_rule.per_placement:
        return
    began, said = folder.read_run()["placement"], f"under sync = {recipe.sync!r}"
    if began["workers"] != placement.workers:
        raise UserError(
            f"{said} the number of workers is part of the result, and {folder.path} began with {began['workers']}; go "
            f"on with --workers {began['workers']}"
        )
    if recipe.sync_rule.kind != "asp":
        return
    known = {field: value for field, value in began.items() if field in Placement.__dataclass_fields__}
    then, now = Placement(**known), placement
    names = name_of_policy(recipe, then), name_of_policy(recipe, now)
    if names[0] != names[1]:
        raise UserError(
            f"{said} the schedule is part of the result, and {folder.path} began with {names[0]}; go on with "
            f"--schedule {names[0]}"
        )
    for field in _PART_OF_RESULT:
        if getattr(then, field) != getattr(now, field):
            option = f"--{field.replace('_', '-')}"
            was = getattr(then, field)
            raise UserError(
                f"{said} {option} is part of the result, and {folder.path} began "
                f"{f'with {was}; go on with {option} {was}' if was else f'without; leave out {option}'}"
            )
