"""Several sources as one log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.connectors.streaming import DDL, Records, Stream, raw, records
from tests.connectors.test_source_contract import Files, numbered, numbers

from windrow.connectors.open_sources import open_source
from windrow.connectors.several import SeveralLogs
from windrow.errors import InputError
from windrow.model import MAX_PARTITIONS

SECOND = MAX_PARTITIONS
"""The number of the first partition of the second log."""


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Files, Files]:
    return Files(tmp_path / "a", 2), Files(tmp_path / "b", 1)


def both(logs: tuple[Files, Files]) -> SeveralLogs:
    a, b = logs
    return SeveralLogs({"first": open_source(a.source), "second": open_source(b.source)})


def test_partitions_have_numbers_of_their_own(logs: tuple[Files, Files], tmp_path: Path) -> None:
    a, b = logs
    a.append(1, numbers(0, 3))
    b.append(0, [*numbers(0, 2), b"{"])
    source = both(logs)
    assert source.name == f"{tmp_path / 'a'}, {tmp_path / 'b'}"
    assert source.partitions() == [0, 1, SECOND]
    assert source.ends() == {0: (0, 0), 1: (0, 3), SECOND: (0, 3)}
    assert records(source.read_all()) == {1: numbered(0, 3), SECOND: [*numbered(0, 2), (2, b"{")]}
    with (tmp_path / "b" / "partition-0.jsonl").open("ab") as file:
        file.write(b"half")
    assert source.incomplete() == [str(tmp_path / "b" / "partition-0.jsonl")]
    assert source.identity() is None


def test_a_source_of_several_has_not_too_many_partitions(logs: tuple[Files, Files], tmp_path: Path) -> None:
    (tmp_path / "b" / f"partition-{MAX_PARTITIONS}.jsonl").touch()
    with pytest.raises(InputError, match=rf"partition {MAX_PARTITIONS} of second: .* at most {MAX_PARTITIONS}"):
        both(logs).partitions()


def test_a_stream_reads_them_abreast_and_goes_on(
    logs: tuple[Files, Files], spark: SparkSession, tmp_path: Path
) -> None:
    a, b = logs
    a.append(0, numbers(0, 60))
    # lines of another length
    b.append(0, [value.replace(b"}", b', "more": "%s"}' % (b"x" * 200)) for value in numbers(0, 30)])
    steps = Stream(raw(both(logs), spark, max_records=30), tmp_path / "checkpoint").run()
    assert [step.num_rows for step in steps[:2]] == [30, 30]
    assert all(step.num_rows <= 30 for step in steps)
    # two of three are in the first
    assert all(abs(len(records([step])[0]) - 20) < 3 for step in steps[:2])
    assert {number: len(rows) for number, rows in records(steps).items()} == {0: 60, SECOND: 30}
    b.append(0, numbers(30, 32))
    [step] = Stream(raw(both(logs), spark), tmp_path / "checkpoint").run()
    assert records([step]) == {SECOND: numbered(30, 32)}


def test_a_stream_begins_where_it_is_told_to(logs: tuple[Files, Files], spark: SparkSession, tmp_path: Path) -> None:
    a, b = logs
    a.append(1, numbers(0, 9))
    b.append(0, numbers(0, 5))
    begin = both(logs).beginning({1: 7, SECOND: 3})
    steps = Stream(raw(both(logs), spark, begin=begin), tmp_path / "checkpoint").run()
    assert records(steps) == {1: numbered(7, 9), SECOND: numbered(3, 5)}


def test_a_partition_is_one_task_in_a_step(logs: tuple[Files, Files], spark: SparkSession, tmp_path: Path) -> None:
    for log, partition in ((logs[0], 0), (logs[0], 1), (logs[1], 0)):
        log.append(partition, numbers(0, 5000))
    frame = raw(both(logs), spark).selectExpr("partition", "offset", "value", "spark_partition_id() as task")
    [step] = Stream(frame, tmp_path / "checkpoint").run()
    pairs = {tuple(row.values()) for row in step.select(["partition", "task"]).to_pylist()}
    assert (len(pairs), len({task for _, task in pairs})) == (3, 2)
    assert records([step]) == dict.fromkeys((0, 1, SECOND), numbered(0, 5000))


def test_a_range_is_read(logs: tuple[Files, Files], spark: SparkSession) -> None:
    logs[0].append(0, numbers(0, 9))
    logs[1].append(0, numbers(0, 9))

    def read(begin: dict[int, int], end: dict[int, int]) -> Records:
        return records([both(logs).batch(spark, begin, end, same, DDL).toArrow()])

    assert read({}, {0: 9, 1: 0, SECOND: 9}) == {0: numbered(0, 9), SECOND: numbered(0, 9)}
    assert read({0: 2, SECOND: 8}, {0: 4, SECOND: 9}) == {0: numbered(2, 4), SECOND: numbered(8, 9)}
    assert read({}, {SECOND: 1}) == {SECOND: numbered(0, 1)}
    assert read({0: 2, SECOND: 8}, {0: 2, SECOND: 8}) == {}


def same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def test_losses_name_the_source(logs: tuple[Files, Files], tmp_path: Path) -> None:
    a, b = logs
    a.append(0, numbers(0, 4))
    b.append(0, numbers(0, 4))
    source = both(logs)
    at = source.beginning({0: 4, SECOND: 4})
    assert source.find_losses(at, None).losses == ()
    (tmp_path / "b" / "partition-0.jsonl").unlink()
    b.append(0, numbers(100, 101))
    found = source.find_losses(at, None)
    [loss] = found.losses
    assert (loss.partition, loss.stood, loss.goes_on) == (SECOND, 4, 0)
    assert str(loss).startswith("partition second/0: ")
    assert found.offset == source.beginning({0: 4})
