"""Where parts of a step wait for the merge: written by many processes at once, with COPY."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from windrow.core.output import StepOutput
from windrow.errors import PipelineError, SinkError
from windrow.sinks.fold import last_changes
from windrow.sinks.layout import Layout, Table
from windrow.sinks.postgres.session import Connection, qualified
from windrow.sinks.quote import quote_all
from windrow.sinks.text import hex_text, utc_text, with_plain_reasons

TOKEN = pa.field("stage_token", pa.string(), nullable=False)
POSITION = pa.field("stage_position", pa.int64(), nullable=False)
LAST = pa.field("stage_last", pa.bool_(), nullable=False)


@dataclass(frozen=True)
class Staging:
    """The staging tables of every other epoch: the rows as they will be, and who staged them.

    Rows of `changes` have their position within the attempt, and whether they are the last of it for their key.
    """

    changes: Table
    late: Table
    dead: Table
    clocks: Table

    @property
    def all(self) -> tuple[Table, ...]:
        """All of them."""
        return (self.changes, self.late, self.dead, self.clocks)


_SETS = ("stage", "odd")
"""A step is staged while the one before is merged, after which the tables that it was staged in are emptied."""


def stage_names(table: str) -> tuple[str, ...]:
    """Return the names of all staging tables of a result table."""
    return tuple(f"{table}_{one}_{part}" for one in _SETS for part in ("changes", "late", "dead", "clocks"))


def staging(layout: Layout) -> tuple[Staging, Staging]:
    """Lay out the staging tables of a pipeline's tables, those of even epochs and those of odd ones.

    Raise PipelineError if a column has a name of theirs.
    """
    for field in (TOKEN, POSITION, LAST):
        if field.name in layout.changes.columns:
            msg = f"{field.name!r} is windrow's own name in PostgreSQL: rename that column"
            raise PipelineError(msg)
    names = stage_names(layout.result.name)
    # a column that came to the table on the way can be null where it else is not
    own = [field for field in layout.changes.schema if field.name not in {"epoch", "seq"}]
    changes = [field.with_nullable(True) for field in own]  # noqa: FBT003 - Arrow's signature
    clocks = [field for field in layout.clocks.schema if field.name != "epoch"]
    columns = ([TOKEN, POSITION, LAST, *changes], [TOKEN, *layout.late.schema], [TOKEN, *layout.dead.schema])
    schemas = [*map(pa.schema, columns), pa.schema([TOKEN, *clocks])]
    even, odd = (map(Table, some, schemas) for some in (names[:4], names[4:]))
    return Staging(*even), Staging(*odd)


@dataclass(frozen=True)
class Token:
    """Names what one attempt staged and counts it, so that a merge can tell when rows have gone.

    Unlogged tables are emptied when PostgreSQL restarts after a crash.
    """

    attempt: str
    changes: int
    deletes: int
    late: int
    dead: int
    clocks: int

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """How many rows it staged in each table, in the order of `Staging.all`."""
        return (self.changes, self.late, self.dead, self.clocks)

    def __str__(self) -> str:
        return f"{self.attempt}/{self.changes}/{self.deletes}/{self.late}/{self.dead}/{self.clocks}"

    @staticmethod
    def parse(text: str) -> Token:
        """Read what `str` wrote; raise SinkError for anything else."""
        try:
            attempt, *counts = text.split("/")
            changes, deletes, late, dead, clocks = map(int, counts)
            return Token(str(uuid.UUID(attempt)), changes, deletes, late, dead, clocks)
        except ValueError as error:
            msg = f"{text!r} is not a token of stage(): give merge() the tokens that stage() returned"
            raise SinkError(msg) from error

    @staticmethod
    def new(output: StepOutput) -> Token:
        """Name a new attempt to stage an output."""
        return Token(
            attempt=str(uuid.uuid4()),
            changes=output.changes.num_rows,
            deletes=pc.sum(pc.equal(output.changes["op"], "delete")).as_py() or 0,
            late=output.late.num_rows,
            dead=output.dead.num_rows,
            clocks=output.clocks.num_rows,
        )


@dataclass(frozen=True)
class Target:
    """Where to stage: a connection, the schema, its staging tables, and the primary key of the result table."""

    connection: Connection
    schema: str
    stages: Staging
    key: tuple[str, ...]

    def copy_in(self, token: Token, output: StepOutput) -> None:
        """Put an output into the staging tables under its token, in one transaction."""
        changes = output.changes
        if token.changes:
            position = pa.array(np.arange(token.changes))
            mark = pa.array(last_changes(changes, self.key))
            changes = changes.append_column(POSITION, position).append_column(LAST, mark)
        with self.connection.transaction():
            parts = (changes, output.late, with_plain_reasons(output.dead), output.clocks)
            for table, rows in zip(self.stages.all, parts, strict=True):
                if rows.num_rows:
                    tagged = rows.append_column(TOKEN, pa.repeat(token.attempt, rows.num_rows))
                    self._copy(table, tagged.select(list(table.columns)))

    def _copy(self, table: Table, rows: pa.Table) -> None:
        columns = [_csv_column(column.combine_chunks()) for column in rows.columns]
        buffer = pa.BufferOutputStream()
        # Only what needs quotes gets them, and the empty string does: PostgreSQL reads an unquoted nothing as null.
        options = csv.WriteOptions(include_header=False, quoting_style="needed")
        csv.write_csv(pa.table(columns, names=rows.column_names), buffer, options)
        target = f"{qualified(self.schema, table.name)} ({quote_all(table.columns)})"
        with self.connection.cursor().copy(f"COPY {target} FROM STDIN (FORMAT csv)") as copy:
            copy.write(memoryview(buffer.getvalue()))


def _csv_column(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        # The year before 1 is 0 in ISO 8601 and 1 BC in PostgreSQL.
        return pc.replace_substring_regex(utc_text(column), "^0000(-.*)$", r"0001\1 BC")
    if pa.types.is_decimal(column.type):
        return column.cast(pa.string())
    return hex_text(column) if pa.types.is_binary(column.type) else column
