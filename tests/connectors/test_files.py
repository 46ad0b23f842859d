"""Files of text and Parquet: the same records at the same offsets, however they are read, and no others."""

from __future__ import annotations

import datetime as dt
import errno
import gzip
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.connectors.streaming import records
from tests.examples import examples
from tests.graphs import as_graph
from tests.runtime.spend import Files, events, spend

from windrow.connectors.cuts import StreamPlan
from windrow.connectors.files import rows
from windrow.connectors.files.listing import START, FileSequence, Position
from windrow.connectors.files.parquet import ParquetRows
from windrow.connectors.files.source import OrderedFiles
from windrow.connectors.open_sources import open_source
from windrow.engine.decode.decoder import DecodedBatch, Decoder
from windrow.engine.decode.json_text import parse_object
from windrow.engine.schema import RAW
from windrow.errors import InputError, RecordsLostError, SourceError
from windrow.model import (
    ArrayType,
    BooleanType,
    CsvFormat,
    DecimalType,
    Decode,
    Delay,
    DoubleType,
    EventTime,
    Field,
    FilesFormat,
    FilesSource,
    LogSource,
    LongType,
    Source,
    SourceNode,
    SqliteSink,
    StringType,
    TimestampType,
)
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings
from windrow.tools.redrive.copies import check_redrivable

CSV = CsvFormat(("user_id", "event_time", "amount", "_log_time"), ";")
HEADER = ";".join(CSV.columns)


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read(source: FilesSource) -> list[tuple[int, str]]:
    found = records(open_source(source).read_all()).get(0, [])
    return [(offset, (value or b"").decode()) for offset, value in found]


def test_files_are_read_in_the_order_of_their_names_folder_by_folder(tmp_path: Path) -> None:
    names = ["b/1.jsonl", "a.jsonl", "a-b/1.jsonl", "a/10.jsonl", "a/9.jsonl", "a/c/d.jsonl.gz"]
    for name in [*names, "b/.hidden.jsonl", ".hidden/1.jsonl", "a/x.json"]:
        write(tmp_path / name, name)
    (tmp_path / "b" / "folder.jsonl").mkdir()
    expected = ["a/9.jsonl", "a/10.jsonl", "a/c/d.jsonl.gz", "a-b/1.jsonl", "a.jsonl", "b/1.jsonl"]
    source = FilesSource((str(tmp_path / "**/*.jsonl*"),))
    assert read(source) == list(enumerate(expected))
    assert source.label == tmp_path.name
    one = FilesSource((str(tmp_path / "a.jsonl"), str(tmp_path / "nothing*")))
    assert open_source(one).ends() == {0: (0, 1), 1: (0, 0)}
    with pytest.raises(InputError, match=r"there is no file .*/b\.jsonl; correct the path"):
        open_source(FilesSource((str(tmp_path / "b.jsonl"),))).partitions()


def test_a_file_is_listed_once_whatever_matches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "[1]"
    write(here / "a/b/1.jsonl", "1")
    monkeypatch.chdir(here)
    assert read(FilesSource(("**/**/*.jsonl",))) == [(0, "1")]
    with pytest.raises(InputError, match=r"matched as .*a/b/1.jsonl and as .*a/b/1.jsonl, so each record would"):
        open_source(FilesSource(("**/*.jsonl", "a/b/1.jsonl"))).partitions()
    (here / "latest").symlink_to("a")
    with pytest.raises(InputError, match=r"matched as .*a/b/1.jsonl and as .*latest/b/1.jsonl, so each record would"):
        open_source(FilesSource(("**/*.jsonl",))).ends()
    (here / "latest").unlink()
    write(here / "\udcff.jsonl", "2")
    with pytest.raises(InputError, match=r"the name of the file b'.*\\xff.jsonl' is not UTF-8; rename it"):
        read(FilesSource(("**/*.jsonl",)))


