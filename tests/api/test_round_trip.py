"""A pipeline that is printed and read again is the same; any text is a pipeline or a PipelineError."""

import json
import math
import string

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from windrow.api.checks.validate import validate
from windrow.api.printing import to_dict, to_json, to_mermaid, to_python, to_text, to_yaml
from windrow.api.yaml import parse_pipeline
from windrow.errors import PipelineError
from windrow.model import (
    Aggregate,
    Avg,
    BooleanType,
    Count,
    DataType,
    DecimalType,
    Decode,
    Delay,
    DoubleType,
    Emit,
    EventTime,
    Field,
    Function,
    KafkaSource,
    LogSource,
    LongType,
    Max,
    Min,
    Pipeline,
    PostgresSink,
    Punctuated,
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
    Tumbling,
    format_duration,
    parse_duration,
    parse_type,
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
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))
TYPES: st.SearchStrategy[DataType] = st.one_of(
    st.sampled_from([StringType(), BooleanType(), LongType(), DoubleType()]),
    DECIMALS,
    st.builds(TimestampType, st.sampled_from(["seconds", "millis", "micros", "iso"])),
)


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    names = draw(st.lists(NAMES, min_size=4, max_size=9, unique_by=str.lower))
    time, mark, *others = names
    types: dict[str, DataType] = {time: TimestampType("millis"), mark: TimestampType("millis")}
    types |= {name: draw(TYPES) for name in others}
    punctuated = draw(st.booleans())
    functions: list[Function] = [Count()]
    for name in others:
        match types[name]:
            case LongType() | DoubleType():
                functions += [Sum(name), Min(name), Max(name), Avg(name)]
            case DecimalType(precision, scale):
                functions += [Min(name), Max(name)]
                functions += [Sum(name)] if precision <= 28 else []
                functions += [Avg(name)] if precision <= 28 and scale <= 12 else []
            case _:
                continue
    keys = [name for name in others if types[name] != DoubleType()]
    key = tuple(draw(st.permutations(keys)))[: draw(st.integers(1, 3))] or (time,)
    results = draw(st.lists(NAMES, min_size=1, max_size=4, unique_by=str.lower))
    size = draw(st.integers(1, MOST))
    sink_key = draw(st.sampled_from([(), ("window_start", *key), (*key, "window_end", "window_start")]))
    return Pipeline(
        name=draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)),
        source=draw(
            st.one_of(
                PATHS.map(LogSource),
                st.builds(
                    KafkaSource,
                    servers=st.sampled_from(["localhost:9092", "a:1,b:2"]),
                    topic=st.text(string.ascii_letters, min_size=1),
                    start=st.sampled_from(["earliest", "latest"]),
                    options=st.dictionaries(PLAIN, PATHS, max_size=3).map(lambda options: tuple(options.items())),
                ),
            )
        ),
        decode=Decode(tuple(Field(name, type_) for name, type_ in types.items())),
        time=EventTime(
            time, Punctuated(mark) if punctuated else Delay(draw(LENGTHS)), draw(st.one_of(st.none(), LENGTHS))
        ),
        key=key,
        window=Tumbling(size, draw(st.integers(0, size - 1))),
        aggregates=tuple(Aggregate(name, draw(st.sampled_from(functions))) for name in results),
        emit=Emit(
            draw(LENGTHS), draw(st.sampled_from(["each", "batch"])), "retract", draw(st.sampled_from(["fire", "hold"]))
        ),
        sink=draw(
            st.one_of(
                st.builds(
                    SqliteSink,
                    path=PATHS,
                    table=PLAIN,
                    key=st.just(sink_key),
                    decimals=st.sampled_from(["numeric", "text"]),
                ),
                st.builds(
                    PostgresSink,
                    url=st.sampled_from(["postgresql://", "postgres://me@h:1/db?sslmode=require", "postgresql:///x"]),
                    table=st.tuples(PLAIN, PLAIN).map(".".join),
                    key=st.just(sink_key),
                ),
            )
        ),
        key_groups=draw(st.integers(1, 32_768)),
    )


def sound(pipeline: Pipeline) -> bool:
    return not any(finding.level == "error" for finding in validate(pipeline))


def shows_all(pipeline: Pipeline) -> bool:
    """Whether nothing in it looks like a secret."""
    return "***" not in to_json(pipeline)


VALID = pipelines().filter(sound).filter(shows_all)


@settings(deadline=None)
@given(VALID)
def test_what_is_printed_reads_back(pipeline: Pipeline) -> None:
    text = to_yaml(pipeline)
    assert parse_pipeline(text) == pipeline
    assert yaml.safe_load(text) == to_dict(pipeline)
    assert json.loads(to_json(pipeline)) == to_dict(pipeline)
    assert eval(to_python(pipeline), {"wr": wr}) == pipeline  # noqa: S307 its own print-out


@settings(deadline=None)
@given(VALID)
def test_text_and_chart_hold_every_name(pipeline: Pipeline) -> None:
    text, chart = to_text(pipeline), to_mermaid(pipeline)
    for field in pipeline.decode.fields:
        assert f"{field.name} {field.type}" in text
    assert chart.startswith("flowchart LR\n")
    assert pipeline.sink.table in chart


def assert_read_or_refused(text: str) -> None:
    try:
        parse_pipeline(text, "a.yaml")
    except PipelineError as exc:
        refused = str(exc)
    else:
        return
    assert refused.startswith("a.yaml:")


@settings(deadline=None)
@given(st.one_of(st.text(), st.text(alphabet=string.printable)))
def test_any_text_is_a_pipeline_or_a_pipeline_error(text: str) -> None:
    assert_read_or_refused(text)


NODES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.sampled_from(["5m", "sum(x)", "t"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "log",
                    "kafka",
                    "sqlite",
                    "postgres",
                    "path",
                    "table",
                    "url",
                    "field",
                    "delay",
                    "tumbling",
                    "size",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


@given(
    VALID, st.sampled_from(["name", "source", "decode", "time", "key", "window", "aggregate", "emit", "sink"]), NODES
)
def test_any_section_is_read_or_refused(pipeline: Pipeline, section: str, node: object) -> None:
    text = yaml.safe_dump(to_dict(pipeline) | {section: node}, sort_keys=False, allow_unicode=True)
    assert_read_or_refused(text)


@given(st.integers(0, 10**24))
def test_durations_read_back(micros: int) -> None:
    assert parse_duration(format_duration(micros)) == micros


@given(TYPES)
def test_types_read_back(type_: DataType) -> None:
    assert parse_type(str(type_)) == type_


def test_the_longest_duration_is_a_hundred_years() -> None:
    assert math.isclose(MOST / 1e6 / 86_400 / 365, 100)
