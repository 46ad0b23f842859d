from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.connectors.log import folder
from windrow.connectors.log.source import START, EmbeddedLog, LogFolder, Position
from windrow.connectors.open_sources import open_source
from windrow.engine.schema import RAW
from windrow.errors import InputError, SourceError
from windrow.model import LogSource


def write(path: Path, partition: int, data: bytes) -> None:
    (path / f"partition-{partition}.jsonl").write_bytes(data)


def values(log: LogFolder, partition: int, start: Position = START, end: Position | None = None) -> list[bytes]:
    return [value for batch in log.read(partition, start, end) for value in batch["value"].to_pylist()]


def test_partitions_come_in_numeric_order_and_other_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("partition-10.jsonl", "partition-2.jsonl", "README.md", "partition-1.jsonl.tmp"):
        (tmp_path / name).touch()
    assert LogFolder(tmp_path).partitions() == [2, 10]


def test_a_line_is_a_record_with_its_exact_bytes(tmp_path: Path) -> None:
    write(tmp_path, 3, b'{"a":1}\r\n\n\xff\x00\n{"half')
    [batch] = LogFolder(tmp_path).read(3)
    assert batch.schema.equals(RAW)
    assert batch.to_pydict() == {
        "partition": [3, 3, 3],
        "offset": [0, 1, 2],
        "log_time": [None, None, None],
        "key": [None, None, None],
        "value": [b'{"a":1}\r', b"", b"\xff\x00"],
    }


def test_a_log_without_records_is_a_log(tmp_path: Path) -> None:
    write(tmp_path, 0, b"")
    write(tmp_path, 1, b"not whole")
    assert open_source(LogSource(str(tmp_path))).partitions() == [0, 1]
    assert list(open_source(LogSource(str(tmp_path))).read_all()) == []


@given(
    data=st.lists(st.sampled_from([b"", b"\n", b"x", b"yz\n", b"\r", b"long" * 9])).map(b"".join),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 4)),
    span=st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
@settings(deadline=None)
def test_reading_is_splitting_at_newlines_whatever_the_blocks(
    data: bytes, sizes: tuple[int, int], span: tuple[int, int]
) -> None:
    start, most = span
    expected = data.split(b"\n")[:-1]
    with TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "BLOCK", sizes[0])
        patch.setattr(folder, "BATCH_ROWS", sizes[1])
        write(Path(path), 0, data)
        log = LogFolder(path)
        assert log.scan(0).line == len(expected)
        assert values(log, 0) == expected
        begin = log.scan(0, max_lines=start)
        end = log.scan(0, begin, max_lines=most)
        assert values(log, 0, begin, end) == expected[start : start + most]
        offsets = [offset for batch in log.read(0, begin, end) for offset in batch["offset"].to_pylist()]
        assert offsets == list(range(len(expected)))[start : start + most]


def test_ends_follow_files_that_grow_shrink_come_and_go(tmp_path: Path) -> None:
    log = EmbeddedLog(LogSource(str(tmp_path)))
    for data, count in ((b"a\nb\nc", 2), (b"a\nb\nc\nd\n", 4), (b"a\n", 1), (b"", 0), (b"a\nb\n", 2)):
        write(tmp_path, 0, data)
        assert log.ends() == {0: (0, count)}
    write(tmp_path, 3, b"a\n")
    assert log.ends() == {0: (0, 2), 3: (0, 1)}
    (tmp_path / "partition-0.jsonl").unlink()
    assert log.ends() == {3: (0, 1)}


def test_lines_that_end_behind_a_byte_are_not_taken(tmp_path: Path) -> None:
    write(tmp_path, 0, b"one\ntwo\nthree\n")
    log = LogFolder(tmp_path)
    assert log.scan(0, max_byte=7) == Position(1, 4)
    assert log.scan(0, max_byte=8) == Position(2, 8)


def test_a_line_is_not_there_until_its_newline_is(tmp_path: Path) -> None:
    write(tmp_path, 0, b"one\ntw")
    log = LogFolder(tmp_path)
    first = log.scan(0)
    assert first == Position(1, 4)
    with log.file(0).open("ab") as file:
        file.write(b"o\nthree\n")
    assert values(log, 0, first) == [b"two", b"three"]


def test_a_line_can_be_longer_than_a_block_but_not_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = b"x" * (3 * folder.BLOCK + 5)
    write(tmp_path, 0, b"a\n" + long + b"\nb\n")
    assert values(LogFolder(tmp_path), 0) == [b"a", long, b"b"]
    monkeypatch.setattr(folder, "MAX_LINE", folder.BLOCK)
    with pytest.raises(SourceError, match=r"partition-0\.jsonl has a line of more than"):
        values(LogFolder(tmp_path), 0)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no log folder"):
        LogFolder(tmp_path / "nowhere").partitions()


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "spend").touch()
    with pytest.raises(InputError, match="is not a folder"):
        LogFolder(tmp_path / "spend").partitions()


