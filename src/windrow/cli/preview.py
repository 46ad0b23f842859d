"""`windrow preview`: the first rows of a pipeline, without its sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windrow.telemetry.reports import counted
from windrow.terminal.common import OK, echo_error, json_option, print_json
from windrow.terminal.display import aligned
from windrow.terminal.pipelines import defer_pandas, open_pipeline, pipeline_argument

if TYPE_CHECKING:
    from windrow.client.tables import Rows

_HELP = {"limit": "Maximum number of rows to show from each table."}


@click.command("preview")
@pipeline_argument
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help=_HELP["limit"])
@json_option
def command(*, pipeline: str, limit: int, as_json: bool) -> int:
    """Show the first rows that a pipeline computes from the first records of its log.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. The command reads the first 10,000
    records, divided evenly among the partitions, and processes them as if the log ended there, so all windows fire.
    Nothing is written, and no checkpoint, sink or Spark is needed.
    """
    opened = open_pipeline(pipeline)
    defer_pandas([opened])
    from windrow.client.tables import Query, read  # noqa: PLC0415
    from windrow.connectors.tables import layout  # noqa: PLC0415
    from windrow.expressions import sink_specs  # noqa: PLC0415 - they load the operators, which help does not need
    from windrow.runtime.memory import tables_of_first  # noqa: PLC0415

    valid = opened.runnable()
    with tables_of_first(valid) as first:
        found = {
            name or spec.sink.table: read(spec.sink, layout(spec).result, Query(limit=limit))
            for name, spec in sink_specs(first.pipeline).items()
        }
    totals, is_whole = first.totals, first.share is None
    if as_json:
        tables = {name: _plain(rows) for name, rows in found.items()}
        counts = {"records": totals.events, "whole": is_whole, "late": totals.late, "expired": totals.expired}
        print_json({"pipeline": valid.name, "tables": tables, **counts, "dead": totals.dead_reasons})
        return OK
    for name, rows in found.items():
        if len(found) > 1:
            click.echo(f"{name}:")
        for line in aligned(rows.schema.names, rows.plain(), rows.numeric) if len(rows) else ["no rows"]:
            click.echo(line)
    log = "all" if is_whole else "the first"
    dead = "".join(f"; {count:,} dead: {reason}" for reason, count in totals.dead_reasons.items())
    late = "".join(f"; {n:,} {word}" for n, word in ((totals.late, "late"), (totals.expired, "expired")) if n)
    for line in (*first.notes, f"from {log} {counted(totals.events, 'record')} of the log{late}{dead}"):
        echo_error(f"{valid.name}: {line}")
    return OK


def _plain(rows: Rows) -> list[dict[str, object]]:
    return [dict(zip(rows.schema.names, row, strict=True)) for row in rows.plain()]
