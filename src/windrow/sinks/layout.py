"""Which tables a pipeline writes, and what is in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.core import schema
from windrow.errors import PipelineError
from windrow.model import AnyPipeline, Pipeline, Sink
from windrow.sinks.quote import quote, quote_all

EPOCH = pa.field("epoch", pa.int64(), nullable=False)
SEQ = pa.field("seq", pa.int64(), nullable=False)


@dataclass(frozen=True)
class Table:
    """A table's name, its columns as an Arrow schema, and its primary key, which may be empty."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self.schema.names)


EPOCHS = Table(
    "windrow_epochs",
    pa.schema(
        [
            pa.field("pipeline", pa.string(), nullable=False),
            pa.field("run", pa.string(), nullable=False),
            EPOCH,
            pa.field("committed_at", schema.MICROS, nullable=False),
        ]
    ),
    ("pipeline", "run", "epoch"),
)
"""The fence: the steps that are committed."""

OWNERS = Table(
    "windrow_tables",
    pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("table_name", "pipeline", "run")]),
    ("table_name",),
)
"""Which run writes a table: no other may, or steps would be missing from it or doubled."""

REPLAYS = Table(
    "windrow_replays",
    pa.schema(
        [
            *(pa.field(name, pa.string(), nullable=False) for name in ("table_name", "pipeline", "run")),
            pa.field("begins", pa.string()),
            pa.field("ends", pa.string(), nullable=False),
            pa.field("since", schema.MICROS),
            pa.field("finished", pa.bool_(), nullable=False),
        ]
    ),
    ("table_name", "run"),
)
"""What was replayed into a table: offsets as JSON, `begins` null for the beginning of the log."""


@dataclass(frozen=True)
class Layout:
    """The result table and its companions."""

    result: Table
    changes: Table
    late: Table
    dead: Table
    clocks: Table

    @property
    def own(self) -> tuple[Table, ...]:
        """The tables that belong to the pipeline alone."""
        return (self.result, self.changes, self.late, self.dead, self.clocks)

    @property
    def all(self) -> tuple[Table, ...]:
        """Those, and the two that all pipelines in the database share."""
        return (*self.own, EPOCHS, OWNERS)


def table_names(table: str) -> tuple[str, ...]:
    """Return the names of a result table and its companions, as `Layout.own` has them."""
    return (table, *(f"{table}_{part}" for part in ("changes", "late", "dead", "clocks")))


def layout(pipeline: AnyPipeline, sink: Sink) -> Layout:
    """Lay out the tables of a pipeline; raise PipelineError for a sink's key that is no key of the results.

    In mode discard each pane is a row of its own, so the result table's key has the pane's revision too.
    """
    name = sink.table
    if name.lower() in {EPOCHS.name, OWNERS.name, REPLAYS.name}:
        msg = f"the table {name!r} is windrow's own: choose another name for the sink's table"
        raise PipelineError(msg)
    changes = schema.changes(pipeline)
    by_name = {field.name: field for field in changes}
    natural = ("window_start", "window_end", *pipeline.key)
    for column in sink.key:
        if column not in natural:
            msg = f"the sink's key has {column!r}, which is not one of {', '.join(natural)}"
            raise PipelineError(msg)
    discards = isinstance(pipeline, Pipeline) and pipeline.emit.mode == "discard"
    key = (*(sink.key or natural), *(["revision"] if discards else []))
    names = table_names(name)
    order = (*natural, *(field.name for field in schema.value_fields(pipeline)), "pane", "revision")
    return Layout(
        result=Table(name, pa.schema([by_name[column] for column in order]), key),
        changes=Table(names[1], pa.schema([EPOCH, SEQ, *changes]), ("epoch", "seq")),
        late=Table(names[2], schema.LATE),
        dead=Table(names[3], schema.DEAD),
        clocks=Table(names[4], pa.schema([EPOCH, *schema.CLOCKS])),
    )


def of_epoch(epoch: int, rows: pa.Table) -> pa.Table:
    """Return a step's rows with its number."""
    return rows.append_column(EPOCH.name, pa.repeat(pa.scalar(epoch, EPOCH.type), rows.num_rows))


def in_order(epoch: int, changes: pa.Table) -> pa.Table:
    """Return a step's changes with its number and their places in it, as the changelog has them."""
    return of_epoch(epoch, changes).append_column(SEQ.name, pa.array(np.arange(changes.num_rows)))


def create_table(table: Table, types: dict[str, str]) -> str:
    """Write CREATE TABLE with a database's own types, by column."""
    lines = [
        f"{quote(field.name)} {types[field.name]}{'' if field.nullable else ' NOT NULL'}" for field in table.schema
    ]
    if table.key:
        lines.append(f"PRIMARY KEY ({quote_all(table.key)})")
    return f"CREATE TABLE {quote(table.name)} ({', '.join(lines)})"
