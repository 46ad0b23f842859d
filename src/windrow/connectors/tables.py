"""Tables of a pipeline: names, columns and keys, quoting, net changes of a step, and Arrow columns as text."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import schema
from windrow.errors import PipelineError
from windrow.expressions import SinkSpec

EPOCH = pa.field("epoch", pa.int64(), nullable=False)
SEQ = pa.field("seq", pa.int64(), nullable=False)

SECOND = 1_000_000
MILLI = 1_000


@dataclass(frozen=True)
class Table:
    """A table: its name, its columns as an Arrow schema, its primary key, which may be empty, and its role.

    In a store of files, rows are divided by the columns `partition_by`. The columns in `lists`, which are JSON text in
    rows, are stored as arrays of these types.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    role: Literal["changelog", "outbox"] | None = None
    partition_by: tuple[str, ...] = ()
    lists: pa.Schema = field(default_factory=lambda: pa.schema([]))

    @property
    def stored(self) -> pa.Schema:
        """The schema of the table in the store."""
        return pa.schema(
            [
                column.with_type(self.lists.field(column.name).type) if column.name in self.lists.names else column
                for column in self.schema
            ]
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self.schema.names)

    @property
    def order(self) -> tuple[str, ...]:
        """The columns by which rows are sorted for display: the primary key or, if there is none, the log position."""
        places = ("epoch", "source", "partition", "offset", *m.WINDOW_BOUNDS)
        return self.key or tuple(name for name in places if name in self.columns)


def _required(type_: pa.DataType, *names: str) -> list[pa.Field]:
    """Return NOT NULL columns of a type."""
    return [pa.field(name, type_, nullable=False) for name in names]


EPOCHS = Table(
    "windrow_epochs",
    pa.schema([*_required(pa.string(), "pipeline", "run"), EPOCH, *_required(schema.MICROS, "committed_at")]),
    ("pipeline", "run", "epoch"),
)
"""The fence: the committed steps."""

OWNERS = Table(
    "windrow_tables",
    pa.schema(_required(pa.string(), "table_name", "pipeline", "run")),
    ("table_name",),
)
"""The run that may write to a table. Steps of any other run would be missing or duplicated."""

OPENERS = Table(
    "windrow_openers",
    pa.schema(_required(pa.string(), "pipeline", "run", "opener")),
    ("pipeline", "run"),
)
"""The last opener of a run's tables. If several processes use the same checkpoint, only the last opener may write."""

ORIGINS = Table(
    "windrow_origins",
    pa.schema(
        [
            *_required(pa.string(), "table_name", "pipeline", "run", "stream"),
            *_required(pa.bool_(), "changelog"),
            pa.field("left_after", pa.int64()),
        ]
    ),
    ("table_name",),
)
"""The stream that a run writes to a table, and whether it also writes the changelog. If the run has continued without
the table, `left_after` is its last epoch before that (-1 if there was none); the stream is then empty if an older
version wrote the table."""

SHARED = (EPOCHS, OWNERS, OPENERS, ORIGINS)
"""The tables shared by all pipelines in a database."""

REPLAYS = Table(
    "windrow_replays",
    pa.schema(
        [
            *_required(pa.string(), "table_name", "pipeline", "run"),
            pa.field("begins", pa.string()),
            *_required(pa.string(), "ends"),
            pa.field("since", schema.MICROS),
            *_required(pa.bool_(), "finished"),
        ]
    ),
    ("table_name", "run"),
)
"""The replays into tables (`windrow.connectors.database.Replayed`). Offsets are JSON, and `begins` is null if the
replay starts at the beginning of the log."""


REDRIVES = Table(
    "windrow_redrives",
    pa.schema(
        [
            *_required(pa.string(), "pipeline", "source"),
            *_required(pa.int32(), "partition"),
            *_required(pa.int64(), "offset", "copy_of", "origin", "attempt"),
            *_required(pa.string(), "reason", "redriven_by"),
            *_required(schema.MICROS, "redriven_at"),
        ]
    ),
    ("pipeline", "source", "partition", "offset"),
)
"""Copies of dead letters appended to logs: `offset` is that of the copy, and `copy_of` is that of the dead letter."""


RELAYS = Table(
    "windrow_relays",
    pa.schema(_required(pa.string(), "outbox", "target", "relay", "begins")),
    ("outbox",),
)
"""The relays that are sending the rows of outboxes, or that died while sending them. `relay` is an id that marks the
records of a relay. `begins`, as JSON, is the next offset of each partition of the target before the records of the rows
that are still in the outbox."""


