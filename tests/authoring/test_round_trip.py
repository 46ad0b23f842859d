"""A pipeline that is printed and read again is the same; any text is a pipeline or a PipelineError."""

import json
import math
import string

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.authoring.values import ARRAYS, MOST, TYPES, VALID
from tests.examples import examples
from tests.graphs import as_graph, parse_short, python_of
from tests.short_forms import Pipeline

import windrow as wr
from windrow.authoring.checks import validate
from windrow.authoring.pipeline_file import read_document
from windrow.authoring.printing import to_dict, to_json, to_mermaid, to_python_file, to_text, to_yaml
from windrow.errors import PipelineError
from windrow.model import (
    ArrayType,
    ChangesNode,
    DataType,
    Decode,
    Delay,
    EventTime,
    Field,
    FlatMapNode,
    Graph,
    LogSource,
    LongType,
    PostgresCdcSource,
    SinkNode,
    SourceNode,
    SqliteSink,
    TableNode,
    TimestampType,
    format_duration,
    parse_duration,
    parse_field_type,
)


@settings(deadline=None)
@given(VALID)
def test_what_is_printed_reads_back(pipeline: Pipeline) -> None:
    text = to_yaml(as_graph(pipeline))
    assert parse_short(text) == pipeline
    # only a reference to a variable needs its escape
    assert yaml.safe_load(text.replace("$${", "${")) == to_dict(as_graph(pipeline))
    assert json.loads(to_json(as_graph(pipeline))) == to_dict(as_graph(pipeline))
    assert eval(python_of(pipeline), {"wr": wr}).graph == as_graph(pipeline)  # noqa: S307 its own print-out


@examples(15)
@given(VALID)
def test_text_and_chart_hold_every_name(pipeline: Pipeline) -> None:
    text, chart = to_text(as_graph(pipeline)), to_mermaid(as_graph(pipeline))
    for field in pipeline.decode.fields:
        assert f"{field.name} {field.type}" in text
    assert chart.startswith("flowchart LR\n")
    assert pipeline.sink.table in chart


def assert_read_or_refused(text: str) -> None:
    try:
        parse_short(text, "a.yaml")
    except PipelineError as exc:
        refused = str(exc)
    else:
        return
    assert refused.startswith("a.yaml:")


@settings(deadline=None)
@given(st.one_of(st.text(), st.text(alphabet=string.printable)))
def test_any_text_is_a_pipeline_or_a_pipeline_error(text: str) -> None:
    assert_read_or_refused(text)


KEYS = [
    *("log", "kafka", "sqlite", "postgres", "path", "table", "url", "field", "delay", "adaptive", "target", "min"),
    *("max", "idle", "tumbling", "hopping", "size", "slide", "zone", "session", "global", "early", "every", "count"),
    *("any_of", "repeat", "trigger", "times", "x"),
]
SECTIONS = ["name", "source", "decode", "derive", "time", "key", "window", "aggregate", "emit", "sink", "salt"]
NODES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.text(max_size=8),
        st.sampled_from(["5m", "1 day", "sum(x)", "top_k(x, 3) where y", "t"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)


@examples(15)
@given(VALID, st.sampled_from(SECTIONS), NODES)
def test_any_section_is_read_or_refused(pipeline: Pipeline, section: str, node: object) -> None:
    text = yaml.safe_dump(to_dict(as_graph(pipeline)) | {section: node}, sort_keys=False, allow_unicode=True)
    assert_read_or_refused(text)


@given(st.integers(0, 10**24))
def test_durations_read_back(micros: int) -> None:
    assert parse_duration(format_duration(micros)) == micros


@given(TYPES | ARRAYS, st.booleans())
def test_types_read_back(type_: DataType, optional: bool) -> None:  # noqa: FBT001 - drawn
    field = Field("x", type_, optional)
    assert parse_field_type(field.type_text) == (type_, optional)


@examples(25)
@given(ARRAYS, st.booleans(), st.sampled_from([None, "line"]))
def test_arrays_of_a_graph_read_back(items: ArrayType, outer: bool, position: str | None) -> None:  # noqa: FBT001 - drawn
    fields = (Field("t", TimestampType("millis")), Field("items", items, optional=outer))
    graph = Graph(
        "orders",
        (
            SourceNode("log", LogSource("data"), Decode(fields), EventTime("t", Delay(0)), lateness=0),
            FlatMapNode("lines", "log", "items", position=position, outer=outer),
            SinkNode("to_lines", "lines", SqliteSink("a.db", "lines")),
        ),
    )
    text = to_yaml(graph)
    assert read_document(text, "orders.yaml").pipeline == graph
    assert yaml.safe_load(text) == to_dict(graph)


def test_the_tables_of_a_source_read_back() -> None:
    source = PostgresCdcSource("postgresql://h/d", "", LogSource("data"), tables=("orders", 'shop."Lines"'))
    at = Field("t", TimestampType("millis"), path=("source", "ts_ms"))
    graph = Graph(
        "orders",
        (
            SourceNode("shop", source, Decode((at,)), EventTime("t", Delay(0)), lateness=0),
            ChangesNode("orders", "shop", "orders", Decode((Field("id", LongType()),))),
            ChangesNode(
                "lines", "shop", 'shop."Lines"', Decode((Field("n", LongType()), Field("m", LongType(), optional=True)))
            ),
            TableNode("order", "orders", ("id",)),
            TableNode("line", "lines", ("n",)),
            SinkNode("to_order", "order", SqliteSink("a.db", "order_")),
            SinkNode("to_line", "line", SqliteSink("a.db", "line")),
        ),
    )
    text = to_yaml(graph)
    assert read_document(text, "orders.yaml").pipeline == graph
    assert yaml.safe_load(text) == to_dict(graph)
    assert [finding for finding in validate(graph) if finding.level == "error"] == []
    assert "the changes of the table orders" in to_text(graph)
    assert "changes of orders" in to_mermaid(graph)
    assert eval_file(to_python_file(graph)) == graph


def eval_file(text: str) -> Graph:
    made: dict[str, wr.Pipeline] = {}
    exec(text, made)  # noqa: S102 its own print-out
    return made["pipeline"].graph


def test_the_longest_duration_is_a_hundred_years() -> None:
    assert math.isclose(MOST / 1e6 / 86_400 / 365, 100)
