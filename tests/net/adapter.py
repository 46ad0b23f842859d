"""The one file of the net that knows windrow's inside: a module that moves or is renamed is followed here alone.

All else in this folder uses `windrow` itself, the command line, and SQLite files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from tests.net.feeds import Feed, Lost, Told

from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.sink import Run
from windrow.engine.changelog import StepOutput
from windrow.engine.messages import RecordsLost
from windrow.engine.schema import RAW
from windrow.engine.tick import Tick
from windrow.model import StringType
from windrow.runtime import memory
from windrow.runtime.compatibility import upgraded
from windrow.runtime.memory import MemoryHost
from windrow.testing.transcript.reader import read_story

TEXT = StringType()
"""What an aggregate of one's own that gives text says it returns."""

Rows = dict[str, list[list[Any]]]
"""Rows of the tables `changes`, `late`, `dead` and `clocks`: a header, then a list for each row."""


def play_in_memory(pipeline: Any, feed: Feed, known: Sequence[int]) -> list[StepOutput]:  # noqa: ANN401
    """Return what each step gives on the memory host, and the end of the input as the last."""
    return list(_played(MemoryHost(pipeline, known), pipeline, feed, {}))


def play_upgraded(
    pipeline: Any,  # noqa: ANN401
    feed: Feed,
    savepoint: Path,
    offsets: dict[int, int],
) -> list[StepOutput]:
    """The same, from the states that a savepoint of another pipeline has; the feed begins at `offsets`."""
    _, states = upgraded(savepoint, pipeline)
    host = MemoryHost(pipeline, sorted(offsets))
    host.begin([state for _, state in states])
    return list(_played(host, pipeline, feed, dict(offsets)))


def play_on_spark(host: Literal["stream", "batch"], pipeline: Any, feed: Feed) -> list[StepOutput]:  # noqa: ANN401
    """The same on Spark; the feed has records that are bytes, and ticks."""
    if host == "stream":
        from windrow.runtime.stream.run import play  # noqa: PLC0415 - Spark only where it runs
    else:
        from windrow.runtime.batch.run import play  # noqa: PLC0415
    steps = [Tick(step.micros) if isinstance(step, Told) else step for step in feed if not isinstance(step, Lost)]
    return [output[""] for output in play(pipeline, steps, _at_end(pipeline))]


def play_story(path: Path) -> Iterator[Rows]:
    """Yield what each step of a story gives on the memory host."""
    story = read_story(path)
    for output in memory.play(story.pipeline, story.feed, story.pipeline.at_end):
        yield from map(rows_of, output.values())


def write(pipeline: Any, outputs: Iterable[StepOutput]) -> None:  # noqa: ANN401
    """Commit the steps' outputs to the sink of the pipeline, as a run does."""
    with closing(open_sinks(pipeline)) as sink:
        sink.open(Run("net", "net"))
        for epoch, output in enumerate(outputs):
            sink.commit(epoch, {"": output})


def rows_of(output: StepOutput) -> Rows:
    """Return the rows of a step as they are, without a sink."""
    found: Rows = {}
    for part in dataclasses.fields(output):
        table: pa.Table = getattr(output, part.name)
        # what is at the end of all time is too far for Python's datetime
        times = [number for number, column in enumerate(table.schema) if pa.types.is_timestamp(column.type)]
        for number in times:
            table = table.set_column(number, table.column_names[number], table.column(number).cast(pa.int64()))
        found[part.name] = [table.column_names, *([*row.values()] for row in table.to_pylist())]
    return found


def _at_end(pipeline: Any) -> Literal["fire", "hold"]:  # noqa: ANN401
    at_end: Literal["fire", "hold"] = pipeline.at_end
    return at_end


def _played(
    host: MemoryHost,
    pipeline: Any,  # noqa: ANN401
    feed: Feed,
    offsets: dict[int, int],
) -> Iterator[StepOutput]:
    for step in feed:
        match step:
            case Told(micros):
                groups = host.tick(micros)
            case Lost(partition, skipped):
                offsets[partition] = offsets.get(partition, 0) + skipped
                groups = host.lose(RecordsLost(partition, offsets[partition], "gone"))
            case _:
                groups = host.step(_raw(step, offsets))
        yield StepOutput.concat(group.rows for group in groups)
    groups = host.end() if _at_end(pipeline) == "fire" else host.step(RAW.empty_table())
    yield StepOutput.concat(group.rows for group in groups)


def _raw(records: Iterable[tuple[int, bytes | None]], offsets: dict[int, int]) -> pa.Table:
    """Return records with their offsets, which count up; in offset order by partition, as sources read them."""
    rows = []
    for partition, value in sorted(records, key=lambda record: record[0]):
        offset = offsets.get(partition, 0)
        offsets[partition] = offset + 1
        rows.append({"partition": partition, "offset": offset, "value": value})
    return pa.Table.from_pylist(rows, schema=RAW)
