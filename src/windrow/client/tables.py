"""Rows of a pipeline's tables, read in one snapshot of the sink's database."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.authoring.load import open_pipeline
from windrow.client.arguments import checked
from windrow.connectors.database import Condition, present, read_value
from windrow.connectors.open_sinks import open_database
from windrow.connectors.tables import Table, layout, plain_rows, table_names
from windrow.engine.schema import DEAD, LATE
from windrow.errors import InputError, SetupError, did_you_mean
from windrow.expressions import SinkSpec, sink_specs
from windrow.telemetry.reports import counted
from windrow.terminal.display import aligned, html_lines, html_table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

SHOWN: Final = 10
"""Number of rows of a table that are displayed."""
_MOST = 2**63 - 1
"""The maximum limit in SQL."""


@runtime_checkable
class HasGraph(Protocol):
    """A pipeline, or the result of one."""

    @property
    def graph(self) -> m.Graph:
        """The graph of the pipeline."""
        ...


PipelineLike = str | os.PathLike[str] | HasGraph
"""A pipeline, the path of its file, or a result of it."""
Moment = str | dt.datetime
"""A time as ISO 8601 text or a Python datetime; in UTC unless it has a zone."""


def graph_of(given: PipelineLike) -> m.Graph:
    """Return the graph of a pipeline, or of a file; raise PipelineError as `windrow.load` does."""
    if isinstance(given, str | os.PathLike):
        return open_pipeline(os.fspath(given)).runnable()
    return given.graph


def micros_of(moment: Moment) -> int:
    """Return a time in microseconds; raise InputError for invalid text."""
    found = m.parse_time(_text(moment))
    if found is None:
        msg = f"{moment!r} is not a time; write 2026-01-31 or 2026-01-31T10:05 (UTC), or give a datetime"
        raise InputError(msg)
    return found


@dataclass(frozen=True, repr=False, eq=False)
class Rows:
    """A snapshot of rows of a table; a notebook shows the first of them.

    `total` is the number of rows that meet the conditions. `batches` holds those that were read as Arrow tables, with
    times as timestamp[us, UTC] and exact decimals; `notes` are remarks.
    """

    table: str
    schema: pa.Schema
    batches: tuple[pa.Table, ...]
    total: int
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def to_arrow(self) -> pa.Table:
        """Return the rows."""
        # the scales of decimals can differ between batches
        return pa.concat_tables(self.batches or (self.schema.empty_table(),), promote_options="permissive")

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows with times as datetime64[us, UTC] and decimals as `decimal.Decimal`."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return the rows; raise SetupError if polars is not installed."""
        try:
            import polars  # noqa: ICN001, PLC0415 - it need not be installed
        except ModuleNotFoundError as exc:
            if exc.name != "polars":
                raise
            msg = "polars is not installed: pip install polars, or use to_arrow() or to_pandas()"
            raise SetupError(msg) from exc
        return polars.DataFrame(self.to_arrow())

    def to_spark(self, spark: SparkSession | None = None) -> DataFrame:
        """Return the rows, by default in the active session or a new one; they pass through this process."""
        from pyspark.sql import SparkSession  # noqa: PLC0415 - Spark is loaded only here

        session = spark or SparkSession.getActiveSession()
        if session is None:
            from windrow.runtime.spark.session import spark_session  # noqa: PLC0415 - as above

            session = spark_session()
        return session.createDataFrame(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Pass the rows to a library that reads Arrow's PyCapsule interface, such as polars or DuckDB."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def plain(self, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Return at most `limit` rows as JSON values, with times in ISO 8601 and decimals as text."""
        return list(islice((row for batch in self.batches for row in plain_rows(batch)), limit))

    @property
    def numeric(self) -> tuple[bool, ...]:
        """For each column, whether it is numeric."""
        kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        return tuple(any(is_kind(type_) for is_kind in kinds) for type_ in self.schema.types)

    def __repr__(self) -> str:
        shown = aligned(self.schema.names, self.plain(SHOWN), self.numeric) if len(self) else ()
        return "\n".join([*shown, *self._more()])

    def _repr_html_(self) -> str:
        return html_table(self.schema.names, self.plain(SHOWN), self.numeric) + html_lines(*self._more())

    def _more(self) -> list[str]:
        more = self.total - min(len(self), SHOWN)
        rows = f"... and {counted(more, 'more row')} of {self.table}" if len(self) else f"{self.table} has no rows"
        return [*([rows] if more or not len(self) else []), *self.notes]


@checked
def read_table(
    pipeline: PipelineLike,
    table: str | None = None,
    *,
    where: Mapping[str, object] | None = None,
    key: Mapping[str, object] | None = None,
    window: Moment | None = None,
    since: Moment | None = None,
    reason: str = "",
    order: str | Sequence[str] = (),
    limit: int | None = None,
    as_of: Moment | None = None,
) -> Rows:
    """Read the current rows of a pipeline's table, even while a run writes it.

    >>> wr.read_table(pipeline, "late")
    spend_late has no rows
    >>> wr.read_table(pipeline, where={"user_id": "A"}, order="total:desc").to_pandas()["total"].tolist()
    [Decimal('8.00')]

    The database applies `where`, `key`, `window` and `since`; this process applies `reason`, and `key` to the records
    of the late output.

    Args:
        pipeline: the pipeline that writes the table.
        table: a result table, or a companion table: ``spend_changes`` (the changelog), ``spend_late`` (expired
            records), ``spend_dead`` (dead letters), ``spend_clocks`` (the clock journal). With one sink, it can be left
            out, or be ``changes``, ``late``, ``dead`` or ``clocks``.
        where: the values that columns must have.
        key: the values that fields of the key must have, also in the records of the late output.
        window: a time; only rows of windows that contain it.
        since: a time; only windows that end after it, late records by event time, and dead letters by log timestamp.
        reason: the beginning of the reason of late records and dead letters.
        order: columns to sort by, ``"total"`` or ``"total:desc"``; by default, the primary key.
        limit: the maximum number of rows.
        as_of: compute the table in this process from the records of the log up to this event time.

    Raises:
        InputError: there is no such table or column, or the sink has no tables (a topic, Parquet files).
        SinkError: the database cannot be read.
    """
    runnable = graph_of(pipeline)
    sink, spec, found = find_table(runnable, table)
    query = Query(
        conditions_of(where),
        [order] if isinstance(order, str) else order,
        limit,
        key=conditions_of(key),
        window=None if window is None else micros_of(window),
        since=None if since is None else micros_of(since),
        reason=reason,
    )
    if as_of is None:
        return read(spec.sink, found, query)
    require_of_log(spec.sink, found, "as_of")
    from windrow.runtime.memory import missing_of, tables_as_of  # noqa: PLC0415 - it loads the operators

    with tables_as_of(runnable, micros_of(as_of)) as past:
        return replace(read(sink_of(past, sink), found, query), notes=tuple(missing_of(runnable)))


def find_table(graph: m.Graph, name: str | None = None) -> tuple[str, SinkSpec, Table]:
    """Find a table of a pipeline by its name; return its sink's name, the sink's spec, and the table.

    The table is a result table or a companion table. For a pipeline with one sink, the name can be left out, and
    companion tables can be called changes, late, dead, clocks and outbox. With several sinks, a sink's name can be used
    in place of its table's name. Raise InputError unless exactly one table matches.
    """
    specs = sink_specs(graph)
    layouts = [(sink, spec, layout(spec)) for sink, spec in specs.items()]
    tables = [
        (sink, spec, table)
        for sink, spec, made in layouts
        for table in (*made.own, *(() if made.outbox is None else (made.outbox,)))
    ]
    if name is None and len(specs) > 1:
        results = ", ".join(spec.sink.table for spec in specs.values())
        msg = f"the pipeline writes {len(specs)} tables: choose one of {results}"
        raise InputError(msg)
    name = tables[0][2].name if name is None else name
    parts = [table.name.removeprefix(spec.sink.table) for _, spec, table in tables]
    spellings = (
        [table.name for _, _, table in tables],
        [f"{sink}{part}" for (sink, _, _), part in zip(tables, parts, strict=True)],
        [part.removeprefix("_") for part in parts] if len(specs) == 1 else [],
    )
    for spelling in spellings:
        found = [table for table, text in zip(tables, spelling) if text == name]  # noqa: B905 - the last can be empty
        if len(found) == 1:
            return found[0]
    if name in spellings[0]:
        msg = f"several databases have a table {name!r}: give the name of its sink instead, one of {', '.join(specs)}"
    else:
        known = list(dict.fromkeys(spellings[0]))
        msg = f"the pipeline writes no table {name!r}: choose one of {', '.join(known)}{did_you_mean(name, known)}"
    raise InputError(msg)


def sink_of(graph: m.Graph, name: str) -> m.Sink:
    """Return the settings of the sink with this name."""
    return next(node.sink for node in graph.sinks if node.name == name)


def require_of_log(sink: m.Sink, table: Table, option: str) -> None:
    """Raise InputError if a table cannot be computed from the log, which `option` requires."""
    if table.name not in table_names(sink.table):
        msg = f"{option} reads the log, but {table.name} can only be written by the steps of a run: leave out {option}"
        raise InputError(msg)


@dataclass(frozen=True)
class Query:
    """A query of a table: conditions as ``COLUMN=VALUE``, the order as ``COLUMN`` or ``COLUMN:desc``, and a limit.

    Conditions in `key` also apply to columns, except in the late output, where they apply to the fields of its records.
    `window` selects the windows that contain this time. `since` selects the windows that end after this time, late
    records by their event time, and dead letters by their log timestamp. Both are in microseconds. `reason` selects the
    late records and dead letters whose reason begins with this text. `options` is the prefix of option names in error
    messages: two hyphens for a command line.
    """

    where: Sequence[str] = ()
    order: Sequence[str] = ()
    limit: int | None = None
    options: str = ""
    key: Sequence[str] = ()
    window: int | None = None
    since: int | None = None
    reason: str = ""

    @property
    def is_part(self) -> bool:
        """Whether the query has conditions, and so can leave out rows whatever its limit."""
        return bool(self.where or self.key or self.reason) or self.window is not None or self.since is not None

    def named_conditions(self) -> list[tuple[str, str]]:
        """Return the conditions of `where` and `key`, each with the name of its option."""
        return [(f"{self.options}{name}", text) for name in ("where", "key") for text in getattr(self, name)]

    def filter(self, table: Table) -> RowFilter:
        """Return the filter for a table; raise InputError if the table lacks a column that the query needs."""
        is_late, is_dead = (set(schema.names) <= set(table.columns) for schema in (LATE, DEAD))
        times: list[Condition] = []
        if self.window is not None:
            _require_column(table, "window_start", f"{self.options}window")
            times += [Condition("window_start", "<", self.window + 1), Condition("window_end", ">", self.window)]
        if self.since is not None:
            column = "event_time" if is_late else "log_time" if is_dead else "window_end"
            _require_column(table, column, f"{self.options}since")
            times.append(Condition(column, ">", self.since if column == "window_end" else self.since - 1))
        if self.reason:
            _require_column(table, "reason", f"{self.options}reason")
        if not is_late:
            return RowFilter([*(condition(table, *named) for named in self.named_conditions()), *times], self.reason)
        fields = [text.partition("=") for text in self.key]
        wrong = next((name for name, equals, _ in fields if not equals), None)
        if wrong is not None:
            msg = f"{self.options}key {wrong!r} is not a condition: write {self.options}key FIELD=VALUE"
            raise InputError(msg)
        where = [condition(table, *named) for named in replace(self, key=()).named_conditions()]
        return RowFilter([*where, *times], self.reason, [(name, value) for name, _, value in fields])


@dataclass(frozen=True)
class RowFilter:
    """A filter for rows: `conditions` for the database, a prefix of the reason, and the `fields` of late records."""

    conditions: list[Condition]
    reason: str
    fields: Sequence[tuple[str, str]] = ()

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return the rows that pass the filter; all of `rows` already meet its `conditions`."""
        if self.reason:
            rows = rows.filter(pc.starts_with(rows["reason"], pattern=self.reason))
        for name, text in self.fields:
            values = [json.loads(record).get(name) for record in rows["record"].to_pylist()]
            is_same = [text == value or text == json.dumps(value) for value in values]
            rows = rows.filter(pa.array(is_same, pa.bool_()))
        return rows


def conditions_of(values: Mapping[str, object] | None) -> list[str]:
    """Return the values of columns as conditions ``COLUMN=VALUE`` of a query."""
    return [f"{name}={_text(value)}" for name, value in (values or {}).items()]


def _text(value: object) -> str:
    match value:
        case dt.datetime():
            return value.isoformat()
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def read(sink: m.Sink, table: Table, query: Query) -> Rows:
    """Read rows of a table, in a transaction that ends before this function returns.

    Raise InputError if the table or a column does not exist, or if a condition's value does not have the column's type.
    """
    database = open_database(sink)
    with database.snapshot() as snapshot:
        shown = present(snapshot, database, table)
        missing = [name for name in table.order if name not in shown.columns]
        if missing:
            msg = f"table {table.name!r} in {database.place} has no column {missing[0]!r}, so it is not the pipeline's"
            raise InputError(msg)
        row_filter = query.filter(shown)
        sorting = dict(_sorting(shown, text, query.options) for text in query.order)
        by = (*sorting, *(name for name in table.order if name not in sorting))
        descending = [name for name, is_descending in sorting.items() if is_descending]
        filters_here = bool(row_filter.reason or row_filter.fields)  # such rows are counted here, not by the database
        limit = _MOST if query.limit is None else min(query.limit, _MOST)
        most = None if filters_here or query.limit is None else limit
        batches: list[pa.Table] = []
        kept = total = 0
        for batch in snapshot.rows(shown, by, row_filter.conditions, descending=descending, limit=most):
            passing = row_filter.apply(batch)
            batches.append(passing.slice(0, limit - kept))
            kept += batches[-1].num_rows
            total += passing.num_rows
        if most is not None and total >= most:
            total = snapshot.count(shown, row_filter.conditions)
    return Rows(table.name, shown.schema, tuple(batches), total)


def count_rows(spec: SinkSpec) -> dict[str, int]:
    """Return the number of rows of a sink's result table and of each companion table that exists."""
    with open_database(spec.sink).snapshot() as snapshot:
        return {table.name: snapshot.count(table) for table in layout(spec).own if snapshot.columns(table.name)}


def condition(table: Table, option: str, text: str) -> Condition:
    """Parse ``COLUMN=VALUE``; error messages call the condition `option`."""
    # the name of a column can contain an equals sign
    name = max((name for name in table.columns if text.startswith(f"{name}=")), key=len, default=None)
    if name is None and "=" not in text:
        what = "FIELD" if option.endswith("key") else "COLUMN"
        msg = f"{option} {text!r} is not a condition: write {option} {what}=VALUE"
        raise InputError(msg)
    name = _require_column(table, name or text.partition("=")[0], f"{option} {text!r}")
    return Condition(name, "=", read_value(table.schema.field(name), text[len(name) + 1 :], option))


def _sorting(table: Table, text: str, options: str) -> tuple[str, bool]:
    """Parse ``COLUMN`` or ``COLUMN:desc``; return the column, and whether the order is descending."""
    column, _, way = text.rpartition(":")
    if text in table.columns or way not in {"asc", "desc"}:
        column, way = text, "asc"
    return _require_column(table, column, f"{options}order {text!r}"), way == "desc"


def _require_column(table: Table, column: str, option: str) -> str:
    """Return the name of a column; raise InputError if the table has no such column."""
    if column not in table.columns:
        known, near = ", ".join(table.columns), did_you_mean(column, table.columns)
        msg = f"{option}: table {table.name!r} has no column {column!r}; it has {known}{near}"
        raise InputError(msg)
    if column in table.lists.names:
        msg = (
            f"{option}: column {column!r} of table {table.name!r} has arrays, by which rows are not selected or sorted"
        )
        raise InputError(msg)
    return column
