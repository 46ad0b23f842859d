"""`windrow promote`: replaces the live table with its replay."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from windrow.api.load import open_pipeline
from windrow.cli.common import OK, default_checkpoint, json_option, pipeline_argument, print_json
from windrow.cli.options import FOLDER, TABLE
from windrow.errors import CheckpointError, InputError
from windrow.hosts.replay import SHADOW
from windrow.hosts.stream.checkpoint import Checkpoint, locked
from windrow.sinks import open_database

_HELP = {
    "shadow": "Table that replaces the live one, with its companion tables.  [default: TABLE_shadow]",
    "checkpoint": "Checkpoint of the live run, which must be stopped.  [default: .windrow/NAME]",
}


@click.command("promote")
@pipeline_argument
@click.option("--from", "shadow", type=TABLE, metavar="TABLE", help=_HELP["shadow"])
@click.option("--checkpoint", type=FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@json_option
def command(*, pipeline: str, shadow: str | None, checkpoint: Path | None, as_json: bool) -> int:
    """Replace the live table with the shadow that a replay wrote, in one transaction.

    Readers see the old tables or the new ones. The old ones get the shadow's names, so promoting again undoes it.
    Indexes and views of the live tables are moved to the new ones. The live run no longer owns the tables and is
    refused from then on; `windrow run --from-savepoint` continues from a savepoint of the replay.
    """
    valid = open_pipeline(pipeline).valid()
    live = valid.sink.table
    name = shadow or live + SHADOW
    if name.lower() == live.lower():
        msg = f"{name!r} is the live table: name the shadow with --from"
        raise InputError(msg)
    live_checkpoint = checkpoint or default_checkpoint(valid.name)
    has_checkpoint = Checkpoint.read(live_checkpoint) is not None
    if has_checkpoint:
        _refuse_running(live_checkpoint, live)
    promoted = open_database(valid.sink).promote(valid.name, live, name)
    if as_json:
        print_json(
            {
                "pipeline": valid.name,
                "table": live,
                "promoted": name,
                "former": promoted.former,
                "carried": list(promoted.carried),
                "left": list(promoted.left),
            }
        )
        return OK
    click.echo(f"{live} now holds what was in {name}, with all companion tables")
    source = "" if shadow is None else f" --from {shlex.quote(name)}"
    if promoted.former is not None:
        click.echo(f"  the former tables are now {promoted.former}; to undo this: windrow promote {pipeline}{source}")
    for one in promoted.carried:
        click.echo(f"  {one} is on the new tables")
    for one in promoted.left:
        click.echo(f"  {one} stays on {promoted.former}: create it again", err=True)
    if has_checkpoint:
        click.echo(
            f"  the checkpoint {live_checkpoint} belongs to the former tables: continue from the replay's\n"
            "  savepoint with another checkpoint (windrow run --from-savepoint DIR --checkpoint NEW)"
        )
    return OK


def _refuse_running(checkpoint: Path, live: str) -> None:
    """Raise CheckpointError if a run holds the checkpoint."""
    try:
        with locked(checkpoint):
            pass
    except CheckpointError as exc:
        msg = f"{exc}: it writes {live!r}; stop it (Ctrl-C), then promote"
        raise CheckpointError(msg) from exc
