"""A file that is gone, was cut off, was changed or replaced is said to be so; one that grew is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windrow.connectors.cuts import StreamPlan
from windrow.connectors.log.retention import apply, plan_trim
from windrow.connectors.log.source import LogFolder, find_losses
from windrow.connectors.log.stream import LogStreamReader
from windrow.errors import RecordsLostError, SourceError

LINES = [b'{"user": "u%d"}\n' % number for number in range(60)]


@pytest.fixture
def folder(tmp_path: Path) -> LogFolder:
    for partition in (0, 1):
        (tmp_path / f"partition-{partition}.jsonl").write_bytes(b"".join(LINES[:50]))
    return LogFolder(tmp_path)


def stands(folder: LogFolder, max_records: int = 80) -> dict[str, dict[str, int]]:
    """Where a step of a stream ends, as it tells Spark."""
    reader = LogStreamReader(folder, StreamPlan(iter, {}, tasks=2, max_records=max_records))
    return reader.latestOffset({}, reader.getDefaultReadLimit())


def lost(folder: LogFolder, offset: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(loss.partition, loss.stood, loss.goes_on) for loss in find_losses(folder, offset).losses]


def test_a_file_that_grows_has_lost_nothing(folder: LogFolder) -> None:
    offset = stands(folder)
    with folder.file(0).open("ab") as file:
        file.write(b"".join(LINES[50:]))
    assert find_losses(folder, offset).losses == ()
    assert find_losses(folder, offset).offset == offset


@pytest.mark.parametrize(
    ("left", "goes_on", "what"),
    [
        (LINES[:7], 7, "was cut off"),  # it goes on behind what was read before
        ([*LINES[:7], b'{"user'], 7, "was cut off"),  # in a line
        ([LINES[0], b"{}\n", *LINES[2:50]], 40, "holds other bytes now"),
        ([], 0, "is another file now"),
        ([b"{}\n", *LINES], 0, "is another file now"),
        ([b"{}\n"], 0, "is another file now"),
        ([b'{"user": "uX"}\n', *LINES[1:50]], 0, "is another file now"),  # of the same length
        ([b'{"user": "uX"}\n', *LINES[1:]], 0, "is another file now"),
    ],
)
def test_a_file_that_is_not_what_it_was(folder: LogFolder, left: list[bytes], goes_on: int, what: str) -> None:
    offset = stands(folder)
    folder.file(0).write_bytes(b"".join(left))
    found = find_losses(folder, offset)
    [loss] = found.losses
    assert (loss.partition, loss.stood, loss.goes_on) == (0, 40, goes_on)
    assert loss.what == f"{folder.file(0)} {what}, read up to offset 40 (byte 630)"
    reader = LogStreamReader(folder, StreamPlan(iter, {}, tasks=1))
    parts = reader.partitions(found.offset, reader.latestOffset(found.offset, reader.getDefaultReadLimit()))
    batches = [batch for part in parts for batch in reader.read(part) if batch["partition"][0].as_py() == 0]
    read = [value for batch in batches for value in batch["value"].to_pylist()]
    assert read == [line.rstrip(b"\n") for line in left[goes_on:] if line.endswith(b"\n")]


def test_a_file_that_is_gone_and_comes_back(folder: LogFolder) -> None:
    offset = stands(folder)
    folder.file(1).unlink()
    found = find_losses(folder, offset)
    assert [(loss.partition, loss.stood, loss.goes_on) for loss in found.losses] == [(1, 40, 0)]
    assert "is gone, read up to offset 40" in found.losses[0].what
    assert found.offset == {"0": offset["0"]}
    folder.file(1).write_bytes(LINES[0])
    assert lost(folder, found.offset) == []


def test_an_offset_of_before_there_were_heads(folder: LogFolder) -> None:
    """Nothing says that the file begins as it did, so it is read as another one."""
    offset = {"0": {name: value for name, value in stands(folder)["0"].items() if name != "head"}}
    assert lost(folder, offset) == []
    folder.file(0).write_bytes(b"".join(LINES[:7]))
    assert lost(folder, offset) == [(0, 40, 0)]


def test_another_first_line_is_noticed_while_the_log_is_read(folder: LogFolder) -> None:
    offset = stands(folder)
    folder.file(0).write_bytes(b"".join([b'{"user": "uX"}\n', *LINES[1:]]))
    reader = LogStreamReader(folder, StreamPlan(iter, offset, tasks=2))
    with pytest.raises(RecordsLostError, match=r"partition 0 .* up to offset 40 .*its first line has changed"):
        reader.latestOffset(offset, reader.getDefaultReadLimit())


def test_a_log_that_was_trimmed_or_compacted_begins_as_it_did(folder: LogFolder) -> None:
    offset = stands(folder)
    apply(folder, plan_trim(folder, offsets={0: 30})[0])
    assert find_losses(folder, offset).losses == ()
    kept = folder.file(0).read_bytes()
    folder.file(0).write_bytes(b'{"user": "uX"}\n' + kept[len(LINES[0]) :])
    with pytest.raises(SourceError, match=r"belongs to a former partition-0\.jsonl"):
        find_losses(folder, offset)
