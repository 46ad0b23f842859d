"""What holds for every source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.connectors.streaming import DDL, Stream, raw, records

from windrow.connectors.kafka.source import preflight
from windrow.connectors.log import retention
from windrow.connectors.log.source import LogFolder
from windrow.connectors.open_sources import open_source
from windrow.engine.schema import RAW
from windrow.errors import InputError, SourceError, WindrowError
from windrow.model import FileSource, FilesSource, KafkaSource, LogSource, PostgresCdcSource, Source
from windrow.testing.servers.kafka import Kafka


class Log(Protocol):
    """A log; `at` returns the offset of the record of a partition before which are so many that are there."""

    source: Source

    def at(self, number: int) -> int: ...
    def append(self, partition: int, values: list[bytes]) -> None: ...
    def grow(self, total: int) -> None: ...


class Files:
    """An embedded log."""

    def __init__(self, path: Path, partitions: int) -> None:
        self.source: Source = LogSource(str(path))
        self._path = path
        path.mkdir()
        self.grow(partitions)

    def at(self, number: int) -> int:
        return number

    def append(self, partition: int, values: list[bytes]) -> None:
        with (self._path / f"partition-{partition}.jsonl").open("ab") as file:
            file.writelines(value + b"\n" for value in values)

    def grow(self, total: int) -> None:
        for partition in range(total):
            self.append(partition, [])


class TrimmedFiles(Files):
    """An embedded log whose first records are trimmed."""

    def at(self, number: int) -> int:
        return 7 + number

    def grow(self, total: int) -> None:
        for partition in range(total):
            file = self._path / f"partition-{partition}.jsonl"
            if not file.exists():
                # made elsewhere, as a run may read meanwhile
                made = Files(self._path.with_name(f"draft-{partition}"), partition + 1)
                made.append(partition, [b"%d" % number * 2_000 for number in range(7)])
                draft = LogFolder(made._path)  # noqa: SLF001 - of a class of this file
                for change in retention.plan_trim(draft, offsets={partition: 7}):
                    retention.apply(draft, change)
                for name in (f"{file.stem}.kept.json", file.name):
                    (draft.path / name).rename(self._path / name)


class CompactedFiles(Files):
    """An embedded log in which the first of each two records was compacted away."""

    def at(self, number: int) -> int:
        return 2 * number + 1

    def append(self, partition: int, values: list[bytes]) -> None:
        super().append(partition, [value for value in values for _ in range(2)])
        folder = LogFolder(self._path)
        change = retention.plan_compact(folder, ["n"], active=0, tombstones_before=0, partition=partition)
        if change is not None:
            retention.apply(folder, change)


class NamedFiles:
    """Files of which each append writes one."""

    def __init__(self, path: Path, partitions: int) -> None:
        self.source: Source = FilesSource(tuple(str(path / str(one) / "**" / "*.jsonl") for one in range(partitions)))
        self._path = path
        self._files = 0
        self.grow(partitions)

    def at(self, number: int) -> int:
        return number

    def append(self, partition: int, values: list[bytes]) -> None:
        self._files += 1
        file = self._path / str(partition) / f"{self._files:03}" / "records.jsonl"
        file.parent.mkdir(parents=True)
        file.with_suffix(".draft").write_bytes(b"\n".join(values))  # the last line needs no newline
        file.with_suffix(".draft").rename(file)

    def grow(self, total: int) -> None:
        for partition in range(total):
            (self._path / str(partition)).mkdir(parents=True, exist_ok=True)


class Topic:
    def __init__(self, kafka: Kafka, name: str) -> None:
        self.source: Source = KafkaSource(kafka.servers, name)
        self._kafka = kafka
        self._name = name

    def at(self, number: int) -> int:
        return number

    def append(self, partition: int, values: list[bytes]) -> None:
        self._kafka.produce(self._name, partition, values)

    def grow(self, total: int) -> None:
        self._kafka.add_partitions(self._name, total)


ON_DISK: dict[str, Callable[[Path, int], Log]] = {
    "log": Files,
    "trimmed log": TrimmedFiles,
    "compacted log": CompactedFiles,
    "files": NamedFiles,
}


@pytest.fixture(params=[*ON_DISK, pytest.param("kafka", marks=pytest.mark.service)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], Log]:
    if request.param in ON_DISK:
        return lambda partitions: ON_DISK[request.param](tmp_path / "log", partitions)
    kafka: Kafka = request.getfixturevalue("kafka")
    topic: Callable[..., str] = request.getfixturevalue("topic")
    return lambda partitions: Topic(kafka, topic(partitions))


mostly_plain = pytest.mark.parametrize(
    "make",
    [
        "log",
        pytest.param("kafka", marks=pytest.mark.service),
        *(pytest.param(name, marks=pytest.mark.long) for name in ON_DISK if name != "log"),
    ],
    indirect=True,
)
"""For what Spark does with the steps of a log, whose records are other ones only in `make test-long`."""


def numbers(first: int, last: int) -> list[bytes]:
    return [b'{"n": %d}' % n for n in range(first, last)]


def numbered(first: int, last: int) -> list[tuple[int, bytes | None]]:
    return list(zip(range(first, last), numbers(first, last), strict=True))


def rows_of(log: Log, first: int, last: int) -> list[tuple[int, bytes | None]]:
    return [(log.at(number), value) for number, value in numbered(first, last)]


def test_all_records_are_read_in_the_order_of_their_partitions(make: Callable[[int], Log]) -> None:
    log = make(3)
    log.append(0, numbers(0, 5000))
    log.append(2, numbers(0, 7))
    source = open_source(log.source)
    assert source.partitions() == [0, 1, 2]
    batches = list(source.read_all())
    assert all(batch.schema.equals(RAW) for batch in batches)
    assert records(batches) == {0: rows_of(log, 0, 5000), 2: rows_of(log, 0, 7)}


def test_an_empty_log_is_read_to_its_end(make: Callable[[int], Log]) -> None:
    assert list(open_source(make(2).source).read_all()) == []


def test_a_stream_reads_what_is_there_and_goes_on_from_its_checkpoint(
    make: Callable[[int], Log], spark: SparkSession, tmp_path: Path
) -> None:
    log = make(3)
    log.append(0, numbers(0, 40))
    log.append(2, numbers(0, 3))
    frame = raw(open_source(log.source), spark)
    assert frame.columns == RAW.names
    [step] = Stream(frame, tmp_path / "checkpoint").run()
    assert records([step]) == {0: rows_of(log, 0, 40), 2: rows_of(log, 0, 3)}
    log.append(0, numbers(40, 41))
    log.append(1, numbers(0, 2))
    [step] = Stream(raw(open_source(log.source), spark), tmp_path / "checkpoint").run()
    assert records([step]) == {0: rows_of(log, 40, 41), 1: rows_of(log, 0, 2)}


@mostly_plain
def test_a_step_holds_at_most_so_many_records(make: Callable[[int], Log], spark: SparkSession, tmp_path: Path) -> None:
    log = make(3)
    log.append(0, numbers(0, 50))
    log.append(1, numbers(0, 50))
    steps = Stream(raw(open_source(log.source), spark, max_records=30), tmp_path / "checkpoint").run()
    assert [step.num_rows for step in steps] == [30, 30, 30, 10]
    assert all(set(records([step])) == {0, 1} for step in steps)
    assert records(steps) == {0: rows_of(log, 0, 50), 1: rows_of(log, 0, 50)}


@mostly_plain
def test_a_partition_is_one_task_in_a_step(make: Callable[[int], Log], spark: SparkSession, tmp_path: Path) -> None:
    log = make(2)
    log.append(0, numbers(0, 20_000))
    log.append(1, numbers(0, 10))
    frame = raw(open_source(log.source), spark).selectExpr(
        "partition", "offset", "value", "spark_partition_id() as task"
    )
    [step] = Stream(frame, tmp_path / "checkpoint").run()
    pairs = {tuple(row.values()) for row in step.select(["partition", "task"]).to_pylist()}
    assert len(pairs) == 2
    assert records([step])[0] == rows_of(log, 0, 20_000)


@mostly_plain
def test_a_partition_that_appears_while_it_runs_is_read(
    make: Callable[[int], Log], spark: SparkSession, tmp_path: Path
) -> None:
    log = make(1)
    if isinstance(log, TrimmedFiles):
        pytest.skip("what is trimmed before a run has seen its partition is lost")
    if isinstance(log, NamedFiles):
        pytest.skip("the pipeline says how many partitions there are")
    log.append(0, numbers(0, 2))

    def play(query: object) -> None:
        query.processAllAvailable()  # type: ignore[attr-defined]
        log.grow(3)
        log.append(2, numbers(0, 4))
        log.append(0, numbers(2, 3))

    steps = Stream(raw(open_source(log.source), spark), tmp_path / "checkpoint").live(play)
    assert records(steps) == {0: rows_of(log, 0, 3), 2: rows_of(log, 0, 4)}
    assert open_source(log.source).partitions() == [0, 1, 2]


def test_a_stream_begins_where_it_is_told_to(make: Callable[[int], Log], spark: SparkSession, tmp_path: Path) -> None:
    log = make(3)
    log.append(0, numbers(0, 40))
    log.append(1, numbers(0, 5))
    log.append(2, numbers(0, 3))
    begin = open_source(log.source).beginning({0: log.at(30), 2: log.at(2) + 1})
    frame = raw(open_source(log.source), spark, begin=begin)
    [step] = Stream(frame, tmp_path / "checkpoint").run()
    assert records([step]) == {0: rows_of(log, 30, 40), 1: rows_of(log, 0, 5)}
    log.append(2, numbers(3, 5))
    frame = raw(open_source(log.source), spark, begin=begin)
    assert records(Stream(frame, tmp_path / "checkpoint").run()) == {2: rows_of(log, 3, 5)}


def test_a_range_is_read_in_order_a_partition_a_task(make: Callable[[int], Log], spark: SparkSession) -> None:
    log = make(4)
    log.append(0, numbers(0, 20_000))
    log.append(1, numbers(0, 9))
    log.append(2, numbers(0, 3))
    source = open_source(log.source)
    ends = source.ends()
    numbers_of = {0: 20_000, 1: 9, 2: 3, 3: 0}
    first = {partition: first for partition, (first, _) in ends.items()}
    assert ends == {partition: (first[partition], log.at(number - 1) + 1) for partition, number in numbers_of.items()}
    log.append(1, numbers(9, 12))

    def same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert batch.schema.names == RAW.names
            yield batch

    whole = source.batch(spark, {}, {partition: end for partition, (_, end) in ends.items()}, same, DDL)
    found = whole.selectExpr("*", "spark_partition_id() as task").toArrow()
    assert records([found]) == {0: rows_of(log, 0, 20_000), 1: rows_of(log, 0, 9), 2: rows_of(log, 0, 3)}
    assert len({tuple(row.values()) for row in found.select(["partition", "task"]).to_pylist()}) == 3
    part = source.batch(
        spark, {0: log.at(50), 1: log.at(3), 2: log.at(2) + 1}, {0: log.at(1000), 2: log.at(2) + 1}, same, DDL
    ).toArrow()
    assert records([part]) == {0: rows_of(log, 50, 1000)}
    assert source.batch(spark, {1: log.at(2)}, {1: log.at(2)}, same, DDL).toArrow().num_rows == 0


NOT_THERE: list[tuple[Source, type[WindrowError]]] = [
    (LogSource("/nowhere/at/all"), InputError),
    (FilesSource(("/nowhere/at/all/*.jsonl",)), InputError),
    (FileSource("rates.csv", ("currency",), "/nowhere/at/all"), InputError),
    (PostgresCdcSource("postgresql://nobody@127.0.0.1:1/shop", "orders", LogSource("/nowhere/at/all")), InputError),
    (KafkaSource("127.0.0.1:1", "spend"), SourceError),
    (PostgresCdcSource("postgresql://nobody@127.0.0.1:1/shop", "orders", KafkaSource("127.0.0.1:1", "o")), SourceError),
]


@pytest.mark.parametrize(("source", "error"), NOT_THERE)
def test_a_source_that_is_not_there_is_named(
    source: Source, error: type[WindrowError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windrow.connectors.kafka.source.preflight", partial(preflight, timeout=1.0))
    log = source.records
    place = log.servers if isinstance(log, KafkaSource) else "/nowhere/at/all"
    with pytest.raises(error, match=place):
        open_source(source).partitions()
