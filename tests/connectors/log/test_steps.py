"""Where steps end: what the streaming reader tells Spark, without a Spark session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from windrow.connectors.cuts import Cut, StreamPlan
from windrow.connectors.log.folder import LogFolder
from windrow.connectors.log.stream import LogStreamReader
from windrow.errors import SourceError


def append(path: Path, partition: int, lines: int, text: bytes = b"line\n") -> None:
    with (path / f"partition-{partition}.jsonl").open("ab") as file:
        file.write(text * lines)


def steps(
    reader: LogStreamReader, limit: ReadLimit | None = None, start: dict[str, Any] | None = None
) -> list[dict[int, int]]:
    """The next offsets at the end of each step, until nothing is left."""
    limit = reader.getDefaultReadLimit() if limit is None else limit
    at, ends = reader.initialOffset() if start is None else start, []
    while (end := reader.latestOffset(at, limit)) != at:
        ends.append({int(partition): place["line"] for partition, place in end.items()})
        at = end
    return ends


def reader(path: Path, max_records: int | None = None, cuts: Sequence[Cut] = ()) -> LogStreamReader:
    return LogStreamReader(LogFolder(path), StreamPlan(iter, {}, tasks=2, max_records=max_records, cuts=cuts))


def test_without_a_limit_all_is_one_step(tmp_path: Path) -> None:
    append(tmp_path, 0, 3)
    append(tmp_path, 10, 0)
    append(tmp_path, 2, 5)
    assert steps(reader(tmp_path)) == [{0: 3, 2: 5}]


def test_partitions_share_a_limit_and_take_what_others_leave(tmp_path: Path) -> None:
    append(tmp_path, 0, 2)
    append(tmp_path, 1, 30)
    append(tmp_path, 2, 9)
    assert steps(reader(tmp_path, 12)) == [
        {0: 1, 1: 8, 2: 3},  # one each, and the other nine by what there is
        {0: 2, 1: 16, 2: 6},
        {0: 2, 1: 25, 2: 9},
        {0: 2, 1: 30, 2: 9},
    ]


def test_a_limit_below_the_number_of_partitions_still_moves(tmp_path: Path) -> None:
    for partition in range(3):
        append(tmp_path, partition, 2)
    assert steps(reader(tmp_path, 2)) == [
        {0: 1, 1: 1, 2: 1},
        {0: 2, 1: 2, 2: 2},
    ]


def test_the_engine_may_ask_for_all(tmp_path: Path) -> None:
    append(tmp_path, 0, 5)
    assert reader(tmp_path, 2).getDefaultReadLimit() == ReadMaxRows(2)
    assert steps(reader(tmp_path, 2), ReadAllAvailable()) == [{0: 5}]


def test_cuts_prescribe_the_steps_and_then_comes_the_rest(tmp_path: Path) -> None:
    append(tmp_path, 0, 5)
    append(tmp_path, 1, 4)
    cuts = [{0: 1}, {1: 2}, {1: 2}, {0: 1, 1: 3}, {0: 4}]
    assert steps(reader(tmp_path, cuts=cuts)) == [
        {0: 1},
        {0: 1, 1: 2},
        {0: 1, 1: 3},
        {0: 4, 1: 3},
        {0: 5, 1: 4},
    ]


def test_a_cut_waits_for_its_records(tmp_path: Path) -> None:
    append(tmp_path, 0, 2)
    tail = reader(tmp_path, cuts=[{0: 3}, {1: 1}])
    assert steps(tail) == [{0: 2}]
    append(tmp_path, 1, 1)
    at = tail.latestOffset({}, ReadAllAvailable())
    assert steps(tail, start=at) == []
    append(tmp_path, 0, 2)
    assert steps(tail, start=at) == [{0: 3}, {0: 3, 1: 1}, {0: 4, 1: 1}]


def test_what_comes_after_the_beginning_of_a_bounded_run_is_left(tmp_path: Path) -> None:
    append(tmp_path, 0, 5)
    append(tmp_path, 0, 1, b"half")
    bounded = reader(tmp_path, 2)
    bounded.prepareForTriggerAvailableNow()
    append(tmp_path, 0, 3)
    append(tmp_path, 1, 3)
    assert steps(bounded) == [{0: 2}, {0: 4}, {0: 5}]


def test_half_a_line_is_not_a_step(tmp_path: Path) -> None:
    append(tmp_path, 0, 1, b"half")
    tail = reader(tmp_path)
    assert steps(tail) == []
    assert steps(tail) == []
    append(tmp_path, 0, 1, b" and half\n")
    assert steps(tail) == [{0: 1}]


def test_a_step_is_planned_as_one_range_a_partition_that_moved(tmp_path: Path) -> None:
    append(tmp_path, 0, 2)
    append(tmp_path, 1, 3)
    tail = reader(tmp_path)
    first = tail.latestOffset({}, ReadAllAvailable())
    append(tmp_path, 1, 2)
    second = tail.latestOffset(first, ReadAllAvailable())
    assert tail.partitions(second, second) == []
    [part] = tail.partitions(first, second)
    assert [batch["offset"].to_pylist() for batch in tail.read(part)] == [[3, 4]]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.write_bytes(b"line\n"), "it has only 5 bytes now"),
        (lambda file: file.write_bytes(b"LINE\nlines\n"), "no line ends at byte 10 now"),
        (lambda file: file.write_bytes(b"LINE\nLINE\nline\n"), "the bytes before that position have changed"),
        (lambda file: file.unlink(), "it is gone"),
    ],
)
@pytest.mark.parametrize("restarted", [True, False])
def test_a_log_that_lost_what_was_read_stops_the_stream(
    tmp_path: Path, damage: object, message: str, *, restarted: bool
) -> None:
    append(tmp_path, 0, 2)
    append(tmp_path, 1, 1)
    tail = reader(tmp_path)
    at = tail.latestOffset({}, ReadAllAvailable())
    damage(tmp_path / "partition-0.jsonl")  # type: ignore[operator]
    tail = reader(tmp_path) if restarted else tail
    with pytest.raises(SourceError, match=rf"partition 0 .* was read up to offset 2 \(byte 10\), and {message}"):
        tail.latestOffset(at, ReadAllAvailable())


def test_a_log_that_is_gone_stops_the_stream(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no log folder"):
        reader(tmp_path / "gone").latestOffset({}, ReadAllAvailable())


def test_a_step_of_growing_records_has_about_as_many_bytes_as_it_may(tmp_path: Path) -> None:
    sizes = [100] * 1000 + [10_000] * 100 + [1_000_000] * 3
    with (tmp_path / "partition-0.jsonl").open("wb") as file:
        file.writelines(b"x" * (size - 1) + b"\n" for size in sizes)
    plan = StreamPlan(iter, {}, tasks=2, max_records=100_000, max_bytes=200_000)
    ends = [end[0] for end in steps(LogStreamReader(LogFolder(tmp_path), plan))]
    read = [sum(sizes[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]
    assert ends[-1] == len(sizes)
    # full steps, and each record above the limit alone
    assert read == [100_000 + 100_000, *[200_000] * 4, 100_000, *[1_000_000] * 3]


def test_partitions_share_the_bytes_of_a_step(tmp_path: Path) -> None:
    append(tmp_path, 0, 100, b"x" * 99 + b"\n")
    append(tmp_path, 1, 300, b"x" * 99 + b"\n")
    plan = StreamPlan(iter, {}, tasks=2, max_records=100_000, max_bytes=4_000)
    first, *_, last = steps(LogStreamReader(LogFolder(tmp_path), plan))
    assert first == {0: 10, 1: 29}
    assert last == {0: 100, 1: 300}


def test_a_long_line_that_is_not_complete_is_no_step(tmp_path: Path) -> None:
    append(tmp_path, 0, 1, b"x" * 1000)
    plan = StreamPlan(iter, {}, tasks=2, max_records=10, max_bytes=100)
    assert steps(LogStreamReader(LogFolder(tmp_path), plan)) == []
