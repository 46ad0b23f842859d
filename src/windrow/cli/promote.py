"""`windrow promote`: replace the live table with its replay."""

from __future__ import annotations

import shlex

import click

from windrow import model as m
from windrow.connectors.open_sinks import open_database, promote
from windrow.connectors.sink import Run
from windrow.errors import CheckpointError
from windrow.runtime.replay import require_as_far, shadows
from windrow.runtime.stream.checkpoint import Checkpoint, locked
from windrow.telemetry.folders import Folder, default_checkpoint
from windrow.terminal.common import OK, json_option, print_json
from windrow.terminal.options import STATE_FOLDER, TABLE
from windrow.terminal.pipelines import command_lines, open_pipeline, pipeline_argument

_HELP = {
    "shadow": "Table that replaces the live table, with its companion tables.  [default: TABLE_shadow]",
    "checkpoint": "Checkpoint of the live run, which must be stopped.  [default: .windrow/NAME]",
}


@click.command("promote")
@pipeline_argument
@click.option("--from", "shadow", type=TABLE, metavar="TABLE", help=_HELP["shadow"])
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@json_option
def command(*, pipeline: str, shadow: str | None, checkpoint: Folder | None, as_json: bool) -> int:
    """Replace the live tables with the shadows that a replay wrote, in one transaction for each database.

    Readers see either the old or the new tables. The old tables take the names of the shadows, so a second promotion
    undoes the first. Indexes and views of the live tables are moved to the new tables. The new tables do not belong to
    the live run, so it can no longer be resumed; `windrow run --from-savepoint` continues from a savepoint of the
    replay instead.
    """
    valid = open_pipeline(pipeline).runnable()
    tables = shadows(valid, shadow, "--from")
    live_checkpoint = checkpoint or default_checkpoint(valid.name)
    known = Checkpoint.read(live_checkpoint)
    if known is not None:
        _refuse_running(live_checkpoint, ", ".join(tables))
    require_as_far(valid, tables, live_checkpoint)
    promoted = promote(valid, tables)
    if as_json:
        listed = [
            {
                "table": live,
                "promoted": tables[live],
                "former": table.former,
                "carried": list(table.carried),
                "left": list(table.left),
            }
            for live, table in promoted.items()
        ]
        print_json({"pipeline": valid.name, **(listed[0] if len(listed) == 1 else {"tables": listed})})
        return OK
    file = command_lines(pipeline).pipeline
    source = "" if shadow is None else f" --from {shlex.quote(shadow)}"
    for live, table in promoted.items():
        click.echo(f"{live} now holds what was in {tables[live]}, with all companion tables")
        if table.former is not None:
            click.echo(f"  the former tables are now {table.former}; to undo this: windrow promote {file}{source}")
        for carried in table.carried:
            click.echo(f"  {carried} is on the new tables")
        for left in table.left:
            click.echo(f"  {left} stays on {table.former}: create it again", err=True)
    if known is not None and _is_of_tables(known.run, valid):
        click.echo(f"  the checkpoint {live_checkpoint} belongs to the tables that are live now: continue with it")
    elif known is not None:
        click.echo(
            f"  the checkpoint {live_checkpoint} does not belong to the tables that are live now: continue from the\n"
            "  replay's savepoint with another checkpoint (windrow run --from-savepoint DIR --checkpoint NEW)"
        )
    return OK


def _is_of_tables(run: Run, graph: m.Graph) -> bool:
    """Return True if the live tables of a pipeline belong to a run."""
    stands = [open_database(sink.sink).stands(sink.sink.table) for sink in graph.sinks]
    return all(found is not None and found[0] == run for found in stands)


def _refuse_running(checkpoint: Folder, live: str) -> None:
    """Raise CheckpointError if a run holds the checkpoint."""
    try:
        with locked(checkpoint):
            pass
    except CheckpointError as exc:
        msg = f"{exc}: it writes {live!r}; stop it (Ctrl-C), then promote"
        raise CheckpointError(msg) from exc
