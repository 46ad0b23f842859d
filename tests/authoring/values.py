"""Pipelines of every kind, for properties."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

from hypothesis import strategies as st
from tests.graphs import as_graph
from tests.short_forms import Pipeline

from windrow.authoring.checks import validate
from windrow.authoring.printing import to_json
from windrow.connectors.delta.connector import DeltaSink
from windrow.connectors.duckdb.connector import DuckDBSink
from windrow.connectors.jsonl.connector import JsonlSink
from windrow.connectors.parquet.connector import ParquetSink
from windrow.model import (
    DEFAULT_ALERTS,
    OFF,
    Adaptive,
    Aggregate,
    Alerts,
    AllOf,
    AnyOf,
    ApproxCountDistinct,
    ApproxQuantile,
    ArrayType,
    Avg,
    AvroFormat,
    BoolAnd,
    BooleanType,
    BoolOr,
    BottomKBy,
    Calendar,
    CheckpointLimit,
    CollectList,
    CollectSet,
    Count,
    CountDistinct,
    CsvFormat,
    Cumulate,
    DataType,
    DecimalType,
    Decode,
    Delay,
    DelayByPartition,
    Derive,
    DoubleType,
    Emit,
    EventTime,
    Every,
    EveryEventTime,
    Field,
    FileSource,
    FilesSource,
    First,
    Formula,
    Function,
    Global,
    Hopping,
    JsonSchemaFormat,
    KafkaSink,
    KafkaSource,
    LagLimit,
    Last,
    Late,
    LatencyLimit,
    ListForm,
    LogSource,
    LongType,
    Max,
    MaxBy,
    Min,
    MinBy,
    Mode,
    PostgresCdcSource,
    PostgresSink,
    ProtobufFormat,
    ProtobufMessage,
    Punctuated,
    Quantile,
    RecentLimit,
    Records,
    Registry,
    Repeat,
    Session,
    ShareLimit,
    Sink,
    SpikeLimit,
    SqliteSink,
    Stddev,
    StringType,
    StructType,
    Sum,
    TimeLimit,
    TimestampType,
    TopK,
    TopKBy,
    Trigger,
    Tumbling,
    Variance,
    Window,
)

WORDS = [
    "user",
    "on",
    "no",
    "null",
    "~",
    "1",
    "1.5",
    "true",
    "2026-01-01",
    "a: b",
    "a, b",
    "a) where (b",
    '"a, b"',
    "#x",
    "{a}",
    "'",
    '"',
    "class",
]
NAMES = st.one_of(
    st.sampled_from(WORDS),
    st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=12),
).filter(lambda name: name.isprintable() and name == name.strip())
PATHS = st.text(st.characters(exclude_categories=["Cs", "Cn"], exclude_characters="\0"), min_size=1, max_size=30)
PLAIN = st.from_regex(r"[a-z_][a-z0-9_]{0,20}", fullmatch=True).filter(
    lambda name: not name.startswith(("sqlite_", "windrow_"))
)
MOST = 36_500 * 86_400_000_000
LENGTHS = st.one_of(st.integers(0, MOST), st.sampled_from([0, 1, 60_000_000, 5_400_000_000]))
LONGER = LENGTHS.filter(bool)
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))
TIMES = st.builds(TimestampType, st.sampled_from(["seconds", "millis", "micros", "iso"]))
TYPES: st.SearchStrategy[DataType] = st.one_of(
    st.sampled_from([StringType(), BooleanType(), LongType(), DoubleType()]), DECIMALS, TIMES
)
ARRAYS: st.SearchStrategy[ArrayType] = st.deferred(lambda: st.builds(ArrayType, TYPES | STRUCTS, st.booleans()))
STRUCTS: st.SearchStrategy[StructType] = st.lists(
    st.builds(Field, NAMES, TYPES | ARRAYS, st.booleans()),
    min_size=1,
    max_size=3,
    unique_by=lambda field: field.name.lower(),
).map(lambda fields: StructType(tuple(fields)))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@st.composite
def tumblings(draw: st.DrawFn) -> Tumbling:
    size = draw(LONGER)
    return Tumbling(size, draw(st.integers(0, size - 1)))


@st.composite
def hoppings(draw: st.DrawFn) -> Hopping:
    slide = draw(LONGER)
    return Hopping(draw(st.integers(1, min(MOST, slide * 10_000))), slide, draw(st.integers(0, slide - 1)))


@st.composite
def cumulates(draw: st.DrawFn) -> Cumulate:
    steps = draw(st.integers(1, 10_000))
    step = draw(st.integers(1, MOST // steps))
    return Cumulate(steps * step, step, draw(st.integers(0, steps * step - 1)))


CALENDARS = st.builds(
    Calendar,
    count=st.integers(1, 1_200),
    unit=st.sampled_from(["hour", "day", "week", "month"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]),
    offset=st.sampled_from([0, 1, 3_599_999_999]),
    origin=st.none() | st.dates().filter(lambda day: day.day <= 28),
)
WINDOWS: st.SearchStrategy[Window] = st.one_of(
    tumblings(),
    hoppings(),
    cumulates(),
    CALENDARS,
    st.builds(Session, LONGER, st.sampled_from([None, "60 + 0.5"])),
    st.just(Global()),
)
COUNTS: st.SearchStrategy[Trigger] = st.builds(Records, st.integers(1, 10**6))
AT_ENDS: st.SearchStrategy[Literal["fire", "hold"]] = st.sampled_from(["fire", "hold"])
LATES: st.SearchStrategy[Literal["each", "batch"]] = st.sampled_from(["each", "batch"])
COUNTED: st.SearchStrategy[Late] = st.builds(Records, st.integers(1, 10**6))
MODES: st.SearchStrategy[Mode] = st.sampled_from(["retract", "accumulate", "discard"])
TICKS: st.SearchStrategy[Trigger] = st.builds(Every, LONGER)
EVENT_TIMES: st.SearchStrategy[Trigger] = st.builds(EveryEventTime, LONGER)


def composed(leaves: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    def around(inner: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
        parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.one_of(
            st.builds(AnyOf, parts), st.builds(AllOf, parts), st.builds(Repeat, inner, st.integers(1, 10**6))
        )

    return st.recursive(leaves, around, max_leaves=4)


@st.composite
def emits(draw: st.DrawFn, window: Window) -> Emit:
    at_end, mode = draw(AT_ENDS), draw(MODES)
    early = EVENT_TIMES | (composed(COUNTS) if mode == "discard" else composed(st.one_of(COUNTS, TICKS)))
    if isinstance(window, Global):
        return Emit(mode=mode, at_end=at_end, early=draw(early))
    late = draw(LATES | COUNTED)
    if isinstance(window, Session):
        late = draw(LATES)
        mode = draw(MODES.filter(lambda mode: mode != "discard"))
        early = st.recursive(TICKS | COUNTS, lambda one: st.lists(one, min_size=2, max_size=3).map(tuple).map(AnyOf))
    return Emit(draw(LENGTHS), late, mode, at_end, draw(st.one_of(st.none(), early)))


@st.composite
def times(draw: st.DrawFn, time: str, mark: str, sent: str) -> EventTime:
    least, most = sorted([draw(LENGTHS), draw(LENGTHS)])
    watermark = draw(
        st.one_of(
            st.builds(Delay, LENGTHS),
            st.builds(
                DelayByPartition,
                LENGTHS,
                st.dictionaries(st.integers(0, 99), LENGTHS, min_size=1).map(lambda own: tuple(sorted(own.items()))),
            ),
            st.builds(Adaptive, st.floats(0, 1, exclude_min=True), st.just(least), st.just(most)),
            st.just(Punctuated(mark)),
        )
    )
    idle = draw(st.one_of(st.none(), LONGER))
    return EventTime(
        time,
        watermark,
        draw(st.one_of(st.none(), LENGTHS)),
        draw(st.sampled_from([None, sent])),
        idle,
        draw(st.sampled_from(["hold"] if idle is None else ["hold", "advance"])),
        None if isinstance(watermark, Punctuated) else draw(st.one_of(st.none(), LENGTHS)),
    )


def each(
    kinds: Iterable[Callable[..., Function]], *arguments: st.SearchStrategy[Any]
) -> list[st.SearchStrategy[Function]]:
    return [st.builds(kind, *arguments) for kind in kinds]


def functions(fields: dict[str, DataType]) -> st.SearchStrategy[Function]:
    """What can be computed of some fields, and of expressions over them."""
    of = st.sampled_from([*fields, *(f"concat({quoted(name)},\n ', )')" for name in fields)])
    fraction, most, by = st.floats(0, 1), st.integers(1, 100_000), st.sampled_from(["time", "log"])
    condition = st.sampled_from([f"{quoted(name)} > 'x'" for name in fields])
    numbers = [name for name, type_ in fields.items() if isinstance(type_, LongType | DoubleType | DecimalType)]
    found = [
        st.just(Count()),
        *each((Min, Max, CountDistinct, ApproxCountDistinct), of),
        *each((TopK, CollectSet), of, most),
        *each((CollectList,), of, most, by),
        *each((First, Last), of, by),
        *each((MaxBy, MinBy), of, of),
        *each((TopKBy, BottomKBy), of, of, most),
        *each((BoolAnd, BoolOr), condition),
    ]
    if numbers:
        found += each((Quantile, ApproxQuantile), st.sampled_from(numbers), fraction)
        found += each((Sum, Avg, Variance, Stddev), st.sampled_from(numbers))
    return st.one_of(found)


@st.composite
def aggregates(draw: st.DrawFn, fields: dict[str, DataType]) -> tuple[Aggregate, ...]:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique_by=str.lower))
    where = st.one_of(st.none(), st.sampled_from([f"{quoted(name)} is not null or ')' = ', '" for name in fields]))
    found = [Aggregate(name, draw(functions(fields)), draw(where)) for name in names]
    if len(found) > 1 and draw(st.booleans()):
        sql = draw(st.sampled_from([f"concat({quoted(names[0])}, ', ')", f"{quoted(names[0])} is null"]))
        found[-1] = Aggregate(names[-1], Formula(sql))
    return tuple(found)


TABLES = st.builds(
    PostgresCdcSource,
    url=st.just("postgresql://me@localhost/shop"),
    table=PATHS,
    into=st.builds(LogSource, PATHS)
    | st.builds(
        KafkaSource,
        st.just("localhost:9092"),
        PLAIN,
        options=st.sampled_from([(), (("security.protocol", "SSL"),)]),
    ),
    key=st.lists(PLAIN, max_size=2, unique=True).map(tuple),
    slot=st.none() | st.just("orders_1"),
    publication=st.none() | PLAIN,
)
_SCHEMAS = st.one_of(
    st.sampled_from(
        [
            AvroFormat('{"fields": [{"name": "a: \'#", "type": "string"}], "name": "r", "type": "record"}'),
            ProtobufFormat(ProtobufMessage("CgA=", "a.B")),
        ]
    ),
    st.just(AvroFormat(Registry("http://a:8081"), '{"fields": [], "name": "r", "type": "record"}')),
    st.builds(
        lambda make, options, missing: make(Registry("http://a:8081", tuple(options.items()), tuple(missing))),
        st.sampled_from([AvroFormat, ProtobufFormat, JsonSchemaFormat]),
        st.dictionaries(PLAIN, PATHS, max_size=2),
        st.lists(st.integers(0, 9), max_size=2),
    ),
)
_FORMATS = st.sampled_from(["json", "debezium", CsvFormat(("a", "b c", "#"), "\t")]) | _SCHEMAS
SOURCES = st.one_of(
    PATHS.map(LogSource),
    st.builds(
        FilesSource,
        path=st.lists(PATHS, min_size=1, max_size=2).map(tuple),
        format=st.sampled_from(["json", "debezium", CsvFormat(("a", "b c", "#"), "\t")]),
        header=st.booleans(),
    ),
    st.builds(
        KafkaSource,
        servers=st.sampled_from(["localhost:9092", "a:1,b:2"]),
        topic=st.text(string.ascii_letters, min_size=1),
        start=st.sampled_from(["earliest", "latest"]),
        options=st.dictionaries(PLAIN, PATHS, max_size=3).map(lambda options: tuple(options.items())),
        format=_FORMATS,
        key_format=st.none() | st.sampled_from(["text", "json", "binary"]) | _SCHEMAS,
    ),
)
_OTHER_SINKS: st.SearchStrategy[Sink] = st.one_of(
    st.builds(JsonlSink, PATHS, PLAIN),
    st.builds(
        KafkaSink,
        servers=st.just("a:1"),
        topic=st.text(string.ascii_letters, min_size=1),
        format=st.sampled_from(["json", "upsert"]),
        options=st.sampled_from([(), (("security.protocol", "SSL"),)]),
        encoding=st.sampled_from(
            [None, *(make(Registry("http://a:8081")) for make in (AvroFormat, ProtobufFormat, JsonSchemaFormat))]
        ),
        subject=st.none() | st.just("acme.Spend"),
        key_subject=st.none() | st.just("acme.Key"),
    ),
)


@st.composite
def sinks(draw: st.DrawFn, key: tuple[str, ...], emit: Emit) -> Sink:
    revision = ("revision",) if emit.mode == "discard" else ()
    chosen = draw(
        st.sampled_from([(), ("window_start", *key, *revision), (*key, *revision, "window_end", "window_start")])
    )
    changelog, partitions = draw(st.booleans()), draw(st.sampled_from([(), ("a", "b")]))
    lists: ListForm = draw(st.sampled_from(["json", "array"]))
    match draw(st.sampled_from(["sqlite", "duckdb", "postgres", "delta", "parquet", "others"])):
        case "sqlite":
            return SqliteSink(draw(PATHS), draw(PLAIN), chosen, draw(st.sampled_from(["numeric", "text"])), changelog)
        case "duckdb":
            return DuckDBSink(draw(PATHS), draw(PLAIN), chosen, changelog, lists)
        case "delta":
            return DeltaSink(draw(PATHS), draw(PLAIN), chosen, changelog, partitions, lists)
        case "parquet":
            return ParquetSink(draw(PATHS), draw(PLAIN), partitions, lists)
        case "others":
            return draw(_OTHER_SINKS)
        case _:
            url = draw(st.sampled_from(["postgresql://", "postgres://me@h:1/db?sslmode=require", "postgresql:///x"]))
            schema = draw(st.none() | PLAIN)
            return PostgresSink(url, draw(PLAIN), chosen, changelog, draw(st.booleans()), schema, lists)


@st.composite
def declared(draw: st.DrawFn, name: str, type_: DataType, *, may_lack: bool) -> Field:
    """Draw a field with other names (which no field has) and, if it may be lacking, optional."""
    alias = draw(st.lists(NAMES, max_size=2, unique_by=str.lower))
    own = tuple(f"{name} also {index} {other}" for index, other in enumerate(alias))
    return Field(name, type_, may_lack and draw(st.booleans()), own)


@st.composite
def decodes(draw: st.DrawFn, fields: tuple[Field, ...], time: EventTime) -> Decode:
    """Draw which field takes the keys of tombstones, where the others may be null."""
    mark = time.watermark.field if isinstance(time.watermark, Punctuated) else None
    needed = [one for one in fields if not one.optional and one.name not in {time.field, time.sent, mark}]
    takes = len(needed) == 1 and isinstance(needed[0].type, StringType | LongType) and draw(st.booleans())
    return Decode(tuple(replace(one, tombstones=takes and one is needed[0]) for one in fields))


SPANS = LENGTHS.map(lambda length: max(length, 1_000_000))
SHARES = st.floats(0, 1, exclude_min=True, exclude_max=True)
SHARE_LIMITS = st.just(OFF) | st.builds(ShareLimit, SHARES, SPANS)
TIME_LIMITS = st.just(OFF) | st.builds(TimeLimit, SPANS)
ALERTS = st.just(DEFAULT_ALERTS) | st.builds(
    Alerts,
    lag=st.just(OFF) | st.builds(LagLimit, LONGER, st.none() | st.integers(1), SPANS),
    no_step=st.builds(TimeLimit, st.none()) | TIME_LIMITS,
    watermark_stuck=TIME_LIMITS,
    latency=st.just(OFF) | st.builds(LatencyLimit, LONGER, SPANS),
    late_spike=st.just(OFF) | st.builds(SpikeLimit, st.floats(1, 1e9, exclude_min=True), SHARES, SPANS),
    expired_share=SHARE_LIMITS,
    dead_letters=SHARE_LIMITS,
    internal_errors=st.just(OFF) | st.builds(RecentLimit, SPANS),
    sink_errors=TIME_LIMITS,
    checkpoint=st.just(OFF) | st.builds(CheckpointLimit, st.none() | SPANS),
    backpressure=TIME_LIMITS,
    partition_idle=TIME_LIMITS,
    hot_key=SHARE_LIMITS,
    webhook=st.sampled_from([None, "https://hooks.example.com", "http://h:8080/", "${ALERTS_URL}", "${file:/run/url}"]),
    command=st.lists(PATHS, max_size=3).map(tuple),
)


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    names = draw(st.lists(NAMES, min_size=5, max_size=9, unique_by=str.lower))
    time, mark, sent, domain, *others = names
    unit = draw(TIMES)
    types: dict[str, DataType] = {time: unit, mark: unit, sent: draw(TIMES)} | {name: draw(TYPES) for name in others}
    derive = draw(st.sampled_from([(), (Derive(domain, f"concat({quoted(others[0])},\n '#: ')"),)]))
    data = {name: type_ for name, type_ in types.items() if name != mark}
    data |= {one.name: StringType() for one in derive}
    keys = [name for name in data if data[name] != DoubleType() and name not in others]
    key = tuple(draw(st.permutations(keys)))[: draw(st.integers(0, 3))]
    window = draw(WINDOWS)
    emit = draw(emits(window))
    groups = draw(st.integers(1, 32_768))
    spreads = emit.early is None and not isinstance(window, Session)
    told = draw(times(time, mark, sent))
    fields = tuple(draw(declared(name, type_, may_lack=name in others)) for name, type_ in types.items())
    return Pipeline(
        name=draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)),
        source=draw(st.one_of(SOURCES, st.builds(FileSource, st.just("rates.csv"), st.just((time,)), PATHS), TABLES)),
        decode=draw(decodes(fields, told)),
        time=told,
        key=key,
        window=window,
        aggregates=draw(aggregates(data)),
        emit=emit,
        sink=draw(sinks(key, emit)),
        key_groups=groups,
        derive=derive,
        salt=draw(st.integers(1, groups)) if spreads else 1,
        alerts=draw(ALERTS),
    )


def sound(pipeline: Pipeline) -> bool:
    return not any(finding.level == "error" for finding in validate(as_graph(pipeline)))


def shows_all(pipeline: Pipeline) -> bool:
    """Whether nothing in it looks like a secret."""
    return "***" not in to_json(as_graph(pipeline))


VALID = pipelines().filter(sound).filter(shows_all)
