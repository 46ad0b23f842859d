"""`windrow promote`: a replay in the place of the live table."""

from __future__ import annotations

from pathlib import Path

import click

from windrow.api.load import open_pipeline
from windrow.cli.common import OK, default_checkpoint, json_option, pipeline_argument, print_json
from windrow.errors import CheckpointError, InputError
from windrow.hosts.replay import SHADOW
from windrow.hosts.stream.checkpoint import Checkpoint, locked
from windrow.sinks import open_database

_HELP = {
    "shadow": "The table to put in the live one's place, with its companions.  [default: TABLE_shadow]",
    "checkpoint": "The live run's: it must not be going.  [default: .windrow/NAME]",
}


@click.command("promote")
@pipeline_argument
@click.option("--from", "shadow", metavar="TABLE", help=_HELP["shadow"])
@click.option("--checkpoint", type=click.Path(path_type=Path), metavar="DIR", help=_HELP["checkpoint"])
@json_option
def command(*, pipeline: str, shadow: str | None, checkpoint: Path | None, as_json: bool) -> int:
    """Put the shadow that a replay wrote in the place of the live table, in one transaction.

    Readers see the old tables or the new ones. The old ones take the shadow's names, so that promoting again takes it
    back. Indexes and views that were made on the live tables are on the new ones. The live run has lost its tables: it
    is refused from then on, and `windrow run --from-savepoint` goes on from a savepoint of the replay.
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
    click.echo(f"{live} is what {name} was, with all its companions")
    if promoted.former is not None:
        click.echo(f"  what it was before is {promoted.former} now; to take it back: windrow promote {pipeline}")
    for one in promoted.carried:
        click.echo(f"  {one} goes by the names as before")
    for one in promoted.left:
        click.echo(f"  {one} stays on {promoted.former}: make it anew", err=True)
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
        msg = f"{exc}: it writes {live!r}; end it (Ctrl-C), then promote"
        raise CheckpointError(msg) from exc