@pytest.mark.parametrize("pattern", ["**", "*/*/1.jsonl", "**/*.jsonl"])
def test_a_folder_that_may_not_be_listed_is_named(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("1", "2", "3"):
        write(tmp_path / "a" / name / "1.jsonl", name)
    scandir = os.scandir

    def refuse(path: str | Path) -> object:
        if Path(path).name == "2":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    source = FilesSource((str(tmp_path / pattern),))
    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(SourceError, match=r"cannot list the files .*: .*a/2/?: Permission denied"):
        read(source)
    monkeypatch.undo()
    assert read(source) == [(0, "1"), (1, "2"), (2, "3")]


def test_a_listing_has_all_that_came_before_the_last_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, names = FileSequence(str(tmp_path / "*"), None), ["1", "2", "3", "4"]
    for name in names:
        write(tmp_path / name, name)
    looks = [["1", "3"], names, names, names, names]  # 2 came before 3, behind where the first look was by then
    monkeypatch.setattr("glob.iglob", lambda *_, **__: iter(looks.pop(0)))
    found = [[one.name for one in files.files()] for _ in range(3)]
    assert found == [["1", "2", "3"], names, names]
    assert looks == []


@pytest.mark.parametrize(
    ("change", "expected"), [("touch", "a1 a2 b1 b2 d1"), ("add", "a1 a2 b1 b2 c1 d1"), ("remove", "a1 a2 d1")]
)
def test_a_bounded_run_reads_what_stands_behind_its_offsets(change: str, expected: str, tmp_path: Path) -> None:
    for name, count in (("a", 2), ("b", 2), ("d", 1)):
        write(tmp_path / name, *(f"{name}{number + 1}" for number in range(count)))
    source = open_source(FilesSource((str(tmp_path / "*"),)))
    reader = source.reader(StreamPlan(iter, source.beginning(), tasks=1))
    reader.prepareForTriggerAvailableNow()
    at: dict[str, Any] = {}
    found: list[tuple[int, bytes | None]] = []
    while (end := reader.step_from(dict(at), 1)) != at:
        found += [record for part in reader.partitions(at, end) for record in records(reader.read(part)).get(0, [])]
        at = end
        if len(found) == 2:
            match change:
                case "touch":
                    os.utime(tmp_path / "b", (1, 1))
                case "add":
                    write(tmp_path / "c", "c1")
                case _:
                    (tmp_path / "b").unlink()
            write(tmp_path / "e", "is not its input")
            assert reader.waiting(at) > 0
    assert [(offset, (value or b"").decode()) for offset, value in found] == list(enumerate(expected.split()))
    assert reader.waiting(at) == 0


LINES = st.lists(st.text("ab{\u00e4 ", max_size=40), max_size=9)
NEWLINES = st.sampled_from(["\n", "\r\n"])


@given(
    st.lists(st.tuples(LINES, NEWLINES, st.booleans(), st.booleans(), st.booleans()), max_size=4),
    st.sampled_from([None, CSV]),
    st.lists(st.integers(1, 12), min_size=12, max_size=12),
)
@examples(40)
def test_a_record_has_its_offset_however_it_is_read(
    contents: list[tuple[list[str], str, bool, bool, bool]], header: CsvFormat | None, steps: list[int]
) -> None:
    expected: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(rows, "BLOCK", 16)
        for number, (lines, newline, has_end, has_mark, is_packed) in enumerate(contents):
            every = lines if header is None else [HEADER, *lines]
            text = newline.join(every) + (newline if every and (has_end or not every[-1]) else "")
            content = (b"\xef\xbb\xbf" if has_mark else b"") + text.encode()
            path = Path(folder, f"{number}.csv.gz" if is_packed else f"{number}.csv")
            path.write_bytes(gzip.compress(content) if is_packed else content)
            expected += [line.encode() for line in lines]
        files = FileSequence(f"{folder}/*.csv*", header)
        there = files.files()
        assert files.end(there) == len(expected)
        at, found = START, []
        for step in steps:
            end = files.advance(there, at, step)
            assert end.line == min(len(expected), at.line + step)
            for start in (at, files.after(there, at.line), replace(at, byte=0)):
                spans = files.spans(there, start, end.line)
                part = records(batch for span in spans for batch in span.read(0)).get(0, [])
                assert part == list(enumerate(expected))[at.line : end.line]
            found += part
            assert files.bytes_left(there, end) > 0 or end.line == len(expected)
            assert files.about_left(there, end) > 0 or end.line == len(expected)
            at = end
        assert found == list(enumerate(expected))[: at.line]


def test_a_change_of_what_was_read_is_found_and_named(tmp_path: Path) -> None:
    for name in ("1", "2", "4"):
        write(tmp_path / f"{name}.jsonl", f"{name}a", f"{name}b")

    def fresh() -> FileSequence:
        return FileSequence(str(tmp_path / "*.jsonl"), None)

    running = fresh()
    there = running.files()
    at = running.after(there, 3)
    noted = running.noted(there, at)
    assert (Position.of(noted), noted["line"], noted["file"], noted["row"]) == (at, 3, "2.jsonl", 1)

    def refused(running_says: str, fresh_says: str, beyond: int) -> None:
        for files, says in ((running, running_says), (fresh(), fresh_says)):
            with pytest.raises(RecordsLostError, match=rf"up to offset 3, in 2.jsonl, and {says}"):
                files.verify(files.files(), at, noted["mark"])
        (loss,) = OrderedFiles(source).find_losses({"0": noted}, None).losses
        assert (loss.stood, loss.goes_on) == (3, beyond)

    source = FilesSource((running.pattern,))
    write(tmp_path / "3.jsonl", "3a")
    write(tmp_path / "4.jsonl", "not read yet")
    for files in (running, fresh()):
        files.verify(files.files(), at, noted["mark"])
    assert OrderedFiles(source).find_losses({"0": noted}, None).losses == ()
    added = write(tmp_path / "1b.jsonl", "new")
    unknown = r"a file up to there was added, changed or removed \(last written: "
    refused(r"1b.jsonl was added; new files must sort after", rf"{unknown}1b.jsonl\)", 4)
    moved = OrderedFiles(source).find_losses({"0": noted}, None).offset
    assert OrderedFiles(source).find_losses(moved, None).losses == ()
    assert moved["0"]["line"] == 4
    added.unlink()
    write(tmp_path / "1.jsonl", "1a", "1c")
    refused("1.jsonl was changed; files must stay as they are", rf"{unknown}1.jsonl\)", 3)
    (tmp_path / "1.jsonl").unlink()
    refused("1.jsonl is gone", unknown, 1)
    write(tmp_path / "1.jsonl", "1a", "1b")
    (tmp_path / "2.jsonl").unlink()
    refused("2.jsonl is gone", "2.jsonl is gone", 2)


def test_a_file_that_changes_while_it_is_read_ends_the_run(tmp_path: Path) -> None:
    file = write(tmp_path / "1.jsonl", "1", "2")
    files = FileSequence(str(file), None)
    (span,) = files.spans(files.files(), START)
    file.write_text("12\n\n3")
    with pytest.raises(RecordsLostError, match=r"1.jsonl changed while it was read"):
        list(span.read(0))
    file.write_text("1234")
    with pytest.raises(RecordsLostError, match=r"1.jsonl changed while it was read"):
        list(span.read(0))


@pytest.mark.parametrize(
    ("name", "content", "error", "says"),
    [
        ("x.csv", b"user_id;amount\n", InputError, r"x.csv:1: the header has user_id, amount, but the columns of the"),
        ("x.csv", b"\xff\n", InputError, r"x.csv:1: the header is not CSV: 'utf-8' codec"),
        ("x.csv.gz", b"user_id", SourceError, r"x.csv.gz is not a gzip file or is truncated"),
        (
            "x.csv.gz",
            gzip.compress(b"a" * 99, mtime=0)[:-9],
            SourceError,
            r"x.csv.gz is not a gzip file or is truncated",
        ),
        ("x.parquet", b"PAR1", SourceError, r"cannot read .*x.parquet as Parquet"),
    ],
)
def test_a_file_that_is_none_of_its_kind_is_named(
    name: str, content: bytes, error: type[Exception], says: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=says):
        open_source(FilesSource((str(tmp_path / "x*"),), CSV)).ends()


def test_rows_of_parquet_are_decoded_without_loss(tmp_path: Path) -> None:
    time = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
    number = Decimal("12345678901234567890.12")
    columns = {
        "at": pa.array([time] * 5, pa.timestamp("us", "Europe/Berlin")),
        "naive": pa.array([time.replace(tzinfo=None)] * 5, pa.timestamp("ns")),
        "n": pa.array([1, 2, 3, 4, 2**63 - 1]),
        "money": pa.array([number] * 5),
        "share": pa.array([0.1, float("nan"), 1e300, None, -0.0]),
        "who": pa.array([{"id": "\u00e4'\"", "tags": [number]}] * 5),
        "raw'": pa.array([b"ab\xff"] * 5),
    }
    pq.write_table(pa.table(columns), tmp_path / "1.parquet", row_group_size=2)
    pq.write_table(pa.table({name: values[:0] for name, values in columns.items()}), tmp_path / "2.parquet")
    fields = (
        Field("at", TimestampType("iso")),
        Field("naive", TimestampType("iso")),
        Field("n", LongType()),
        Field("money", DecimalType(22, 2)),
        Field("share", DoubleType(), optional=True),
        Field("id", StringType(), path=("who", "id")),
        Field("tags", ArrayType(DecimalType(22, 2)), path=("who", "tags")),
        Field("raw'", StringType()),
    )
    source = FilesSource((str(tmp_path / "*.parquet"),))
    node = SourceNode("x", source, Decode(fields), EventTime("at", Delay(0)))
    log = open_source(source)
    for begin in range(6):
        raw = pa.Table.from_batches(log.read_from(0, begin), RAW)
        found = Decoder(node).decode(raw)
        assert [row["offset"] for row in raw.to_pylist()] == list(range(begin, 5))
        dead = found.dead.select(["offset", "reason"]).to_pylist()
        reason = 'wrong type: share: "nan" is not a double: at 1.parquet:2'
        assert dead == ([{"offset": 1, "reason": reason}] if begin < 2 else [])
    good = Decoder(node).decode(pa.Table.from_batches(log.read_from(0, 0), RAW)).good.to_pylist()
    assert [(row["n"], row["share"]) for row in good] == [(1, 0.1), (3, 1e300), (4, None), (2**63 - 1, 0.0)]
    assert all((row["at"], row["naive"], row["money"], row["tags"]) == (time, time, number, [number]) for row in good)
    assert {(row["id"], row["raw'"]) for row in good} == {("\u00e4'\"", "YWL/")}


BROKEN = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff\xfe"]).buffers())
"""A text, and one that is not UTF-8."""
COLUMNS = {
    **{
        f"{type_} {number}": pa.array([0, number], type_)
        for type_, numbers in (
            (pa.timestamp("ms"), (9_300_000_000_000_000, 2**63 - 1)),
            (pa.timestamp("us", "UTC"), (-(2**63), 253_402_300_800_000_000)),
            (pa.timestamp("ns"), (2**63 - 1, -(2**63))),
            (pa.date32(), (2**31 - 1, -(2**31))),
            (pa.date64(), (86_400_000 * 3_000_000,)),
            (pa.time32("ms"), (-5, 86_400_000)),
            (pa.time64("ns"), (2**63 - 1,)),
            (pa.duration("s"), (2**62,)),
            (pa.duration("ns"), (1,)),
        )
        for number in numbers
    },
    "text": BROKEN,
    "texts": pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), BROKEN),
    "times": pa.array([[0], [0, 2**62]], pa.list_(pa.timestamp("us"))),
    "struct": pa.array([{"a": [1.0], "b": "x"}, {"a": [float("inf")], "b": "x"}]),
    "map": pa.MapArray.from_arrays(pa.array([0, 1, 3], pa.int32()), pa.array(["a", "b", "b"]), pa.array([1, 2, 3])),
}
"""Columns of two values, of which nothing else says the second one than what it is."""
NESTED = pa.struct([("b", pa.int64())])
OTHERS = {
    "half": pa.array([1.5, float("nan")], pa.float16()),
    "wide": pa.array([Decimal("1.5"), Decimal(10) ** 45], pa.decimal256(50, 2)),
    "categories": pa.array([0, 2**62], pa.timestamp("us")).dictionary_encode(),
    "bytes": pa.array([b"a", b"\xff"]),
    "bytes of map": pa.array([[(b"\xff", b"a")], None], pa.map_(pa.binary(), pa.binary())),
    "views": pa.array(["a", None], pa.string_view()),
    "list of view": pa.array([["a"], None], pa.list_view(pa.string())),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16))),
    "extension": pa.ExtensionArray.from_storage(pa.opaque(pa.binary(), "t", "v"), pa.array([b"x", None])),
    "two names": pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["a", "A"]),
    "struct of structs": pa.array([{"a": {"b": {"c": 1}}, "d": [{"e": 1}]}, {"a": {"b": {"c": 2}}, "d": None}]),
    "structs of map": pa.array([[("k", {"a": {"b": 1}})]] * 2, pa.map_(pa.string(), pa.struct([("a", NESTED)]))),
    "nothing": pa.nulls(2),
    "a\0'\"\\": pa.array([1, 2]),
}


