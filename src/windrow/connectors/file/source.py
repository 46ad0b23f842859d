"""A file that is read again whenever it changes. Its rows and their changes become records of an embedded log.

The log contains every row that was read and the time of reading. Everything else reads only the log, so results depend
on the log alone. Each time the file is read, its rows are compared with the log by key: new and changed rows are
appended, and rows that are no longer in the file are appended again, marked as deleted. In a record of the log, three
fields precede the row: the time of reading, whether the row was deleted, and whether more records of the same reading
follow (`windrow.engine.watermarks.readings`):

    {"_log_time": 1767225600000, "_deleted": false, "_more": false, "currency": "EUR", "rate": "1.17"}

All records of a reading are appended in one write. After a crash, only some of them may be in the log, possibly
followed by an incomplete line, which readers ignore. The next reading compares the file with the log, removes the
incomplete line, and appends the missing records as part of the interrupted reading. If no record is missing, the last
record is appended again to mark the end of the reading. The same happens in a log of an older version, which did not
mark the ends of readings. A lock on the log's file ensures that only one process at a time compares and appends.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import NamedTuple

from windrow import model as m
from windrow.connectors.follower import Follower
from windrow.connectors.log.append import write_lines
from windrow.connectors.log.folder import LogFolder
from windrow.connectors.log.segments import START
from windrow.connectors.not_text import HEAD, refusal
from windrow.engine.decode.json_text import parse_object
from windrow.engine.decode.values import BadValueError, MalformedError, Value, convert
from windrow.engine.watermarks.readings import RECORD, reading_record
from windrow.errors import InputError, Place, SourceError, WindrowError

_RESERVED = {m.LOG_TIME, m.DELETED, m.MORE, m.KEY, m.VALUE}
_BOOLEANS: dict[str, object] = {"true": True, "false": False}

_POLL_SECONDS = 1.0

_Key = tuple[Value, ...]
_Signature = tuple[int, int, int] | None
"""The identity of a file's content: inode, size and time of modification; None if there is no file."""


class _Last(NamedTuple):
    """The last record of a log. `more` tells whether records of the same reading follow, None if that is unknown."""

    time: int
    row: str
    deleted: bool
    more: bool | None


