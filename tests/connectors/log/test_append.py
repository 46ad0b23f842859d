"""Appending to an embedded log that others read and append to meanwhile, when its disk is full or a process dies."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from windrow.connectors.log.append import LogAppender
from windrow.connectors.log.source import LogFolder, find_losses
from windrow.connectors.source import NewRecord
from windrow.errors import SourceError

PREFIX = b'{"_redrive":'
COPIES = [NewRecord(None, PREFIX + b' %d, "value": "%s"}' % (number, b"x" * 90)) for number in range(10)]
LINES = [record.value + b"\n" for record in COPIES]
OTHERS = b'{"user": "ann"}\n'
ROOM = len(OTHERS) + sum(map(len, LINES[:3])) + 40
"""Bytes that fit: the first record, three lines, and a part of the fourth."""


@pytest.fixture
def log(tmp_path: Path) -> LogFolder:
    """A log with a record."""
    (tmp_path / "partition-0.jsonl").write_bytes(OTHERS)
    return LogFolder(tmp_path)


def values(log: LogFolder) -> list[bytes]:
    return [value + b"\n" for batch in log.read(0) for value in batch["value"].to_pylist()]


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Have the kernel write no file of this process beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def append(log: LogFolder) -> list[int]:
    with LogAppender(str(log.path), PREFIX) as appender:
        return appender.append({0: COPIES})[0]


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let others act after a part of a line was written, before anything is done about it."""

    def first(call: Callable[..., Any]) -> Callable[..., Any]:
        def patched(*arguments: Any) -> Any:  # noqa: ANN401 - of either call
            with room_for(resource.RLIM_INFINITY):  # another process has its own limit
                act()
            return call(*arguments)

        return patched

    for call in (os.pwrite, os.ftruncate):
        monkeypatch.setattr(os, call.__name__, first(call))


def test_what_a_reader_has_read_before_a_write_failed_stays(log: LogFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    read = {}

    def read_log() -> None:
        read["0"] = log.noted(0, log.scan(0))

    meanwhile(monkeypatch, read_log)
    with room_for(ROOM), pytest.raises(SourceError, match=r"cannot append to .*: File too large"):
        append(log)
    assert read["0"]["line"] == 4
    assert find_losses(log, read).losses == ()
    found = values(log)
    assert found[:4] == [OTHERS, *LINES[:3]]
    assert LINES[3].startswith(found[4][:-1])


def test_what_a_producer_has_appended_to_a_part_of_a_line_stays_a_line(
    log: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def produce() -> None:
        with log.file(0).open("ab") as file:
            file.write(OTHERS)

    meanwhile(monkeypatch, produce)
    with room_for(ROOM), pytest.raises(SourceError):
        append(log)
    assert values(log)[-1] == OTHERS
    assert len(values(log)) == 6
    # a process that died left a part of a line, and the producer comes before it is ended
    with log.file(0).open("ab") as file:
        file.write(LINES[0][:50])
    assert append(log) == list(range(8, 18))
    assert values(log)[7:] == [OTHERS, *LINES]


def test_a_full_disk_takes_the_lines_that_fit(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a disk of a limited size can be mounted by root alone")
    try:
        full = LogFolder(disk)
        full.file(0).write_bytes(OTHERS * (16_000 // len(OTHERS)))
        lines = full.scan(0).line
        with pytest.raises(SourceError, match="No space left on device"):
            append(full)
        found = values(full)[lines:]
        assert found[:-1] == LINES[: len(found) - 1]
        assert full.ends_with_newline(0)
    finally:
        subprocess.run(["umount", str(disk)], check=True)  # noqa: S607 - as it was mounted
