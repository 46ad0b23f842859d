"""The end of the input: told once, after all that was there, and to no later run."""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.engine.pipelines import main, record
from tests.graphs import as_graph
from tests.short_forms import Pipeline

from windrow.connectors.cuts import StreamPlan
from windrow.connectors.memory import CollectSink
from windrow.connectors.source import Loss
from windrow.connectors.stream_reader import Share, StreamReader
from windrow.engine.changelog import StepOutput
from windrow.engine.messages import EndOfInput, Message, RecordsLost
from windrow.errors import SinkError, SinkUnavailableError
from windrow.model import Emit, LogSource
from windrow.runtime.run import RunSettings
from windrow.runtime.spark.rows import read_packets
from windrow.runtime.stream.control import ControlReader, ControlSource
from windrow.runtime.stream.query import BUSY
from windrow.runtime.stream.run import StreamRun
from windrow.runtime.stream.steps import StepOffsets
from windrow.telemetry.reports import Fault, StepReport

DIED = "the sink died as it was given the end"


class Counter(StreamReader[int]):
    """Reads up to a number, a few a step."""

    def __init__(self, last: int, step: int) -> None:
        super().__init__(StreamPlan(iter, {"n": 0}, tasks=1, max_records=step))
        self.last, self._step = last, step

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """There is nothing to fix."""

    def step_from(self, start: dict[str, Any], max_records: int | None) -> dict[str, Any]:
        return {"n": min(start["n"] + (max_records or self._step), max(self.last, start["n"]))}

    def waiting(self, start: Mapping[str, Any]) -> int:
        return max(0, self.last - int(start["n"]))

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        return [Share({0: end["n"] - start["n"]})] if end != start else []

    def read_parts(self, parts: Mapping[int, int]) -> Iterable[pa.RecordBatch]:
        return [pa.record_batch({"read": [count]}) for count in parts.values()]


def steps(reader: ControlReader, start: StepOffsets) -> list[tuple[StepOffsets, list[type[Message]]]]:
    """Plan steps as Spark does, until there is none; return each one's end and what it tells group 0."""
    reader.prepareForTriggerAvailableNow()
    done = []
    at = start.to_json()
    while (end := reader.latestOffset(at, ReadAllAvailable())) != at:
        assert reader.latestOffset(at, ReadAllAvailable()) == end  # Spark may ask again
        told = [part for part in reader.partitions(at, end) if isinstance(part, ControlSource)]
        read = [batch for part in told for batch in reader.read(part)]
        if told:  # the same task reads the records
            counts = [sum(batch.column("read").to_pylist()) for batch in read if "read" in batch.schema.names]
            assert sum(counts) == end["at"]["n"] - at["at"]["n"]
        batches = [batch.to_pandas() for batch in read if "read" not in batch.schema.names]
        done.append(
            (StepOffsets.of(end), [type(packet.message) for packet in read_packets(batches) if packet.key_group == 0])
        )
        at = end
    return done


