"""A file that is followed: what its log has after each reading, and what becomes of files that cannot be read."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from windrow.connectors.file.source import FollowedFile
from windrow.connectors.open_sources import open_source
from windrow.errors import InputError, SourceError
from windrow.model import (
    BooleanType,
    DecimalType,
    Decode,
    Field,
    FileSource,
    LongType,
    StringType,
    TimestampType,
)

DECODE = Decode(
    (
        Field("currency", StringType()),
        Field("on", LongType()),
        Field("rate", DecimalType(12, 6), optional=True),
        Field("live", BooleanType(), optional=True),
        Field("_deleted", BooleanType()),
        Field("_log_time", TimestampType("millis")),
    )
)
Table = dict[tuple[str, int], tuple[str | None, bool | None]]
"""Rate and whether it is live, by currency and day."""


class Rates:
    """A file of rates, and its log."""

    def __init__(self, folder: Path, ending: str = "csv") -> None:
        self.path = folder / f"rates.{ending}"
        self.log = folder / "data" / "rates" / "partition-0.jsonl"
        self.source = FileSource(str(self.path), ("currency", "on"), str(folder / "data" / "rates"))
        self.now = 1_000

    def follow(self) -> FollowedFile:
        return FollowedFile(self.source, DECODE, lambda: self.now)

    def write(self, table: Table) -> None:
        rows = [
            {"currency": currency, "on": on, "rate": rate, "live": live}
            for (currency, on), (rate, live) in table.items()
        ]
        if self.path.suffix == ".csv":
            text = io.StringIO()
            writer = csv.writer(text)
            writer.writerow(["currency", "on", "rate", "live"])
            writer.writerows(
                [json.dumps(value) if isinstance(value, bool) else value for value in row.values()] for row in rows
            )
            self.path.write_text(text.getvalue(), encoding="utf-8", newline="")
        else:
            self.path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]

    def table(self) -> Table:
        """Return the last record by key that is not deleted."""
        found: Table = {}
        for record in self.records():
            key = record["currency"], int(record["on"])
            found.pop(key, None)
            if not record["_deleted"]:
                found[key] = record.get("rate"), record.get("live")
        return found


def differences(before: Table, after: Table) -> int:
    return sum(before.get(key) != after.get(key) for key in before.keys() | after.keys())


CURRENCIES = st.one_of(st.sampled_from(["EUR", "USD", 'a,"\n b', "\u00e4\u2028"]))
ROWS = st.tuples(st.sampled_from(["1.5", "2", None]), st.sampled_from([True, False, None]))
TABLES: st.SearchStrategy[Table] = st.dictionaries(st.tuples(CURRENCIES, st.integers(1, 2)), ROWS, min_size=1)


@examples(60)
@given(
    st.sampled_from(["csv", "jsonl"]),
    st.lists(
        st.tuples(TABLES, st.integers(0, 2_000), st.sampled_from([b"", b"{", b'{"_log_time": 1, "_de'])), max_size=5
    ),
    st.data(),
)
def test_the_log_has_exactly_the_differences(
    ending: str, readings: list[tuple[Table, int, bytes]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rates = Rates(Path(folder), ending)
        followed = [rates.follow(), rates.follow()]  # two runs
        before: Table = {}
        written = b""
        for table, now, torn in readings:
            rates.write(table)
            rates.now = now
            data.draw(st.sampled_from(followed)).update()
            content = rates.log.read_bytes()
            assert content.startswith(written)
            assert content[len(written) :].count(b"\n") == differences(before, table)
            assert rates.table() == table
            times = [record["_log_time"] for record in rates.records()]
            assert times == sorted(times)
            before, written = table, content
            assert content.endswith(b"\n")
            with rates.log.open("ab") as log:  # a crash
                log.write(torn)
        if readings:
            rates.follow().update()
            assert rates.table() == before
            assert sum(batch.num_rows for batch in open_source(rates.source).read_all()) == written.count(b"\n")


BAD = [
    ("csv", b"", "1: the file is empty"),
    ("csv", b"currency,on,on\nEUR,1,1\n", "1: each column in the header needs a unique name"),
    ("csv", b"currency,,on\nEUR,1,1\n", "1: each column in the header needs a unique name"),
    ("csv", b"currency", "1: the header has no 'on', which is a key field"),
    ("csv", b"currency,on\nEUR\n", "2: expected 2 values"),
    ("csv", b"currency,on\nEUR,1\n\n", "3: expected 2 values"),
    ("csv", b'currency,on\nEUR,1\n"EUR,2\n', "3: not CSV: "),
    ("csv", b"currency,on\nEUR,1\n\xff,2\n", "3: not UTF-8 at byte 18"),
    ("csv", b"currency,on\nEUR,\n", "2: missing: on; every row needs a key"),
    ("csv", b"currency,on\nEUR,1.5\n", "2: wrong type: on: "),
    ("csv", b"currency,on\nEUR,1\nEUR,1.0\n", "3: the row on line 2 has the same key"),
    ("csv", b"currency,on,_deleted\nEUR,1,true\n", "2: '_deleted' is a field that windrow writes"),
    ("jsonl", b"\n", "1: the file is empty"),
    ("jsonl", b'{"currency": "EUR", "on": 1}\n{"currency": "USD", "o', "2: malformed: not JSON"),
    ("jsonl", b'{"currency": "EUR", "on": 1}\n\n', "2: malformed: not JSON"),
    ("jsonl", b"[1]\n", "1: not an object: an array"),
    ("jsonl", b"{}\n", "1: missing: currency"),
]


@pytest.mark.parametrize(("ending", "content", "problem"), BAD)
def test_a_malformed_file_leaves_the_log_as_it_is(ending: str, content: bytes, problem: str, tmp_path: Path) -> None:
    rates = Rates(tmp_path, ending)
    rates.write({("EUR", 1): ("1.5", None)})
    followed = rates.follow()
    followed.update()
    before = rates.log.read_bytes()
    rates.path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        followed.update()
    assert str(raised.value).startswith(f"{rates.path}:{problem}")
    assert rates.log.read_bytes() == before


def test_a_file_that_is_not_there_makes_no_log(tmp_path: Path) -> None:
    rates = Rates(tmp_path)
    with pytest.raises(InputError, match=r"cannot read the file .*rates\.csv: No such file"):
        rates.follow().update()
    assert not rates.log.exists()


def test_the_log_has_no_records_of_others(tmp_path: Path) -> None:
    rates = Rates(tmp_path)
    rates.write({("EUR", 1): ("1.5", None)})
    rates.log.parent.mkdir(parents=True)
    rates.log.write_text('{"currency": "EUR", "on": 1}\n')
    with pytest.raises(SourceError, match=r"record 0 of .* is not a row of the file"):
        rates.follow().update()


def test_a_reading_that_cannot_be_written_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = Rates(tmp_path)
    rates.write({("EUR", 1): ("1.5", None)})
    followed = rates.follow()
    followed.update()
    before, pwrite, parts = rates.log.read_bytes(), os.pwrite, iter([10, 110])

    def full(file: int, data: memoryview, at: int) -> int:
        part = next(parts, None)
        if part is None:
            raise OSError(28, "No space left on device")
        return pwrite(file, data[:part], at)

    rates.write({("EUR", on): ("2", None) for on in range(5)})
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(SourceError, match=r"cannot write the log .*: No space left on device"):
            followed.update()
    assert rates.log.read_bytes() == before
    followed.update()
    assert len(rates.records()) == 6


def polled(followed: FollowedFile, times: int) -> Sequence[str]:
    warnings: list[str] = []
    for _ in range(times):
        followed.poll(warnings.append)
    return warnings


def test_a_file_is_read_when_it_has_come_to_rest(tmp_path: Path) -> None:
    rates = Rates(tmp_path)
    table: Table = {("EUR", 1): ("1.5", True)}
    rates.write(table)
    followed = rates.follow()
    followed.update()
    assert polled(followed, 3) == []
    rates.write(table | {("USD", 1): ("1", None)})
    assert polled(followed, 1) == []
    assert rates.table() == table  # it may still be written
    assert polled(followed, 1) == []
    assert rates.table() == table | {("USD", 1): ("1", None)}


def test_a_file_that_cannot_be_read_is_a_warning_until_it_can(tmp_path: Path) -> None:
    rates = Rates(tmp_path)
    table: Table = {("EUR", 1): ("1.5", True)}
    rates.write(table)
    followed = rates.follow()
    followed.update()
    rates.path.unlink()
    [gone] = polled(followed, 5)
    assert gone.startswith(f"cannot read the file {rates.path}: No such file")
    assert gone.endswith("; until then, the rows stay as they were")
    rates.path.write_text("currency")
    [malformed] = polled(followed, 5)
    assert malformed.startswith(f"{rates.path}:1: the header has no 'on'")
    assert rates.table() == table
    rates.write({})
    assert polled(followed, 5) == []
    assert rates.table() == {}