@dataclass(frozen=True)
class Layout:
    """A result table and its companions."""

    result: Table
    changes: Table
    late: Table
    dead: Table
    clocks: Table
    outbox: Table | None = None

    @property
    def own(self) -> tuple[Table, ...]:
        """The tables that belong to the pipeline alone, except for the outbox, which a run may add later."""
        return (self.result, self.changes, self.late, self.dead, self.clocks)

    @property
    def all(self) -> tuple[Table, ...]:
        """The pipeline's tables, its outbox, and the tables shared by all pipelines in the database."""
        return (*self.own, *(() if self.outbox is None else (self.outbox,)), *SHARED)


def table_names(table: str) -> tuple[str, ...]:
    """Return the names of a result table and its companions, in the order of `Layout.own`."""
    return (table, *(f"{table}_{part}" for part in ("changes", "late", "dead", "clocks")))


def beside(table: str) -> tuple[Table, Table, Table]:
    """Return the companions that do not depend on the results: late output, dead letters and clock journal."""
    _, _, late, dead, clocks = table_names(table)
    return Table(late, schema.LATE), Table(dead, schema.DEAD), Table(clocks, pa.schema([EPOCH, *schema.CLOCKS]))


def layout(spec: SinkSpec) -> Layout:
    """Return the tables of a sink; raise PipelineError if the sink's key is not a key of the results.

    In mode discard, each pane is a row of its own, so the key of the result table also includes the pane's revision.
    """
    sink, rows, name = spec.sink, spec.rows, spec.sink.table
    if name.lower() in {table.name for table in (*SHARED, REPLAYS, REDRIVES, RELAYS)}:
        msg = f"the table {name!r} is windrow's own: choose another name for the sink's table"
        raise PipelineError(msg)
    changes = schema.changes(rows)
    by_name = {field.name: field for field in changes}
    natural = tuple(field.name for field in schema.row_key(rows))
    for column in sink.key:
        if column not in natural:
            msg = f"the sink's key contains {column!r}, which is not one of {', '.join(natural)}"
            raise PipelineError(msg)
    key = (*(sink.key or natural), *(["revision"] if spec.discards else []))
    lists = _lists(spec)
    panes = ("pane", "revision") if rows.has_panes else ()
    order = (*natural, *(field.name for field in schema.value_fields(rows)), *panes)
    late, dead, clocks = beside(name)
    return Layout(
        result=Table(
            name, pa.schema([by_name[column] for column in order]), key, partition_by=sink.partition_by, lists=lists
        ),
        changes=Table(
            table_names(name)[1],
            pa.schema([EPOCH, SEQ, *changes]),
            ("epoch", "seq"),
            "changelog",
            sink.partition_by,
            lists,
        ),
        late=late,
        dead=dead,
        clocks=clocks,
        outbox=outbox(name) if isinstance(sink, m.PostgresSink) and sink.outbox else None,
    )


def _lists(spec: SinkSpec) -> pa.Schema:
    """Return the columns that a sink stores as arrays."""
    if spec.sink.lists == "json":
        return pa.schema([])
    fields = [(value.name, value.type.element) for value in spec.rows.values if isinstance(value.type, m.JsonListType)]
    return pa.schema([(name, pa.list_(schema.arrow_type(element))) for name, element in fields])


def outbox(table: str) -> Table:
    """Return the outbox of a result table. The database generates `id`, in commit order, and `committed_at`."""
    columns = [
        *_required(pa.int64(), "id"),
        *_required(pa.string(), "aggregatetype", "aggregateid", "type", "payload"),
        EPOCH,
        *_required(schema.MICROS, "committed_at"),
    ]
    return Table(f"{table}_outbox", pa.schema(columns), ("id",), "outbox")


def of_epoch(epoch: int, rows: pa.Table) -> pa.Table:
    """Add the epoch to the rows of a step."""
    return rows.append_column(EPOCH.name, pa.repeat(pa.scalar(epoch, EPOCH.type), rows.num_rows))


def in_order(epoch: int, changes: pa.Table, first: int = 0) -> pa.Table:
    """Convert changes to rows of the changelog; `first` is the position of the first change within its step."""
    return of_epoch(epoch, changes).append_column(SEQ.name, pa.array(np.arange(first, first + changes.num_rows)))


_PIECE = 64 << 20
"""Maximum bytes of changes that are processed at a time."""