def parquet(folder: Path, name: str) -> tuple[FilesSource, pa.Table]:
    """Write a file with one of the columns, and return the source and its records, read as a whole."""
    columns = {"i": pa.array([0, 1]), name: (COLUMNS | OTHERS)[name], "ok": pa.array([True, True])}
    pq.write_table(pa.table(columns), folder / "1.parquet")
    source = FilesSource((str(folder / "*.parquet"),))
    return source, pa.Table.from_batches(open_source(source).read_from(0, 0), RAW)


def decoded(source: FilesSource, raw: pa.Table, *fields: Field) -> DecodedBatch:
    decode = Decode((Field("i", TimestampType("millis")), *fields))
    return Decoder(SourceNode("x", source, decode, EventTime("i", Delay(0)))).decode(raw)


@pytest.mark.parametrize("name", [*COLUMNS, *OTHERS])
def test_a_column_of_parquet_that_nobody_decodes_ends_nothing(name: str, tmp_path: Path) -> None:
    source, raw = parquet(tmp_path, name)
    assert pa.Table.from_batches(open_source(source).read_from(0, 1), RAW) == raw.slice(1)
    assert [set(parse_object(one)) for one in raw.column("value").to_pylist()] == [{"i", name, "ok"}] * 2
    found = decoded(source, raw, Field("ok", BooleanType()))
    assert (found.good.num_rows, found.dead.num_rows) == (2, 0)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_value_of_parquet_without_a_text_is_a_dead_letter_where_it_is_decoded(name: str, tmp_path: Path) -> None:
    found = decoded(*parquet(tmp_path, name), Field("x", StringType(), path=(name,)))
    assert 1 in found.dead.column("offset").to_pylist()