def test_a_folder_without_partitions_is_not_a_log(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").touch()
    with pytest.raises(InputError, match=r"is not a log: it has no partition-0\.jsonl"):
        LogFolder(tmp_path).partitions()


@pytest.mark.parametrize("name", ["partition-01.jsonl", "partition--1.jsonl", "partition-a.jsonl"])
def test_a_name_that_is_nearly_a_partition_is_not_passed_over(tmp_path: Path, name: str) -> None:
    write(tmp_path, 0, b"")
    (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"is not the name of a partition: partition-N\.jsonl"):
        LogFolder(tmp_path).partitions()


def test_a_partition_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "partition-0.jsonl").mkdir()
    with pytest.raises(InputError, match=r"partition-0\.jsonl is not a file"):
        LogFolder(tmp_path).partitions()


AS_NOBODY = """
import json, os, sys
from windrow.errors import SourceError
from windrow.model import LogSource
from windrow.connectors.open_sources import open_source
from windrow.connectors.log.source import LogFolder
if os.geteuid() == 0:
    os.setuid(65534)
try:
    open_source(LogSource(sys.argv[1])).partitions()
except SourceError as exc:
    print(exc)
"""


@pytest.mark.parametrize("closed", ["", "partition-0.jsonl"])
def test_without_permission(tmp_path: Path, closed: str) -> None:
    # up to pytest's own folder, below which each of several processes has one
    above = list(takewhile(lambda folder_: folder_ != Path(tempfile.gettempdir()), tmp_path.parents))
    for folder_ in (tmp_path, *above):
        folder_.chmod(0o755)
    write(tmp_path, 0, b"{}\n")
    (tmp_path / closed).chmod(0)
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, str(tmp_path)], capture_output=True, text=True, check=False)
    (tmp_path / closed).chmod(0o755)
    assert done.stderr == ""
    assert "Permission denied" in done.stdout
    assert str(tmp_path / closed) in done.stdout


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"{}\n", r"partition 0 .* was read up to offset 2 \(byte 6\), and it has only 3 bytes now"),
        (b"{.....}\n{}\n", "no line ends at byte 6 now"),
    ],
)
def test_a_log_that_lost_records_says_which(tmp_path: Path, damage: bytes, message: str) -> None:
    write(tmp_path, 0, b"{}\n{}\n")
    log = LogFolder(tmp_path)
    at = log.scan(0)
    write(tmp_path, 0, damage)
    with pytest.raises(SourceError, match=message):
        log.scan(0, at)
    with pytest.raises(SourceError, match="the log lost records"):
        values(log, 0, at)


def test_a_partition_that_is_gone(tmp_path: Path) -> None:
    write(tmp_path, 0, b"{}\n")
    log = LogFolder(tmp_path)
    at = log.scan(0)
    log.file(0).unlink()
    with pytest.raises(SourceError, match=r"was read up to offset 1 .*, and it is gone"):
        values(log, 0, at)


def test_a_file_that_was_replaced_is_seen_by_its_bytes(tmp_path: Path) -> None:
    write(tmp_path, 0, b'{"n":1}\n{"n":2}\n')
    log = LogFolder(tmp_path)
    at = log.scan(0)
    mark = log.mark(0, at)
    write(tmp_path, 0, b'{"n":1}\n{"n":2}\n{"n":3}\n')
    log.verify(0, at, mark)
    write(tmp_path, 0, b'{"n":1}\n{"n":9}\n{"n":3}\n')
    with pytest.raises(SourceError, match="the bytes before that position have changed"):
        log.verify(0, at, mark)


def test_other_lines_between_two_positions_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, 0, b"a\nb\nc\n")
    log = LogFolder(tmp_path)
    end = log.scan(0)
    write(tmp_path, 0, b"a\nbbb\n")
    with pytest.raises(SourceError, match="it has 2 lines in the first 6 bytes"):
        values(log, 0, START, end)


def test_a_million_lines(tmp_path: Path) -> None:
    line = json.dumps({"user": "u1", "t": 1_700_000_000_000}).encode() + b"\n"
    write(tmp_path, 0, line * 1_000_000)
    table = pa.Table.from_batches(LogFolder(tmp_path).read(0))
    assert table.num_rows == 1_000_000
    assert table["offset"][-1].as_py() == 999_999
    assert set(table["value"].to_pylist()) == {line[:-1]}
