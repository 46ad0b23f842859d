"""What PostgreSQL holds of a topic, compared with what the definition in plain Python says of it.

The partitions are taken apart, in as many processes as there are cores: with all of a key's records in one partition,
and the end of the input told, nothing of one depends on the others. So a few gigabytes do for millions of events.
"""

from __future__ import annotations

import os
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from tests.short_forms import Pipeline, short_form, windowed

from windrow.authoring.load import open_pipeline
from windrow.connectors.kafka.source import KafkaTopic
from windrow.connectors.open_sources import open_source
from windrow.model import KafkaSource
from windrow.testing.oracle import Answer, Change, LogRecord, Missed, differences, run

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


@dataclass(frozen=True)
class Part:
    """A partition: its records, the rows of its keys, how many late and dead there are, and what differs."""

    records: int
    rows: int
    late: int
    dead: int
    differences: list[str]


@dataclass(frozen=True)
class Verdict:
    """Whether all is right, and in words."""

    is_right: bool
    said: str


def verdict(file: Path, url: str) -> Verdict:
    """Compare the tables of a pipeline in a file, one string key into PostgreSQL, with what its topic says."""
    pipeline = _pipeline(file)
    ends = open_source(pipeline.source).ends()
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        parts = list(pool.map(_part, [(file, url, partition, span) for partition, span in sorted(ends.items())]))
    found = [line for part in parts for line in part.differences]
    with psycopg.connect(url) as connection:
        [(rows,)] = connection.execute(f"SELECT count(*) FROM {pipeline.sink.table}").fetchall()
    if rows != sum(part.rows for part in parts):
        found.append(f"the table has {rows} rows, of which {rows - sum(part.rows for part in parts)} are of no key")
    records, late, dead = (sum(getattr(part, name) for part in parts) for name in ("records", "late", "dead"))
    said = f"{records:,} events, {rows:,} rows, {late:,} expired, {dead:,} dead letters: "
    said += "\n  ".join(["THE TABLES DIFFER", *found]) if found else "table, changelog and companions are right"
    return Verdict(not found, said)


def _pipeline(file: Path) -> Pipeline:
    pipeline = short_form(open_pipeline(str(file)).runnable())
    if not isinstance(pipeline, Pipeline) or not isinstance(pipeline.source, KafkaSource):
        msg = f"{file} is not from Kafka, or has no windows"
        raise TypeError(msg)
    return pipeline


def _part(given: tuple[Path, str, int, tuple[int, int]]) -> Part:
    file, url, partition, span = given
    pipeline = _pipeline(file)
    if not isinstance(pipeline.source, KafkaSource):
        raise TypeError(pipeline.source)
    records: list[LogRecord] = []
    for batch in KafkaTopic(pipeline.source).read_ranges({partition: span}):
        times = batch["log_time"].cast(pa.int64())
        columns = (column.to_pylist() for column in (batch["offset"], times, batch["value"]))
        records += [LogRecord(*row) for row in zip(*columns, strict=True)]
    expected = run(windowed(pipeline), {partition: records})
    keys = sorted({str(window_key[2]) for window_key in expected.table})
    with psycopg.connect(url) as connection:
        actual = _held(pipeline, connection, partition, keys)
    return Part(len(records), len(actual.table), len(actual.late), len(actual.dead), differences(expected, actual))


def _held(pipeline: Pipeline, connection: psycopg.Connection[Any], partition: int, keys: list[str]) -> Answer:
    """Read what the tables say of a partition and its keys."""
    table = pipeline.sink.table
    [key] = pipeline.key
    values = ", ".join(aggregate.name for aggregate in pipeline.aggregates)
    width = len(pipeline.aggregates)
    answer = Answer(table={}, on_time={}, late=set(), dead={}, changelog=defaultdict(list))
    # the names are ours, and plain
    window = f"window_start, window_end, {key}"
    for row in _rows(connection, f"SELECT {window}, {values}, pane, revision FROM {table} WHERE {key} = ANY(%s)", keys):
        answer.table[_micros(row[0]), _micros(row[1]), row[2]] = row[3:]
    changes = f"SELECT {window}, {values}, op, pane, revision FROM {table}_changes WHERE {key} = ANY(%s)"
    for row in _rows(connection, f"{changes} ORDER BY epoch, seq", keys):
        window_key = (_micros(row[0]), _micros(row[1]), row[2])
        held, (op, pane, revision) = row[3 : 3 + width], row[3 + width :]
        answer.changelog[window_key].append(Change(op, pane, revision, held))
        if pane == "on_time" and op in {"insert", "update_after"}:
            answer.on_time[window_key] = held
    late = f'SELECT "offset", window_start, window_end, lateness_ms FROM {table}_late WHERE partition = %s'
    for offset, start, end, lateness in _rows(connection, late, partition):
        missed = Missed(partition, offset, _micros(start), _micros(end), lateness)
        if missed in answer.late:
            answer.dead[partition, offset] = "twice in the late output"
        answer.late.add(missed)
    for offset, reason in _rows(
        connection, f'SELECT "offset", reason FROM {table}_dead WHERE partition = %s', partition
    ):
        twice = (partition, offset) in answer.dead
        answer.dead[partition, offset] = "twice in the dead letters" if twice else reason.partition(":")[0]
    return answer


def _rows(connection: psycopg.Connection[Any], query: str, *given: object) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode(), given).fetchall()


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // _MICRO