class FollowedFile(Follower):
    """The file of a source, and the log of its changes. `clock` returns the time in milliseconds since 1970."""

    def __init__(
        self, source: m.FileSource, decode: m.Decode, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._path = Path(source.path)
        self._key = [decode.field(name) for name in source.key]
        self._booleans = {
            name for field in decode.fields if isinstance(field.type, m.BooleanType) for name in field.names
        }
        self._folder = LogFolder(source.log)
        self._clock = clock
        self._at = START
        self._last: _Last | None = None
        self._rows: dict[_Key, str] = {}
        self._seen: _Signature = None
        self._read: _Signature = None
        self._warned = ""

    def preflight(self) -> None:
        """Raise InputError if the file is missing or malformed."""
        self._file_rows()

    def update(self) -> None:
        """Append the differences between the file and the log to the log.

        Raise InputError if the file is missing or malformed; the log then stays unchanged. Raise SourceError if the log
        cannot be read or written.
        """
        rows = self._file_rows()
        with self._locked() as log:
            self._read_log()
            deleted_rows = [(body, True) for key, body in self._rows.items() if key not in rows]
            changed = [(body, False) for key, body in rows.items() if self._rows.get(key) != body]
            if os.fstat(log).st_size > self._at.byte:
                os.ftruncate(log, self._at.byte)  # the part of a line that a crash has left
            last, rows_to_write = self._last, [*deleted_rows, *changed]
            if last is None:
                now = self._clock()
            elif last.more or (last.more is None and not rows_to_write):
                now = last.time
                rows_to_write = rows_to_write or [(last.row, last.deleted)]
            else:
                now = max(last.time + 1, self._clock())  # readings get later even if the clock goes back
            if rows_to_write:
                end = len(rows_to_write) - 1
                lines = [
                    reading_record(now, row, deleted=deleted, more=number < end)
                    for number, (row, deleted) in enumerate(rows_to_write)
                ]
                write_lines(self._folder.file(0), log, self._at.byte, "".join(lines).encode())
                self._read_log()

    @property
    def lag(self) -> None:
        return

    def follow(self, stop: Event, warn: Callable[[str], None]) -> None:
        """Call `poll` regularly until `stop` is set."""
        while not stop.wait(_POLL_SECONDS):
            self.poll(warn)

    def poll(self, warn: Callable[[str], None]) -> None:
        """Update the log if the file has changed, but not since the previous call.

        Errors of `update` are passed to `warn`, each once, until the file can be read again.
        """
        before, self._seen = self._seen, self._signature()
        if self._seen != before or (self._seen is not None and self._seen == self._read):
            return
        try:
            self.update()
        except WindrowError as exc:
            if str(exc) != self._warned:
                warn(f"{exc}; until then, the rows stay as they were")
            self._warned = str(exc)
        else:
            self._read, self._warned = self._seen, ""

    def _signature(self) -> _Signature:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _file_rows(self) -> dict[_Key, str]:
        """Map each key in the file to its row, a JSON object without the braces."""
        before = self._signature()
        try:
            content = self._path.read_bytes()
        except OSError as exc:
            msg = f"cannot read the file {self._path}: {exc.strerror}; restore it, or correct the path"
            raise InputError(msg) from exc
        if self._signature() != before:
            msg = f"the file {self._path} changed while it was read; write it elsewhere, then move it into place"
            raise InputError(msg)
        if (message := refusal(self._path, content[:HEAD])) is not None:
            raise InputError(message)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            msg = f"not UTF-8 at byte {exc.start}; save the file as UTF-8"
            raise self._wrong(content.count(b"\n", 0, exc.start) + 1, msg) from exc
        if not text.strip():
            raise self._wrong(1, "the file is empty; a table without rows is a CSV file with only a header")
        found: dict[_Key, str] = {}
        lines: dict[_Key, int] = {}
        for line, row, body in self._csv(text) if self._path.suffix == ".csv" else self._json(text):
            if reserved := _RESERVED.intersection(row):
                raise self._wrong(line, f"{min(reserved)!r} is a field that windrow writes; rename it")
            try:
                key = self._key_of(row)
            except BadValueError as exc:
                raise self._wrong(line, f"{exc}; every row needs a key") from exc
            if key in found:
                raise self._wrong(line, f"the row on line {lines[key]} has the same key; keep one of them")
            found[key], lines[key] = body, line
        return found

    def _csv(self, text: str) -> Iterator[tuple[int, Mapping[str, object], str]]:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            header = next(reader)
            if "" in header or len(set(header)) < len(header):
                raise self._wrong(1, "each column in the header needs a unique name")
            for field in self._key:
                if not set(header).intersection(field.names):
                    raise self._wrong(1, f"the header has no {field.name!r}, which is a key field")
            for values in reader:
                if len(values) != len(header):
                    msg = f"expected {len(header)} values, one for each name in the header, not {len(values)}"
                    raise self._wrong(reader.line_num, msg)
                # an empty value is null; booleans have no quotes in JSON
                row = {
                    name: _BOOLEANS.get(value, value) if name in self._booleans else value
                    for name, value in zip(header, values, strict=True)
                    if value
                }
                yield reader.line_num, row, json.dumps(row, ensure_ascii=False, sort_keys=True)[1:-1]
        except csv.Error as exc:
            raise self._wrong(reader.line_num, f"not CSV: {exc}") from exc

    def _json(self, text: str) -> Iterator[tuple[int, Mapping[str, object], str]]:
        for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
            try:
                yield number, parse_object(line.encode()), line.strip()[1:-1].strip()
            except MalformedError as exc:
                raise self._wrong(number, f"{exc}; each line is a JSON object") from exc

    def _wrong(self, line: int, what: str) -> InputError:
        return InputError(what, Place(str(self._path), line))

    def _key_of(self, row: Mapping[str, object]) -> _Key:
        """Return the key of a row, decoded as the pipeline does; raise BadValueError if a part is missing."""
        key = []
        for field in self._key:
            value = next((row[name] for name in field.names if row.get(name) is not None), None)
            if value is None:
                msg = f"missing: {field.name}"
                raise BadValueError(msg)
            key.append(convert(field.name, field.type, value))
        return tuple(key)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the log's file, creating it if necessary, and lock it against appends by other processes."""
        path = self._folder.file(0)
        try:
            self._folder.path.mkdir(parents=True, exist_ok=True)
            log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as exc:
            msg = f"cannot write the log {path}: {exc.strerror}"
            raise SourceError(msg) from exc
        try:
            fcntl.flock(log, fcntl.LOCK_EX)
            yield log
        finally:
            os.close(log)

    def _read_log(self) -> None:
        """Read the records that were added to the log since the last call."""
        self._at = max(self._at, self._folder.first(0))
        end = self._folder.scan(0, self._at)
        for batch in self._folder.read(0, self._at, end):
            offsets, values = batch.column("offset").to_pylist(), batch.column("value").to_pylist()
            for offset, value in zip(offsets, values, strict=True):
                try:
                    match = RECORD.fullmatch(value.decode("utf-8"))
                    body = "" if match is None else match[4]
                    key = self._key_of(parse_object(f"{{{body}}}".encode()))
                except (UnicodeDecodeError, MalformedError, BadValueError):
                    match = None
                if match is None:
                    msg = (
                        f"record {offset} of {self._folder.file(0)} is not a row of the file {self._path} with its "
                        "key; give the file a log of its own"
                    )
                    raise SourceError(msg)
                deleted = match[2] == "true"
                self._last = _Last(int(match[1]), body, deleted, None if match[3] is None else match[3] == "true")
                if deleted:
                    self._rows.pop(key, None)
                else:
                    self._rows[key] = body
        self._at = end


def follow_file(node: m.SourceNode, *_columns: object) -> FollowedFile:
    """Return the follower of a source's file."""
    if not isinstance(node.source, m.FileSource):
        raise TypeError(node.source)
    return FollowedFile(node.source, node.decode)
