"""What each user spends in five minutes, in Beam: python beam.py LOG DATABASE live|bounded."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms import trigger
from apache_beam.transforms.window import FixedWindows, TimestampedValue

TABLES = """
CREATE TABLE IF NOT EXISTS spend (window_start TEXT, user_id TEXT, total TEXT, PRIMARY KEY (window_start, user_id));
CREATE TABLE IF NOT EXISTS dead (raw TEXT PRIMARY KEY);
"""
UPSERT = "INSERT INTO spend VALUES (?, ?, ?) ON CONFLICT (window_start, user_id) DO UPDATE SET total = excluded.total"


def seconds(line: str) -> float:
    """Return the event time of a record."""
    return datetime.fromisoformat(json.loads(line)["event_time"]).timestamp()


def live(log: str) -> TestStream:
    """Return the log as a source gives it that moves its watermark after each record: a minute behind the newest."""
    stream, newest = TestStream(), float("-inf")
    for line in Path(log).read_text(encoding="utf-8").splitlines():
        stream.add_elements([TimestampedValue(line, seconds(line))])
        if seconds(line) > newest:
            newest = seconds(line)
            stream.advance_watermark_to(newest - 60)
    return stream.advance_watermark_to_infinity()


class Parse(beam.DoFn):
    """Parses records; the malformed go to the output `dead`."""

    def process(self, line: str) -> Iterator[Any]:
        """Yield (user, amount) at its event time."""
        try:
            record = json.loads(line, parse_float=Decimal)
            yield TimestampedValue((record["user_id"], Decimal(record["amount"])), seconds(line))
        except (ValueError, KeyError, InvalidOperation):
            yield beam.pvalue.TaggedOutput("dead", line)


class Write(beam.DoFn):
    """Writes rows into the database; a bundle that is tried again writes them again."""

    def __init__(self, database: str, statement: str) -> None:
        self._database = database
        self._statement = statement

    def process(self, row: tuple[str, ...]) -> None:
        """Write a row."""
        with closing(sqlite3.connect(self._database)) as connection, connection:
            connection.executescript(TABLES)
            connection.execute(self._statement, row)


def row(element: tuple[str, Decimal], window: Any = beam.DoFn.WindowParam) -> tuple[str, str, str]:
    """Return a total as a row of the table."""
    user, total = element
    return window.start.to_utc_datetime().isoformat(" "), user, str(total)


def main(log: str, database: str, mode: str) -> None:
    """Run the pipeline to the end of the log."""
    pipeline = beam.Pipeline(options=PipelineOptions([], streaming=mode == "live"))
    lines = pipeline | (live(log) if mode == "live" else beam.io.ReadFromText(log))
    parsed = lines | beam.ParDo(Parse()).with_outputs("dead", main="good")
    _ = (
        parsed.good
        | beam.WindowInto(
            FixedWindows(300),
            trigger=trigger.AfterWatermark(late=trigger.AfterCount(1)),
            accumulation_mode=trigger.AccumulationMode.ACCUMULATING,
            allowed_lateness=600,
        )
        | beam.CombinePerKey(sum)
        | "rows" >> beam.Map(row)
        | "totals" >> beam.ParDo(Write(database, UPSERT))
    )
    _ = (
        parsed.dead
        | "raw" >> beam.Map(lambda line: (line,))
        | "dead" >> beam.ParDo(Write(database, "INSERT OR IGNORE INTO dead VALUES (?)"))
    )
    pipeline.run().wait_until_finish()


if __name__ == "__main__":
    main(*sys.argv[1:])