def test_times_of_parquet_in_int96_do_not_wrap_around(tmp_path: Path) -> None:
    ends = [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]  # noqa: DTZ001 - as Parquet has them
    table = pa.table({"x": pa.array(ends, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "1.parquet", use_deprecated_int96_timestamps=True)
    read = open_source(FilesSource((str(tmp_path / "*.parquet"),))).read_from(0, 0)
    texts = [json.loads(one)["x"] for batch in read for one in batch.column("value").to_pylist()]
    assert texts == ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"]


def as_json(folder: Path, values: list[dict[str, Any]]) -> None:
    for number, first in enumerate(range(0, len(values), 100)):
        part = values[first : first + 100]
        write(folder / f"{number}.jsonl{'.gz' if number == 1 else ''}", *map(json.dumps, part))


def as_csv(folder: Path, values: list[dict[str, Any]]) -> None:
    write(folder / "1.csv", HEADER, *(";".join(str(one[name]) for name in CSV.columns) for one in values[:200]))
    write(folder / "2.csv.gz", HEADER, *(";".join(f'"{one[name]}"' for name in CSV.columns) for one in values[200:]))


def as_parquet(folder: Path, values: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(values), folder / "1.parquet", row_group_size=64)


@pytest.mark.parametrize(("write_files", "format_"), [(as_json, "json"), (as_csv, CSV), (as_parquet, "json")])
def test_files_have_the_results_of_a_log(
    write_files: Callable[[Path, list[dict[str, Any]]], None], format_: FilesFormat, tmp_path: Path
) -> None:
    log = Files(tmp_path / "log", 1)
    log.append(events(300, partitions=1, malformed_share=0.0))
    values = [json.loads(line) for line in (tmp_path / "log" / "partition-0.jsonl").read_text().splitlines()]
    (tmp_path / "files").mkdir()
    write_files(tmp_path / "files", values)

    def result(name: str, source: Source, max_records: int) -> list[tuple[Any, ...]]:
        pipeline = spend(source, SqliteSink(str(tmp_path / f"{name}.db"), "spend"))
        options = RunSettings(tmp_path / name, "memory", until_end=True, max_records=max_records)
        assert launch(as_graph(pipeline), options, lambda _: None, lambda _: None) == "end"
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as db:
            late = db.execute("SELECT partition, offset, event_time FROM spend_late ORDER BY 1, 2, 3").fetchall()
            return [*db.execute("SELECT * FROM spend ORDER BY 1, 3").fetchall(), *late]

    files = FilesSource((str(tmp_path / "files" / "*"),), format_)
    # of a large step a batch is decoded at once, of a small one record by record
    assert result("a", files, 300) == result("b", files, 70) == result("c", LogSource(str(tmp_path / "log")), 70)
    with pytest.raises(InputError, match="are not windrow's to write"):
        check_redrivable(as_graph(spend(files, SqliteSink("x.db", "spend"))))


def bomb(path: Path, rows: int, size: int) -> None:
    """Write rows with the same text, which are a few hundred bytes in the file."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size]))
    table = pa.table({"n": pa.array(range(rows), pa.int64()), "text": texts})
    pq.write_table(table, path, compression="zstd", store_schema=False)


def test_a_small_parquet_file_of_large_rows_is_read_in_slices(tmp_path: Path) -> None:
    bomb(tmp_path / "a.parquet", 60, 1_000_000)
    assert (tmp_path / "a.parquet").stat().st_size < 2_000
    rows = ParquetRows(tmp_path / "a.parquet")
    assert rows.size() == pytest.approx(60_000_000, rel=0.01)
    parts = list(rows.read(3, 0, 57))
    assert [len(part) for part in parts] == [8] * 7 + [1]
    values = [json.loads(value) for part in parts for value in part.to_pylist()]
    assert [value["n"] for value in values] == list(range(3, 60))
    assert {value["text"] for value in values} == {"x" * 1_000_000}


def test_texts_within_lists_and_structs_are_read_in_slices(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1, None] * 500, pa.int32()), pa.array(["x" * 30_000, "y"]))
    lists = pa.ListArray.from_arrays(pa.array(range(0, 1501, 3), pa.int32()), texts)
    structs = pa.StructArray.from_arrays([texts.take(pa.array(range(500)))], ["inner"])
    table = pa.table({"list": lists, "struct": structs})
    for group, name in ((500, "one"), (90, "several")):
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=group, store_schema=False)
        parts = list(ParquetRows(tmp_path / f"{name}.parquet").read(0, 0, 500))
        assert max(part.nbytes for part in parts) < 9 << 20
        assert [json.loads(value) for part in parts for value in part.to_pylist()] == table.to_pylist()


def steps_of(source: FilesSource, max_bytes: int) -> list[int]:
    """Return the number of records of each step."""
    plan = StreamPlan(iter, {}, tasks=2, max_records=1_000_000, max_bytes=max_bytes)
    at: dict[str, Any] = {}
    reader, found = open_source(source).reader(plan), []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        found.append(end["0"]["line"] - at.get("0", {"line": 0})["line"])
        at = end
    return found


def test_a_step_of_files_has_about_as_many_bytes_as_it_may(tmp_path: Path) -> None:
    bomb(tmp_path / "a.parquet", 100, 1_000_000)
    assert steps_of(FilesSource((str(tmp_path / "*.parquet"),)), 10 << 20) == [10] * 10
    write(tmp_path / "b.jsonl", *["x" * 999] * 50)
    write(tmp_path / "c.jsonl", *["x" * 99] * 500)
    write(tmp_path / "d.jsonl.gz", *["x" * 9999] * 20)
    found = steps_of(FilesSource((str(tmp_path / "*.jsonl*"),)), 25_000)
    assert sum(found) == 570
    assert found[:2] == [25, 25]
    assert max(found) <= 250
    assert found[-9:] == [2] * 9
    assert steps_of(FilesSource((str(tmp_path / "d*"),)), 1) == [1] * 20
