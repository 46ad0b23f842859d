"""What the tables say, and what the oracle says they should."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any

import pyarrow as pa
from tests.contracts.stores import AnyStore, Row, Store
from tests.graphs import sink_spec_of
from tests.short_forms import Pipeline, operator_spec, windowed

from windrow.connectors.open_sources import open_source
from windrow.engine import schema
from windrow.engine.changelog import StepOutput
from windrow.expressions import WindowSpec
from windrow.testing.oracle import Answer, Change, LogRecord, differences, run
from windrow.testing.transcript.changelog_check import fold_changelog
from windrow.testing.transcript.views import Observed, observe, on_time_panes, repeated

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def expected_of(pipeline: Pipeline) -> Answer:
    """The oracle's answer for all that is in the pipeline's log now."""
    source = open_source(pipeline.source).with_headers()
    log: dict[int, list[LogRecord]] = {partition: [] for partition in source.partitions()}
    for batch in source.read_all():
        times = batch["log_time"].cast(pa.int64())
        rows = zip(*(column.to_pylist() for column in (batch["partition"], batch["offset"], times)), strict=True)
        headers = batch["headers"].to_pylist() if "headers" in batch.schema.names else repeat((), batch.num_rows)
        for (partition, offset, time), value, found in zip(rows, batch["value"].to_pylist(), headers, strict=True):
            log[partition].append(LogRecord(offset, time, value, headers=found))
    return run(windowed(pipeline), log)


def answer_of(store: AnyStore, pipeline: Pipeline) -> Answer:
    """What the tables say, which must be consistent: each change fits, and nothing is there twice."""
    tables = store.tables(pipeline)
    output = StepOutput(
        changes=_arrow(schema.changes(sink_spec_of(pipeline).rows), store.changes(pipeline)),
        late=_arrow(schema.LATE, store.read(tables.late)),
        dead=_arrow(schema.DEAD, store.read(tables.dead)),
        clocks=schema.CLOCKS.empty_table(),
    )
    observed = observe(operator_spec(pipeline), [output])
    assert not fold_changelog(operator_spec(pipeline), observed.changes).misfits
    assert not repeated(observed)
    found = answer(operator_spec(pipeline), observed)
    assert _table(pipeline, store.read(tables.result)) == found.table
    return found


def answer(pipeline: WindowSpec, observed: Observed) -> Answer:
    """Return the output in the oracle's form."""
    changelog: dict[Any, list[Change]] = {}
    for entry in observed.changes:
        row = entry.row
        changelog.setdefault(entry.window_key, []).append(Change(row.op, row.pane, entry.revision, row.values))
    table: dict[Any, Any] = {
        name: (*entry.row.values, entry.row.pane, entry.revision)
        for name, entry in fold_changelog(pipeline, observed.changes).rows.items()
    }
    on_time: dict[Any, Any] = {entry.window_key: entry.row.values for entry in on_time_panes(observed)}
    dead = {
        (int(row.partition), row.offset): row.reason.partition(":")[0]
        for row in observed.dead
        if row.partition is not None and row.offset is not None
    }
    rows = Counter(row.reason.rpartition(": at ")[2] for row in observed.dead if row.partition is None)
    return Answer(table, on_time, set(observed.missed), dead, changelog, dict(rows))


def assert_same(store: AnyStore, pipeline: Pipeline) -> Answer:
    """Hold the tables to the oracle, and return what they say; keys must live in one partition each."""
    expected, actual = expected_of(pipeline), answer_of(store, pipeline)
    each = pipeline.emit.late == "each"
    assert differences(expected, actual, revisions=each, changelog=each) == []
    return actual


def assert_same_values(store: AnyStore, pipeline: Pipeline) -> Answer:
    """As `assert_same`, where panes and revisions are not the oracle's: windows have fired before their time."""
    expected, actual = expected_of(pipeline), answer_of(store, pipeline)
    assert differences(_values(expected), _values(actual), changelog=False) == []
    return actual


def assert_epochs(store: Store, count: int | None = None) -> None:
    """The epochs of the one run in the database count up from 0."""
    rows = store.query("SELECT epoch FROM windrow_epochs ORDER BY epoch")
    assert rows == [(epoch,) for epoch in range(len(rows))]
    assert count is None or len(rows) == count
    assert len(store.query("SELECT DISTINCT pipeline, run FROM windrow_epochs")) <= 1


def micros(time: datetime) -> int:
    """A time in microseconds."""
    return (time - EPOCH) // timedelta(microseconds=1)


def _values(one: Answer) -> Answer:
    return replace(one, table={key: row[:-2] for key, row in one.table.items()}, on_time={})


def _arrow(form: pa.Schema, rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=form)


def _table(pipeline: Pipeline, rows: Iterable[Mapping[str, Any]]) -> dict[Any, Any]:
    values = [aggregate.name for aggregate in pipeline.aggregates]
    return {
        (micros(row["window_start"]), micros(row["window_end"]), *(row[name] for name in pipeline.key)): (
            *(row[name] for name in values),
            row["pane"],
            row["revision"],
        )
        for row in rows
    }