def pieces(changes: pa.Table, most: int | None = None) -> Iterator[tuple[int, pa.Table]]:
    """Split a step's changes into pieces that fit into memory, each with the position of its first row.

    Most steps are a single piece, unless there are more than `most` rows. The changes may be in files larger than
    memory. Applying the pieces one by one gives the same result as applying all changes at once. An ``update_after``
    is in the same piece as its ``update_before``.
    """
    rows = max(1, changes.num_rows * _PIECE // max(1, changes.nbytes))
    rows = rows if most is None else min(rows, most)
    first = 0
    while first < changes.num_rows:
        end = first + rows
        if end < changes.num_rows and "op" in changes.column_names and changes["op"][end].as_py() == "update_after":
            end += 1
        yield first, changes.slice(first, end - first)
        first = end


def create_table(table: Table, types: dict[str, str]) -> str:
    """Return a CREATE TABLE statement; `types` maps each column to its type in the database."""
    lines = [
        " ".join([quote(field.name), *filter(None, [types[field.name]]), *([] if field.nullable else ["NOT NULL"])])
        for field in table.schema
    ]
    if table.key:
        lines.append(f"PRIMARY KEY ({quote_all(table.key)})")
    return f"CREATE TABLE {quote(table.name)} ({', '.join(lines)})"


def upsert(table: Table) -> str:
    """Return the clause of an INSERT that makes a row replace the existing row with the same key."""
    updates = ", ".join(f"{quote(c)} = excluded.{quote(c)}" for c in table.columns if c not in table.key)
    return f"ON CONFLICT ({quote_all(table.key)}) DO UPDATE SET {updates}"


@dataclass(frozen=True)
class NetChanges:
    """The net effect of a step's changes on a table: the last change of each key, sorted by key.

    `inserts` have keys that the table did not contain, `updates` replace a row, and `deletes` remove a row. `replaced`
    are the earlier changes of these keys that inserted or updated a row.
    """

    inserts: pa.Table
    updates: pa.Table
    deletes: pa.Table
    replaced: pa.Table


def net_changes(changes: pa.Table, key: Sequence[str]) -> NetChanges:
    """Return the net effect of changes, which must be in the order in which they were emitted.

    An ``update_before`` has no effect, because it only repeats the row that an ``update_after`` or ``delete`` replaces.
    """
    places = np.flatnonzero(pc.not_equal(changes["op"], "update_before").to_numpy())
    keys = changes.select(list(key)).take(pa.array(places)).combine_chunks()
    # the sort is stable: the changes of a key stay in their order
    order = pc.sort_indices(keys, sort_keys=[(column, "ascending") for column in key])
    is_first = np.ones(len(places) + 1, dtype=np.bool_)
    if len(places):
        columns = (column.take(order) for column in keys.columns)
        is_first[1:-1] = np.logical_or.reduce([pc.not_equal(c[1:], c[:-1]).to_numpy() for c in columns])
    places = places[order.to_numpy()]
    firsts, lasts = places[is_first[:-1]], places[is_first[1:]]
    was_there = pc.not_equal(changes["op"], "insert").to_numpy()[firsts]
    is_deleted = pc.equal(changes["op"], "delete").to_numpy()[lasts]
    chosen = ~was_there & ~is_deleted, was_there & ~is_deleted, is_deleted
    earlier = places[~is_first[1:]]
    replaced = earlier[pc.not_equal(changes["op"], "delete").to_numpy()[earlier]]
    places_of = *(lasts[which] for which in chosen), replaced
    return NetChanges(*(changes.take(pa.array(those)) for those in places_of))


def earlier_rows(changes: pa.Table) -> pa.Table:
    """Return the changes whose rows are no longer in the table after them: ``update_before`` and ``delete``."""
    return changes.filter(pc.is_in(changes["op"], pa.array(["update_before", "delete"])))


def quote(name: str) -> str:
    """Quote a name for SQL; raise PipelineError if SQL does not support the name."""
    if not name or "\x00" in name:
        msg = f"{name!r} cannot name a table or a column: give it a name without U+0000"
        raise PipelineError(msg)
    return '"' + name.replace('"', '""') + '"'


def quote_all(names: tuple[str, ...] | list[str]) -> str:
    """Return a list of quoted names, separated by commas, for SQL."""
    return ", ".join(quote(name) for name in names)


def utc_text(times: pa.Array) -> pa.Array:
    """Convert timestamp[us, UTC] to text, ``YYYY-MM-DD HH:MM:SS``, plus .fff or .ffffff only if there is a fraction.

    Up to the year 9999, texts of this form sort in the order of time. Nulls stay null.
    """
    # a step has few windows: text is made once for each different time
    encoded = times.dictionary_encode()
    distinct = encoded.dictionary
    text = distinct.cast(pa.timestamp("us")).cast(pa.string())
    micros = distinct.cast(pa.int64()).to_numpy()
    shortened = pc.case_when(
        pc.make_struct(pa.array(micros % SECOND == 0), pa.array(micros % MILLI == 0)),
        pc.utf8_slice_codeunits(text, 0, -7),
        pc.utf8_slice_codeunits(text, 0, -3),
        text,
    )
    return shortened.take(encoded.indices)


def unscaled(decimals: pa.Array) -> pa.Array:
    """Return the unscaled integers of decimal128(p, s) as decimal128(38, 0): 12.30 becomes 1230."""
    return pa.Array.from_buffers(
        pa.decimal128(38, 0), len(decimals), decimals.buffers(), decimals.null_count, decimals.offset
    )


def decimal_text(decimals: pa.Array) -> pa.Array:
    """Convert decimal128(p, s) to plain notation with all s fractional digits (Arrow itself may write 0E-10)."""
    scale = decimals.type.scale
    digits = unscaled(decimals).cast(pa.string())
    if scale == 0:
        return digits
    negative = pc.starts_with(digits, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    sign = pc.if_else(negative, "-", "")
    return pc.binary_join_element_wise(
        sign, pc.utf8_slice_codeunits(digits, 0, -scale), ".", pc.utf8_slice_codeunits(digits, -scale), ""
    )


def plain_rows(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield rows as JSON values: times in ISO 8601, decimals with all their digits, bytes as text."""
    return zip(*(plain_values(column.combine_chunks()) for column in rows.columns), strict=True)


def plain_values(values: pa.Array) -> list[Any]:
    """Convert the values of a column to JSON values, as `plain_rows` does."""
    if pa.types.is_timestamp(values.type):
        return [None if text is None else f"{text.replace(' ', 'T')}Z" for text in utc_text(values).to_pylist()]
    if pa.types.is_decimal(values.type):
        values = decimal_text(values)
    if pa.types.is_list(values.type):
        items = values.type.value_type
        return [None if value is None else plain_values(pa.array(value, items)) for value in values.to_pylist()]
    if pa.types.is_struct(values.type):
        names = [values.type.field(number).name for number in range(values.type.num_fields)]
        rows = zip(*map(plain_values, values.flatten()), strict=True)
        valid = values.is_valid().to_pylist()
        return [dict(zip(names, row, strict=True)) if known else None for known, row in zip(valid, rows, strict=True)]
    listed: list[Any] = values.to_pylist()
    if pa.types.is_binary(values.type):
        return [None if value is None else value.decode(errors="backslashreplace") for value in listed]
    if pa.types.is_floating(values.type):
        # JSON has no number for these
        return [value if value is None or math.isfinite(value) else str(value) for value in listed]
    return listed


def significant_digits(decimals: pa.Array) -> pa.Array:
    """Count the significant digits of decimals, without the sign and without leading and trailing zeros."""
    digits = pc.utf8_ltrim(unscaled(decimals).cast(pa.string()), "-")
    return pc.utf8_length(pc.utf8_rtrim(digits, "0"))


MOST_BYTES = 500_000_000
"""Maximum bytes of a dead letter's `raw` in all databases. PostgreSQL allows 1 GB for its text form."""
KEPT_BYTES = 1 << 16
"""Number of bytes kept of a value that a store cannot hold."""
_KEPT_TEXT = 4_096
"""Number of characters then kept of a reason, which may quote the record."""


def storable_dead(dead: pa.Table) -> pa.Table:
    r"""Convert dead letters to a form that every database can store.

    A reason may quote the record and thus contain U+0000, which PostgreSQL cannot store in text and at which SQLite's
    functions stop, so it is written as ``\u0000``. A `raw` that is too large is truncated.
    """
    column = dead.schema.get_field_index("reason")
    plain = pc.replace_substring(dead["reason"], "\x00", "\\u0000")
    dead = dead.set_column(column, dead.schema.field(column), plain)
    if (pc.max(pc.binary_length(dead["raw"])).as_py() or 0) <= MOST_BYTES:
        return dead
    parts = []
    for batch in dead.to_batches():
        is_large = pc.greater(pc.binary_length(batch["raw"]), MOST_BYTES).fill_null(False)  # noqa: FBT003 - Arrow's
        large = [with_beginning(row, "raw") for row in batch.filter(is_large).to_pylist()]
        rest = pa.Table.from_batches([batch.filter(pc.invert(is_large))])
        parts += [rest, pa.Table.from_pylist(large, dead.schema)]
    return pa.concat_tables(parts)


def with_beginning(row: Mapping[str, Any], column: str, most: int = KEPT_BYTES) -> dict[str, Any]:
    """Return a row that keeps only the first `most` bytes of a column, because a store cannot hold the whole value.

    The reason then states the size and the SHA-256 of the whole value.
    """
    value, reason = row[column], row["reason"]
    whole: bytes = value.encode() if isinstance(value, str) else value or b""
    reason = reason if len(reason) <= _KEPT_TEXT else f"{reason[:_KEPT_TEXT]}..."
    begin = whole[: min(most, KEPT_BYTES)]
    if len(begin) < len(whole):
        kept = f"{column} has the first {len(begin):,} of {len(whole):,} bytes"
        reason = f"{reason}: {kept}, SHA-256 {hashlib.sha256(whole).hexdigest()}"
        value = begin.decode(errors="ignore") if isinstance(value, str) else begin
    return {**row, column: value, "reason": reason}
