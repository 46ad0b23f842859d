"""`windrow preview`: the first rows that a pipeline makes, without its sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windrow.cli.common import OK, echo_error, json_option, print_json
from windrow.cli.pipelines import open_pipeline, pipeline_argument
from windrow.hosts.reports import counted

if TYPE_CHECKING:
    import pyarrow as pa

_HELP = {"limit": "Number of rows to show of each table."}


@click.command("preview")
@pipeline_argument
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help=_HELP["limit"])
@json_option
def command(*, pipeline: str, limit: int, as_json: bool) -> int:
    """Show the first rows that a pipeline makes of the first records of its log.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. The first 10,000 records, of each
    partition as many, are read in this process as if the log ended there: all windows fire. Nothing is written, and no
    checkpoint or sink is needed.
    """
    from windrow.hosts.preview import preview  # noqa: PLC0415 - it loads the operators, which help does not need

    valid = open_pipeline(pipeline).runnable()
    found = preview(valid, limit)
    if as_json:
        tables = {name: _plain(rows) for name, rows in found.tables.items()}
        counts = {"records": found.records, "whole": found.is_whole, "late": found.late, "expired": found.expired}
        print_json({"pipeline": valid.name, "tables": tables, **counts, "dead": found.dead})
        return OK
    for name, rows in found.tables.items():
        if len(found.tables) > 1:
            click.echo(f"{name}:")
        _print(rows)
    log = "all" if found.is_whole else "the first"
    dead = "".join(f"; {count:,} dead: {reason}" for reason, count in found.dead.items())
    judged = "".join(f"; {n:,} {what}" for n, what in ((found.late, "late"), (found.expired, "expired")) if n)
    echo_error(f"{valid.name}: from {log} {counted(found.records, 'record')} of the log{judged}{dead}")
    return OK


def _plain(rows: pa.Table) -> list[dict[str, object]]:
    from windrow.sinks.tables import plain_rows  # noqa: PLC0415 - as above

    return [dict(zip(rows.column_names, row, strict=True)) for row in plain_rows(rows)]


def _print(rows: pa.Table) -> None:
    from windrow.cli.show import aligned, is_number  # noqa: PLC0415 - as above
    from windrow.sinks.tables import plain_rows  # noqa: PLC0415 - as above

    if not rows.num_rows:
        click.echo("no rows")
        return
    for line in aligned(rows.column_names, list(plain_rows(rows)), [is_number(type_) for type_ in rows.schema.types]):
        click.echo(line)
