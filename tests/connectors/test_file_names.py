"""Names of files: which are data, their order, the order of older versions, and the fields of folders."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
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
from tests.short_forms import windowed

from windrow.authoring.checks.connectors import record_format
from windrow.connectors.cuts import StreamPlan
from windrow.connectors.files.names import natural_order
from windrow.connectors.open_sources import open_source, open_sources
from windrow.connectors.registry import source_connector
from windrow.connectors.source import Source as Log
from windrow.engine.decode.decoder import SMALL_BATCH, DecodedBatch, Decoder
from windrow.engine.schema import RAW
from windrow.model import (
    Aggregate,
    BooleanType,
    Count,
    CsvFormat,
    Decode,
    Delay,
    EventTime,
    Field,
    FilesFormat,
    FilesSource,
    LongType,
    Source,
    SourceNode,
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
)
from windrow.runtime.batch.plan import BatchSettings, batch_plan
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings
from windrow.testing.oracle.answer import LogRecord
from windrow.testing.oracle.reading import DeadLetterError, read
from windrow.tools.scaffold.sample import read_sample


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def values(source: Log) -> list[str]:
    found = records(source.read_all()).get(0, [])
    assert [offset for offset, _ in found] == list(range(len(found)))
    return [(value or b"").decode() for _, value in found]


def test_numbers_in_names_are_compared_by_value_and_equal_ones_as_text(tmp_path: Path) -> None:
    expected = [
        *("month=1/a.jsonl", "month=02/a.jsonl", "month=2/a.jsonl", "month=2/b.jsonl", "month=10/a.jsonl"),
        *("part-9.jsonl", "part-10-1.jsonl", "part-10-02.jsonl", "part-010-3.jsonl", "part-99999999999999999999.jsonl"),
        "part-x.jsonl",
    ]
    expected[6:9] = ["part-10-1.jsonl", "part-10-02.jsonl", "part-010-3.jsonl"]
    for name in reversed(expected):
        write(tmp_path / name, name)
    assert values(open_source(FilesSource((str(tmp_path / "**/*.jsonl"),)))) == expected


@given(st.lists(st.text("0129a-.=", min_size=1, max_size=5), min_size=2, max_size=3))
def test_names_have_one_order(names: Sequence[str]) -> None:
    first, *_, last = sorted(names, key=natural_order)
    assert natural_order(first) <= natural_order(last)
    assert (natural_order(first) == natural_order(last)) == (first == last)
    if all(name.isdecimal() for name in (first, last)):
        assert int(first) <= int(last)


def test_names_that_begin_with_an_underscore_are_not_data(tmp_path: Path) -> None:
    data = ["_month=1/a.jsonl", "_month=2/_k=v.jsonl", "a_b/c_.jsonl"]
    others = ["_SUCCESS.jsonl", "_temporary/0/_temporary/attempt_1/a.jsonl", "a_b/_c/d.jsonl", "a_b/.c.jsonl"]
    for name in (*data, *others):
        write(tmp_path / name, name)
    assert values(open_source(FilesSource((str(tmp_path / "**/*.jsonl"),)))) == data
    write(tmp_path / "a_b/a.jsonl._COPYING_", "not finished")
    assert values(open_source(FilesSource((str(tmp_path / "**/*"),)))) == data
    spelled = {"*/_c/*.jsonl": others[2], "_temporary/*/_temporary/*/*.jsonl": others[1], "_SUCCESS.jsonl": others[0]}
    for pattern, name in spelled.items():
        assert values(open_source(FilesSource((str(tmp_path / pattern),)))) == [name]
    (warning,) = source_connector(nothing := FilesSource((str(tmp_path / "_*x/*"),))).findings(nothing)
    assert warning.message.endswith("/_*x/* now")
    for name in data:
        (tmp_path / name).unlink()
    nothing = FilesSource((str(tmp_path / "**/*.jsonl"),))
    (warning,) = source_connector(nothing).findings(nothing)
    assert warning.message == f"no file matches {nothing.place} now"


def test_a_sample_of_a_folder_has_no_files_that_are_not_data(tmp_path: Path) -> None:
    write(tmp_path / "_temporary" / "a.csv", "a")
    write(tmp_path / "_k=v" / "a.jsonl", '{"a": 1}')
    assert read_sample(str(tmp_path), 10).lines == b'{"a": 1}\n'


OLD = {"line": 3, "file": "10.jsonl", "row": 1, "byte": 4, "mark": 3523101454}
"""A position as a version wrote it that compared names as text; 10.jsonl is the second file."""
OLD_ORDER = ["1a", "1b", "10a", "10b", "2a", "2b", "_3a", "_3b"]


@pytest.fixture
def old(tmp_path: Path) -> FilesSource:
    for name in ("1", "2", "10", "_3"):
        write(tmp_path / f"{name}.jsonl", f"{name}a", f"{name}b")
    return FilesSource((str(tmp_path / "*.jsonl"),))


def test_a_run_that_an_older_version_began_continues_in_its_order(old: FilesSource, tmp_path: Path) -> None:
    source = open_source(old)
    assert values(source) == ["1a", "1b", "2a", "2b", "10a", "10b"]
    assert source.find_losses({"0": OLD}, None).losses == ()
    assert values(source.read_as({"0": OLD})) == OLD_ORDER
    reader = source.reader(StreamPlan(iter, source.beginning(), tasks=1))
    reader.prepareForTriggerAvailableNow()
    at: dict[str, Any] = {"0": OLD}
    found: list[str] = []
    while (end := reader.step_from(dict(at), 2)) != at:
        write(tmp_path / "_4.jsonl", "is not the input of a bounded run")
        assert "names" not in end["0"]
        found += [v.decode() for part in reader.partitions(at, end) for _, v in records(reader.read(part))[0] if v]
        at = end
    assert found == OLD_ORDER[3:]
    write(tmp_path / "1b.jsonl", "new")
    (loss,) = source.find_losses(at, None).losses
    assert "names" not in source.find_losses(at, None).offset["0"]
    assert "1b.jsonl" in loss.what


def test_a_new_run_keeps_its_order(old: FilesSource) -> None:
    source = open_source(old)
    begun = source.beginning({0: 3})
    assert (begun["0"]["file"], begun["0"]["names"]) == ("2.jsonl", "natural")
    assert source.find_losses(begun, None).losses == ()
    assert values(source.read_as(begun)) == values(source)
    reader = source.reader(StreamPlan(iter, begun, tasks=1))
    assert reader.step_from(dict(begun), None)["0"]["names"] == "natural"


def test_a_replay_reads_files_as_the_run_did(old: FilesSource) -> None:
    graph = as_graph(spend(old, SqliteSink("x.db", "spend")))
    for read_as, last in ((None, "2.jsonl"), ({"0": OLD}, "10.jsonl")):
        settings, source = BatchSettings(end={0: 3}), open_sources(graph, read_as)
        assert source.beginning(batch_plan(graph, source, settings).end)["0"]["file"] == last
    # the position of a run with other sources than the pipeline has now
    assert values(open_sources(graph, {"sources": [{"0": OLD}]})) == values(open_source(old))
    assert values(open_sources(graph, {"0": {"line": 3, "byte": 9, "mark": 1}})) == values(open_source(old))


FIELDS = (
    Field("at", TimestampType("millis")),
    Field("month", LongType()),
    Field("city", StringType(), optional=True),
    Field("paid", BooleanType(), optional=True),
    Field("deep", StringType(), path=("region", "x"), optional=True),
)
FOLDERS = [
    "month=2/city=K%C3%B6ln%2FS%C3%BCd/paid=true",
    "month=__HIVE_DEFAULT_PARTITION__",
    "month=x/paid=1",
    "city=%ff",
    "month=3/region=a",
]
LINES = [
    '{"at": 1}',
    '{"at": 1, "month": 7, "city": null}',
    '{"at": 1, "month": null}',
    '{"at": 1, "x": {"month": 7}, "city": "a"}',
    '{"at": 1, "m\\u006fnth": 7}',
    '{"at": 1, "month": "9223372036854775808"}',
    '{"at": 1, "month": {"x": 1}}',
    '{"at": 1, "region": {"x": "deep"}}',
    '{"at": 1}}',
]


def decode(source: FilesSource, raw: pa.Table) -> DecodedBatch:
    fields = FIELDS[:-1] if isinstance(source.format, CsvFormat) else FIELDS
    return Decoder(SourceNode("x", source, Decode(fields), EventTime("at", Delay(0)))).decode(raw)


def test_folders_are_fields_of_records_that_lack_them(tmp_path: Path) -> None:
    for number, folder in enumerate(FOLDERS[:3]):
        write(tmp_path / "year=2026" / folder / f"{number}.jsonl", *LINES[:4])
    write(tmp_path / "year=2026" / "month=5.jsonl", '{"at": 1}')
    source = FilesSource((str(tmp_path / "year=2026/**/*.jsonl"),))
    raw = pa.Table.from_batches(open_source(source).read_all(), RAW)
    found = decode(source, raw)
    assert set(found.dead.column("raw").to_pylist()) <= {line.encode() for line in LINES}  # without the fields
    by_place = dict(zip(raw.column("key").to_pylist(), raw.column("offset").to_pylist(), strict=True))
    good = {row["offset"]: (row["month"], row["city"], row["paid"]) for row in found.good.to_pylist()}
    dead = dict(zip(found.dead.column("offset").to_pylist(), found.dead.column("reason").to_pylist(), strict=True))

    def outcome(place: str) -> Any:  # noqa: ANN401 - values or a reason
        offset = by_place[place.encode()]
        return good[offset] if offset in good else dead[offset].partition(": at ")[0]

    cologne = f"{FOLDERS[0]}/0.jsonl"
    assert [outcome(f"{cologne}:{line}") for line in (1, 2, 3, 4)] == [
        (2, "Köln/Süd", True),
        (7, None, True),
        "null: month",
        (2, "a", True),
    ]
    assert outcome(f"{FOLDERS[1]}/1.jsonl:1") == "null: month"
    assert outcome(f"{FOLDERS[1]}/1.jsonl:2") == (7, None, None)
    assert outcome(f"{FOLDERS[2]}/2.jsonl:1") == 'wrong type: month: "x" is not a long'
    assert outcome("month=5.jsonl:1") == "missing: month"
    year = Decode((FIELDS[0], Field("year", LongType())))
    of_year = Decoder(SourceNode("x", source, year, EventTime("at", Delay(0)))).decode(raw)
    assert set(of_year.good.column("year").to_pylist()) == {2026}


def test_a_field_of_csv_can_be_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "month=1" / "a.csv", "1")
    names = [Field("month", LongType()), Field("year", LongType()), Field("day", LongType())]
    source = FilesSource((str(tmp_path / "**/*.csv"), str(tmp_path / "year=*/*.csv")), CsvFormat(("at",)))
    node = SourceNode("x", source, Decode((Field("at", LongType()), *names)), EventTime("at", Delay(0)))
    assert [finding.message.partition(",")[0] for finding in record_format(node)] == ["there is no column 'day'"]


@given(
    st.sampled_from(FOLDERS),
    st.sampled_from([*LINES, '{"at": 1, "city": "a", "paid": false}', '{"at": 1, "paid": "true"}']),
)
def test_the_oracle_reads_a_record_with_the_fields_of_its_folder(folder: str, line: str) -> None:
    source = FilesSource((f"{folder.partition('/')[0]}/*/*.jsonl",))
    pipeline = replace(spend(source, SqliteSink("x.db", "x")), decode=Decode(FIELDS), time=EventTime("at", Delay(0)))
    pipeline = replace(pipeline, key=("month",), aggregates=(Aggregate("events", Count()),))
    key = f"{folder.partition('/')[2]}/1.jsonl:1".encode()
    raw = pa.table([[0], [7], pa.nulls(1, RAW.field("log_time").type), [key], [line.encode()]], schema=RAW)
    found = decode(source, raw)
    try:
        fields, reason = read(windowed(pipeline), LogRecord(7, None, line.encode(), key)).fields, None
    except DeadLetterError as exc:
        fields, reason = None, str(exc)
    assert [text.partition(":")[0] for text in found.dead.column("reason").to_pylist()] == [reason] * (fields is None)
    rows = found.good.select([field.name for field in FIELDS[1:]]).to_pylist()
    assert rows == ([] if fields is None else [{name: fields[name] for name in rows[0]}])


def test_files_in_folders_have_the_results_of_a_log_with_their_fields(tmp_path: Path) -> None:
    values = [value for _, value in events(240, partitions=1, malformed_share=0.0) if value is not None]
    whole = Files(tmp_path / "log", 1)
    for hour in range(12):
        part = values[hour * 20 : hour * 20 + 20]
        write(tmp_path / "files" / "day=1" / f"hour={hour}" / "_x=1.jsonl", *(value.decode() for value in part))
        write(tmp_path / "files" / "_temporary" / "day=1" / f"hour={hour}" / "1.jsonl", "not finished")
        whole.append((0, value[:-1] + b', "hour": "%d"}' % hour) for value in part)

    def result(name: str, source: Source, max_records: int) -> list[tuple[Any, ...]]:
        pipeline = spend(source, SqliteSink(str(tmp_path / f"{name}.db"), "spend"))
        decode = Decode((*pipeline.decode.fields, Field("hour", LongType())))
        pipeline = replace(pipeline, decode=decode, aggregates=(Aggregate("hours", Sum("hour")),))
        settings = RunSettings(tmp_path / name, "memory", until_end=True, max_records=max_records)
        assert launch(as_graph(pipeline), settings, lambda _: None, lambda _: None) == "end"
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as db:
            late = db.execute("SELECT partition, offset, event_time FROM spend_late ORDER BY 1, 2, 3").fetchall()
            return [*db.execute("SELECT * FROM spend ORDER BY 1, 3").fetchall(), *late]

    files = FilesSource((str(tmp_path / "files" / "**" / "*.jsonl"),))
    of_log = result("log", whole.source, 240)
    assert len(of_log) > 100
    assert result("a", files, 240) == result("b", files, 37) == of_log


CSV = CsvFormat(("at", "city"))


def write_parquet(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"at": [1] * len(lines)}
    if "null" in lines[0]:
        columns["month"] = [7] * len(lines)
    pq.write_table(pa.table(columns), path)


def write_csv(path: Path, lines: Sequence[str]) -> None:
    write(path, "at,city", *(f"1,{'a' * (len(line) % 2)}" for line in lines))


def write_json(path: Path, lines: Sequence[str]) -> None:
    write(path, *lines)


@pytest.mark.parametrize(
    ("ending", "format_", "write_lines"),
    [("jsonl", "json", write_json), ("csv", CSV, write_csv), ("parquet", "json", write_parquet)],
)
@given(
    st.lists(
        st.tuples(st.sampled_from(["", *FOLDERS]), st.lists(st.sampled_from(LINES), min_size=1)),
        min_size=1,
        max_size=6,
    )
)
@examples(40)
def test_the_fast_decoder_reads_folders_as_the_exact_one(
    ending: str,
    format_: FilesFormat,
    write_lines: Callable[[Path, Sequence[str]], None],
    files: list[tuple[str, list[str]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, lines) in enumerate(files):
            write_lines(Path(folder, name, f"{number}.{ending}"), lines)
        source = FilesSource((f"{folder}/**/*.{ending}",), format_)
        raw = pa.Table.from_batches(open_source(source).read_all(), RAW).combine_chunks()
        exact = [row for at in range(raw.num_rows) for row in outcomes(decode(source, raw.slice(at, 1)))]
        many = pa.concat_tables([raw] * (SMALL_BATCH // raw.num_rows + 1)).combine_chunks()
        assert many.num_rows >= SMALL_BATCH
        fast = Counter(outcomes(decode(source, many)))
    assert fast == Counter(exact * (many.num_rows // raw.num_rows))


def outcomes(decoded: DecodedBatch) -> list[str]:
    """The good records and the dead letters as texts."""
    return [repr(row) for part in (decoded.good, decoded.dead) for row in part.to_pylist()]
