"""Rows of the tables that a pipeline writes, read in one snapshot of the sink's database."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
"""Rows that are shown of a table."""
_MOST = 2**63 - 1
"""The greatest limit that SQL can name."""


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
"""A time as ISO 8601 has it, or as Python's own; in UTC unless it has a zone."""


def graph_of(given: PipelineLike) -> m.Graph:
    """Return the graph of a pipeline, read from a file if that is given; raise PipelineError as `windrow.load` does."""
    if isinstance(given, str | os.PathLike):
        return open_pipeline(os.fspath(given)).runnable()
    return given.graph


def micros_of(moment: Moment) -> int:
    """Return a time in microseconds; raise InputError if it is none."""
    found = m.parse_time(_text(moment))
    if found is None:
        msg = f"{moment!r} is not a time; write 2026-01-31 or 2026-01-31T10:05 (UTC), or give a datetime"
        raise InputError(msg)
    return found


@dataclass(frozen=True, repr=False, eq=False)
class Rows:
    """Rows of a table as they were at one moment; a notebook shows the first of them.

    `total` is how many there are in the table that meet the conditions, of which `batches` has some; they are Arrow
    tables with times as timestamp[us, UTC] and exact decimals. `notes` say what else to know of them.
    """

    table: str
    schema: pa.Schema
    batches: tuple[pa.Table, ...]
    total: int
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        # decimals may have come with other scales
        return pa.concat_tables(self.batches or (self.schema.empty_table(),), promote_options="permissive")

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame: times are datetime64[us, UTC], decimals are `decimal.Decimal`."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a polars DataFrame; raise SetupError if polars is not installed."""
        try:
            import polars  # noqa: ICN001, PLC0415 - it need not be installed
        except ModuleNotFoundError as exc:
            if exc.name != "polars":
                raise
            msg = "polars is not installed: pip install polars, or use to_arrow() or to_pandas()"
            raise SetupError(msg) from exc
        return polars.DataFrame(self.to_arrow())

    def to_spark(self, spark: SparkSession | None = None) -> DataFrame:
        """Return the rows as a DataFrame of a Spark session: the active one, or one that is started.

        The rows pass through this process.
        """
        from pyspark.sql import SparkSession  # noqa: PLC0415 - only who asks for it loads Spark

        session = spark or SparkSession.getActiveSession()
        if session is None:
            from windrow.runtime.spark.session import spark_session  # noqa: PLC0415 - as above

            session = spark_session()
        return session.createDataFrame(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows to any library that takes Arrow's PyCapsule interface, such as polars and DuckDB."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def plain(self, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Return rows as values of JSON: times in ISO 8601, decimals as text."""
        found = (row for batch in self.batches for row in plain_rows(batch))
        return [row for row, _ in zip(found, range(len(self) if limit is None else limit), strict=False)]

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns are of numbers."""
        return tuple(map(_is_number, self.schema.types))

    def __repr__(self) -> str:
        return "\n".join([*self._head(), *self._more()])

    def _repr_html_(self) -> str:
        return html_table(self.schema.names, self.plain(SHOWN), self.numeric) + html_lines(*self._more())

    def _head(self) -> list[str]:
        return list(aligned(self.schema.names, self.plain(SHOWN), self.numeric)) if len(self) else []

    def _more(self) -> list[str]:
        more = self.total - min(len(self), SHOWN)
        rows = f"... and {counted(more, 'more row')} of {self.table}" if len(self) else f"{self.table} has no rows"
        return [*([rows] if more or not len(self) else []), *self.notes]


def _is_number(type_: pa.DataType) -> bool:
    return any(is_kind(type_) for is_kind in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


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
    """Read rows of a table that a pipeline writes, as they are now. A run can write it meanwhile.

    >>> wr.read_table(pipeline, "late")
    spend_late has no rows
    >>> wr.read_table(pipeline, where={"user_id": "A"}, order="total:desc").to_pandas()["total"].tolist()
    [Decimal('8.00')]
    >>> wr.read_table(pipeline, "changes", key={"user_id": "A"}, window="2026-01-01T10:02").total
    3

    The database chooses the rows by `where`, `key`, `window` and `since`, as ``windrow show`` has them; only fields of
    late records, and `reason`, are looked up in the rows that it gives.

    Args:
        pipeline: the pipeline, the path of its file, or a result of it.
        table: the name of a result table, or of one beside it: ``spend_changes`` (the changelog), ``spend_late``
            (expired records), ``spend_dead`` (dead letters), ``spend_clocks`` (the clock journal). If the pipeline has
            one sink, it can be left out, and those beside it can be called ``changes``, ``late``, ``dead`` and
            ``clocks``.
        where: the values that columns must have.
        key: the values that fields of the key must have, also in the records of the late output.
        window: a time; only rows of windows that it is in.
        since: a time; only windows that end after it, late records by event time, dead letters by log timestamp.
        reason: what the reason of late records and dead letters begins with.
        order: columns to sort by, ``"total"`` or ``"total:desc"``; left out, the primary key.
        limit: how many rows to read at most.
        as_of: read the log again in this process, and give the table as the records up to this event time make it.

    Raises:
        InputError: there is no such table or column, or the sink is no table (a topic, Parquet files).
        SinkError: the database cannot be read.
    """
    runnable = graph_of(pipeline)
    sink, spec, found = find_table(runnable, table)
    query = Query.of(where, order, limit, key=key, window=window, since=since, reason=reason)
    if as_of is None:
        return read(spec.sink, found, query)
    require_of_log(spec.sink, found, "as_of")
    from windrow.runtime.memory import missing_of, tables_as_of  # noqa: PLC0415 - it loads the operators

    with tables_as_of(runnable, micros_of(as_of)) as past:
        return replace(read(sink_of(past, sink), found, query), notes=tuple(missing_of(runnable)))


def find_table(graph: m.Graph, name: str | None = None) -> tuple[str, SinkSpec, Table]:
    """Return the table of that name, its sink and what that takes; raise InputError if there is none, or several.

    It is a result table or one beside it. If the pipeline has one sink, it can be left out, and those beside it can be
    called changes, late, dead, clocks and outbox; else the name of a sink can stand in the place of that of its table.
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
        msg = f"the pipeline writes {len(specs)} tables: name one of {results}"
        raise InputError(msg)
    name = tables[0][2].name if name is None else name
    parts = [table.name.removeprefix(spec.sink.table) for _, spec, table in tables]
    spellings = (
        [table.name for _, _, table in tables],
        [f"{sink}{part}" for (sink, _, _), part in zip(tables, parts, strict=True)],
        [part.removeprefix("_") for part in parts] if len(specs) == 1 else [],
    )
    for spelling in spellings:
        found = [one for one, spelt in zip(tables, spelling) if spelt == name]  # noqa: B905 - or none
        if len(found) == 1:
            return found[0]
    if name in spellings[0]:
        msg = f"several databases have a table {name!r}: name one of the sinks {', '.join(specs)} instead"
    else:
        known = list(dict.fromkeys(spellings[0]))
        msg = f"the pipeline writes no table {name!r}: name one of {', '.join(known)}{did_you_mean(name, known)}"
    raise InputError(msg)


def sink_of(graph: m.Graph, name: str) -> m.Sink:
    """Return the settings of a sink by its name."""
    return next(node.sink for node in graph.sinks if node.name == name)


def require_of_log(sink: m.Sink, table: Table, option: str) -> None:
    """Raise InputError for a table that is made of a run's steps; `option` is what takes those that the log makes."""
    if table.name not in table_names(sink.table):
        msg = f"{option} reads the log, and {table.name} is made of steps: leave out {option}"
        raise InputError(msg)


@dataclass(frozen=True)
class Query:
    """Which rows of a table: conditions as ``COLUMN=VALUE``, the order as ``COLUMN`` or ``COLUMN:desc``, and how many.

    `options` is what errors write before the names of these, two hyphens if they come from a command line. Conditions
    in `key` are of the table's columns too; of the late output they are of fields of its records. Only rows of windows
    that the time `window` is in are read, and only windows that end after `since` (late records by event time, dead
    letters by log timestamp), in microseconds; of late records and dead letters those whose reason begins with
    `reason`.
    """

    where: Sequence[str] = ()
    order: Sequence[str] = ()
    limit: int | None = None
    options: str = ""
    key: Sequence[str] = ()
    window: int | None = None
    since: int | None = None
    reason: str = ""

    @staticmethod
    def of(
        where: Mapping[str, object] | None,
        order: str | Sequence[str],
        limit: int | None,
        *,
        key: Mapping[str, object] | None = None,
        window: Moment | None = None,
        since: Moment | None = None,
        reason: str = "",
    ) -> Query:
        """Return the query of conditions by column; times are in UTC unless they have a zone."""
        conditions, of_key = ([f"{name}={_text(value)}" for name, value in (one or {}).items()] for one in (where, key))
        at, after = (None if one is None else micros_of(one) for one in (window, since))
        order = [order] if isinstance(order, str) else order
        return Query(conditions, order, limit, key=of_key, window=at, since=after, reason=reason)

    @property
    def is_part(self) -> bool:
        """Whether it may leave out rows of the table, however many are asked for."""
        return bool(self.where or self.key or self.reason) or self.window is not None or self.since is not None

    def named(self) -> list[tuple[str, str]]:
        """Return the conditions of `where` and `key`, each behind the name of its option."""
        return [(f"{self.options}{name}", text) for name in ("where", "key") for text in getattr(self, name)]

    def choice(self, table: Table) -> _Choice:
        """Return what it chooses of a table; raise InputError for what the table has no columns for."""
        is_late, is_dead = (set(one.names) <= set(table.columns) for one in (LATE, DEAD))
        times: list[Condition] = []
        if self.window is not None:
            _known(table, "window_start", f"{self.options}window")
            times += [Condition("window_start", "<", self.window + 1), Condition("window_end", ">", self.window)]
        if self.since is not None:
            column = "event_time" if is_late else "log_time" if is_dead else "window_end"
            _known(table, column, f"{self.options}since")
            times.append(Condition(column, ">", self.since if column == "window_end" else self.since - 1))
        if self.reason:
            _known(table, "reason", f"{self.options}reason")
        if not is_late:
            return _Choice(self.named(), times, self.reason)
        fields = [text.partition("=") for text in self.key]
        wrong = next((name for name, equals, _ in fields if not equals), None)
        if wrong is not None:
            msg = f"{self.options}key {wrong!r} is not a condition: write {self.options}key FIELD=VALUE"
            raise InputError(msg)
        where = replace(self, key=()).named()
        return _Choice(where, times, self.reason, [(name, value) for name, _, value in fields])


@dataclass(frozen=True)
class _Choice:
    """Which rows of a table are chosen: those that meet `where`, `times` and `reason`, and of the late output `fields`.

    `where` are options with their COLUMN=VALUE, and `reason` begins the column of that name. `fields` are values of
    fields in the records of the late output.
    """

    where: Sequence[tuple[str, str]]
    times: Sequence[Condition]
    reason: str
    fields: Sequence[tuple[str, str]] = ()

    def conditions(self, table: Table) -> list[Condition]:
        """Return what the database can choose by, over columns of the table."""
        return [*(condition(table, *one) for one in self.where), *self.times]

    def only(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are chosen of those that meet the conditions."""
        if self.reason:
            rows = rows.filter(pc.starts_with(rows["reason"], pattern=self.reason))
        for name, text in self.fields:
            values = [json.loads(record).get(name) for record in rows["record"].to_pylist()]
            is_same = [text == value or text == json.dumps(value) for value in values]
            rows = rows.filter(pa.array(is_same, pa.bool_()))
        return rows


def _text(value: object) -> str:
    match value:
        case dt.datetime():
            return value.isoformat()
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def read(sink: m.Sink, table: Table, query: Query) -> Rows:
    """Read rows of a table, in a transaction that is over when this returns.

    Raise InputError if there is no such table or column, or a condition has no value of the column's type.
    """
    choice = query.choice(table)
    database = open_database(sink)
    with database.snapshot() as snapshot:
        shown = present(snapshot, database, table)
        missing = [name for name in table.order if name not in shown.columns]
        if missing:
            msg = f"table {table.name!r} in {database.place} has no column {missing[0]!r}, so it is not the pipeline's"
            raise InputError(msg)
        conditions = choice.conditions(shown)
        sorting = dict(_sorting(shown, text, query.options) for text in query.order)
        by = (*sorting, *(name for name in table.order if name not in sorting))
        descending = [name for name, is_descending in sorting.items() if is_descending]
        is_whole = bool(choice.reason or choice.fields)  # what the database does not choose is counted here
        limit = _MOST if query.limit is None else min(query.limit, _MOST)
        most = None if is_whole or query.limit is None else limit
        batches: list[pa.Table] = []
        kept = total = 0
        for batch in snapshot.rows(shown, by, conditions, descending=descending, limit=most):
            chosen = choice.only(batch)
            batches.append(chosen.slice(0, limit - kept))
            kept += batches[-1].num_rows
            total += chosen.num_rows
        if most is not None and total >= most:
            total = snapshot.count(shown, conditions)
    return Rows(table.name, shown.schema, tuple(batches), total)


def count_rows(spec: SinkSpec) -> dict[str, int]:
    """Return how many rows the result table of a sink has, and those beside it, as far as they are there."""
    with open_database(spec.sink).snapshot() as snapshot:
        return {table.name: snapshot.count(table) for table in layout(spec).own if snapshot.columns(table.name)}


def condition(table: Table, option: str, text: str) -> Condition:
    """Read ``COLUMN=VALUE``; `option` is the name that errors give it."""
    # a name may have an equals sign in it
    name = max((name for name in table.columns if text.startswith(f"{name}=")), key=len, default=None)
    if name is None and "=" not in text:
        what = "FIELD" if option.endswith("key") else "COLUMN"
        msg = f"{option} {text!r} is not a condition: write {option} {what}=VALUE"
        raise InputError(msg)
    name = _known(table, name or text.partition("=")[0], f"{option} {text!r}")
    return Condition(name, "=", read_value(table.schema.field(name), text[len(name) + 1 :], option))


def _sorting(table: Table, text: str, options: str) -> tuple[str, bool]:
    """Read ``COLUMN`` or ``COLUMN:desc``: the column, and whether it is descending."""
    column, _, way = text.rpartition(":")
    if text in table.columns or way not in {"asc", "desc"}:
        column, way = text, "asc"
    return _known(table, column, f"{options}order {text!r}"), way == "desc"


def _known(table: Table, column: str, option: str) -> str:
    """Return the name of a column; raise InputError if the table has none of that name."""
    if column not in table.columns:
        known, near = ", ".join(table.columns), did_you_mean(column, table.columns)
        msg = f"{option}: table {table.name!r} has no column {column!r}; it has {known}{near}"
        raise InputError(msg)
    return column