@given(st.data(), st.booleans().map(int), st.booleans())
def test_the_end_is_told_once_after_all_of_it(data: st.DataObject, ends_told: int, is_apart: bool) -> None:  # noqa: FBT001
    last, step, begun, ends = (data.draw(st.integers(*span)) for span in ((0, 20), (1, 7), (0, 20), (0, 3)))
    losses = data.draw(st.integers(0, 2))
    lost = tuple(Loss(number, 0, 0, "gone") for number in range(losses))
    reader = ControlReader(
        Counter(last, step), StepOffsets({"n": 0}), 2, ends=ends if ends_told else None, ends_apart=is_apart
    )
    done = steps(reader, StepOffsets({"n": begun}, ends, lost))
    told = [kind for _, kinds in done for kind in kinds]
    assert told == [RecordsLost] * losses + [EndOfInput] * ends_told
    if done:
        assert done[-1][0] == StepOffsets({"n": max(last, begun)}, ends + ends_told)
    if ends_told:
        assert done[-1][1] == [EndOfInput]
        # with the last records, unless losses come with them or steps are prescribed
        reads = -(-max(0, last - begun) // step)
        is_alone = is_apart or reads <= bool(losses)
        assert len(done) == max(reads, bool(losses)) + is_alone
    if losses:
        assert done[0][1] == [RecordsLost] * losses


@pytest.mark.parametrize(
    ("waiting", "ends", "expected"),
    [(1100, 0, [1100]), (1101, 0, [1000, 1101]), (1100, None, [1000, 1100])],
)
def test_a_small_rest_is_read_by_the_last_step_of_a_bounded_run(
    waiting: int, ends: int | None, expected: list[int]
) -> None:
    reader, at, done = (
        ControlReader(Counter(waiting, 1), StepOffsets({"n": 0}), 2, ends=ends),
        StepOffsets({"n": 0}),
        [],
    )
    while (end := StepOffsets.of(reader.latestOffset(at.to_json(), ReadMaxRows(1000)))) != at:
        done.append(end.at["n"])
        at = end
    assert done == expected


@given(st.integers(0, 20), st.integers(1, 7), st.integers(0, 20))
def test_an_end_that_was_planned_before_counts_unless_records_have_come_since(last: int, step: int, begun: int) -> None:
    reader = ControlReader(Counter(last, step), StepOffsets({"n": 0}), 2, ends=1)
    told = [kind for _, kinds in steps(reader, StepOffsets({"n": begun}, ends=2)) for kind in kinds]
    assert told == [EndOfInput] * (last > begun)


@given(st.integers(1, 20), st.integers(1, 7), st.integers(0, 9), st.integers(0, 9))
def test_a_step_that_was_planned_before_is_planned_so_again(last: int, step: int, begun: int, length: int) -> None:
    begin, end = StepOffsets({"n": begun}, 1).to_json(), StepOffsets({"n": begun + length}, 1).to_json()
    reader = ControlReader(Counter(last, step), StepOffsets({"n": 0}), 2, ends=1, planned=(begin, end))
    assert reader.latestOffset(begin, ReadAllAvailable()) == end
    # and what follows as ever, also where that step has read nothing of this source
    others = steps(reader, StepOffsets.of(end))
    assert others[-1][0] == StepOffsets({"n": max(last, begun + length)}, 2)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "spend"
    folder.mkdir()
    return folder


def write(log: Path, *values: bytes) -> None:
    with (log / "partition-0.jsonl").open("ab") as file:
        file.writelines(value + b"\n" for value in values)


def told(sink: CollectSink) -> list[tuple[object, ...]]:
    """(epoch, op, pane, total) of all changes."""
    return [
        (epoch, row["op"], row["pane"], int(row["total"]))
        for epoch, output in sorted(sink.steps.items())
        for row in output.changes.to_pylist()
    ]


@pytest.mark.usefixtures("spark")
def test_what_comes_while_a_run_reads_comes_after_the_end_that_it_tells(log: Path, tmp_path: Path) -> None:
    write(log, record("A", 1), record("A", 2))
    sink = CollectSink()
    settings = RunSettings(tmp_path / "checkpoint", until_end=True, max_records=2)

    def grow(step: StepReport) -> None:
        if step.epoch == 0:
            write(log, record("A", 3), record("A", 4))

    StreamRun(as_graph(_over(log)), sink, settings).run(grow)
    assert told(sink) == [(0, "insert", "on_time", 2)]
    StreamRun(as_graph(_over(log)), sink, settings).run(lambda _: None)
    assert sorted(sink.steps) == [0, 1]
    assert [row for row in told(sink) if row[1] != "update_before"][1:] == [
        (1, "update_after", "late", 3),
        (1, "update_after", "late", 4),
    ]


class Dying(CollectSink):
    """Fails as it is given an epoch, once."""

    def __init__(self, epoch: int, failure: type[SinkError] = SinkError) -> None:
        super().__init__()
        self._epoch: int | None = epoch
        self._failure = failure

    def commit(self, epoch: int, *outputs: StepOutput) -> None:
        if epoch == self._epoch:
            self._epoch = None
            raise self._failure(DIED)
        super().commit(epoch, *outputs)


@pytest.mark.usefixtures("spark")
def test_an_end_that_was_planned_is_told_whoever_takes_the_step(log: Path, tmp_path: Path) -> None:
    """As its outputs may be in the tables already."""
    write(log, record("A", 1), record("A", 2))
    sink, settings = Dying(0), RunSettings(tmp_path / "checkpoint", until_end=True)
    with pytest.raises(SinkError, match=DIED):
        StreamRun(as_graph(_over(log)), sink, settings).run(lambda _: None)
    assert told(sink) == []
    write(log, record("A", 3))
    held = replace(_over(log), emit=Emit(lateness=main().emit.lateness, at_end="hold"))
    StreamRun(as_graph(held), sink, settings).run(lambda _: None)
    revised = [(1, "update_before", "late", 2), (1, "update_after", "late", 3)]
    assert told(sink) == [(0, "insert", "on_time", 2), *revised]


@pytest.mark.usefixtures("spark")
def test_an_end_that_is_taken_again_is_told_once(log: Path, tmp_path: Path) -> None:
    write(log, record("A", 1), record("A", 2))
    sink, tries = Dying(0, SinkUnavailableError), list[Fault]()
    settings = RunSettings(tmp_path / "checkpoint", until_end=True, on_trouble=tries.append)
    StreamRun(as_graph(_over(log)), sink, settings).run(lambda _: None)
    assert [(fault.partition(";")[0], fault.reason) for fault in tries] == [(DIED, "sink")]
    assert (sorted(sink.steps), told(sink)) == ([0], [(0, "insert", "on_time", 2)])


@pytest.mark.usefixtures("spark")
def test_an_end_that_was_not_planned_is_none_for_the_next_run(log: Path, tmp_path: Path) -> None:
    write(log, record("A", 1), record("A", 2))
    sink, settings = Dying(0), RunSettings(tmp_path / "checkpoint", until_end=True, max_records=1)
    with pytest.raises(SinkError, match=DIED):
        StreamRun(as_graph(_over(log)), sink, settings).run(lambda _: None)
    held = replace(_over(log), emit=Emit(lateness=main().emit.lateness, at_end="hold"))
    StreamRun(as_graph(held), sink, settings).run(lambda _: None)
    assert (sorted(sink.steps), told(sink)) == ([0, 1], [])


@pytest.mark.usefixtures("spark")
def test_a_step_that_another_process_notes_as_this_one_begins_is_taken_again(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one's tables were taken over before it could write the step."""
    held = replace(_over(log), emit=Emit(lateness=main().emit.lateness, at_end="hold"))
    write(log, record("A", 1), record("A", 2), record("A", 9))
    sink, folder = CollectSink(), tmp_path / "checkpoint"
    settings = RunSettings(folder, until_end=True, max_records=1, on_trouble=(tries := list[str]()).append)
    StreamRun(as_graph(held), sink, settings).run(lambda _: None)
    noted = shutil.copytree(folder / "spark", tmp_path / "noted")
    last = max(sink.steps)
    del sink.steps[last]
    for path in (folder / "spark/commits").glob(f"*{last}*"):
        path.unlink()

    def end_the_other(*_: object) -> None:
        shutil.copytree(noted, folder / "spark", dirs_exist_ok=True)

    monkeypatch.setattr("windrow.runtime.stream.run.preflight", end_the_other)
    write(log, record("A", 10))
    StreamRun(as_graph(held), sink, settings).run(lambda _: None)
    monkeypatch.undo()
    assert [text.partition(";")[0] for text in tries] == [BUSY]
    assert sorted(sink.steps) == [*range(last + 2)]
    alone = CollectSink()
    StreamRun(as_graph(held), alone, replace(settings, checkpoint=tmp_path / "alone")).run(lambda _: None)
    assert told(sink) == told(alone)


def _over(log: Path) -> Pipeline:
    return main(source=LogSource(str(log)))
