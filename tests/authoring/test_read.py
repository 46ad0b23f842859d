"""What the YAML reader makes of files that are well."""

import json
from datetime import date
from pathlib import Path

import pytest
import yaml
from tests.graphs import graph_of, parse_short
from tests.short_forms import Pipeline

import windrow as wr
from windrow.authoring.pipeline_file import parse_pipeline, read_document
from windrow.authoring.sections import STORY, StoryPipeline
from windrow.declare.yaml_node import YamlNode
from windrow.errors import ManyProblemsError, PipelineError, Place, each_error
from windrow.model import (
    Adaptive,
    Aggregate,
    AllOf,
    AnyOf,
    Avg,
    Calendar,
    Count,
    Cumulate,
    Delay,
    Derive,
    Emit,
    EventTime,
    Every,
    Formula,
    Global,
    Hopping,
    KafkaSource,
    Max,
    Min,
    PostgresSink,
    Punctuated,
    Quantile,
    Records,
    Repeat,
    Session,
    SqliteSink,
    Sum,
    TopK,
    Tumbling,
    Window,
)

MAIN_JOB = """\
name: user-spend
source: {log: {path: data/spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 10m, future: 1h}
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount), events: count()}
emit: {lateness: 1h, late: each, mode: retract}
sink: {sqlite: {path: spend.db, table: user_spend_5m}}
"""
FLUENT = (
    wr.log("data/spend")
    .decode(user_id="string", event_time="timestamp_millis", amount="decimal(12,2)")
    .event_time("event_time", delay="10m", future="1h")
    .key_by("user_id")
    .window(wr.tumbling("5m"))
    .aggregate(total=wr.sum("amount"), events=wr.count())
    .emit(late="each", mode="retract", lateness="1h")
    .to(wr.sqlite("spend.db", table="user_spend_5m"), name="user-spend")
)


def sections(text: str) -> StoryPipeline:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert node is not None
    return STORY.read(YamlNode(node, "story.yaml"))


def test_yaml_and_fluent_are_one_model() -> None:
    assert parse_pipeline(MAIN_JOB) == FLUENT.graph


def test_a_file_reads_as_its_text_does(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"\ufeff{MAIN_JOB}", encoding="utf-8")
    assert wr.load(path).graph == wr.load(str(path)).graph == FLUENT.graph


def test_json_may_write_a_character_as_a_surrogate_pair() -> None:
    written = MAIN_JOB.replace("user_id", '"\U0001f600"')
    text = json.dumps(yaml.safe_load(written))
    assert "\\ud83d\\ude00" in text
    assert parse_pipeline(text) == parse_pipeline(written)


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00", "\\ude00\\ud83d", "\\ud83dx\\ude00", "\\ud83d\\ud83d\\ude00"])
def test_half_of_a_surrogate_pair_has_its_line(half: str) -> None:
    text = MAIN_JOB.replace("amount:", f'"{half}":')
    with pytest.raises(PipelineError, match="half of a surrogate pair") as refused:
        parse_pipeline(text)
    assert refused.value.place is not None
    assert refused.value.place.line == 3


def test_all_of_kafka_and_postgres() -> None:
    text = """
source:
  kafka:
    servers: "a:1,b:2"
    topic: 2024
    start: latest
    options: {security.protocol: SSL, session.timeout.ms: 6000, check.crcs: true}
    group: spend-lag
sink: {postgres: {url: "postgresql://", table: stats.t, key: user_id}}
key_groups: 64
"""
    pipeline = graph_of(read_document(_replaced(text), "x.yaml").pipeline, Pipeline)
    assert pipeline.source == KafkaSource(
        "a:1,b:2",
        "2024",
        "latest",
        (("security.protocol", "SSL"), ("session.timeout.ms", "6000"), ("check.crcs", "true")),
        "spend-lag",
    )
    assert pipeline.sink == PostgresSink("postgresql://", "stats.t", ("user_id",))
    assert pipeline.key_groups == 64


def test_all_of_sqlite() -> None:
    text = "sink: {sqlite: {path: a.db, table: t, key: [window_start, user_id], decimals: text, changelog: false}}"
    sink = SqliteSink("a.db", "t", ("window_start", "user_id"), "text", changelog=False)
    assert parse_short(_replaced(text)).sink == sink


@pytest.mark.parametrize(
    ("written", "changelog"), [("", True), (", changelog: true", True), (", changelog: false", False)]
)
def test_a_changelog_or_none(written: str, changelog: bool) -> None:  # noqa: FBT001 - a case
    text = f"sink: {{postgres: {{url: 'postgresql://', table: t{written}}}}}"
    assert parse_short(_replaced(text)).sink == PostgresSink("postgresql://", "t", changelog=changelog)


def test_sections_of_a_story() -> None:
    read = sections("""
time: {field: t, punctuated: w, future: 1m30s}
key: user
window: {tumbling: {size: 1h, offset: 250ms}}
aggregate: {a: count(), b: sum(x), c: "min( y z )", d: max(no), e: avg (x)}
emit: {lateness: 10m, late: batch, mode: retract, at_end: hold}
""")
    assert read == StoryPipeline(
        time=EventTime("t", Punctuated("w"), 90_000_000),
        key=("user",),
        window=Tumbling(3_600_000_000, 250_000),
        aggregates=(
            Aggregate("a", Count()),
            Aggregate("b", Sum("x")),
            Aggregate("c", Min("y z")),
            Aggregate("d", Max("no")),
            Aggregate("e", Avg("x")),
        ),
        emit=Emit(600_000_000, "batch", "retract", "hold"),
    )


def test_emit_may_be_left_out() -> None:
    read = sections("{time: {field: t, delay: 0s}, key: [u], window: {tumbling: 1us}, aggregate: {n: count()}}")
    assert read.emit == Emit()
    assert read.time == EventTime("t", Delay(0))


def test_what_yaml_takes_for_something_else_is_a_name_here() -> None:
    read = sections(
        "{time: {field: on, delay: 1s}, key: [yes, 1, 1.50], window: {tumbling: 1s}, aggregate: {no: count()}}"
    )
    assert read.key == ("yes", "1", "1.50")
    assert read.time.field == "on"
    assert read.aggregates == (Aggregate("no", Count()),)


def test_a_story_has_no_source() -> None:
    with pytest.raises(PipelineError, match=r"story.yaml:1: 'source' is not a key of the pipeline") as refused:
        sections("source: {log: {path: x}}")
    errors = each_error(refused.value)
    assert isinstance(refused.value, ManyProblemsError)
    assert errors[0].place == Place("story.yaml", 1)
    assert len(errors) == 4


def test_one_value_may_stand_in_two_places() -> None:
    text = MAIN_JOB.replace("delay: 10m", "delay: &long 1h").replace("lateness: 1h", "lateness: *long")
    assert parse_short(text).emit.lateness == 3_600_000_000


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("name", 1),
        ("source.log.path", 3),
        ("decode.user.id", 6),
        ("decode.user", 5),
        ("key.1", 10),
        ("key.7", 8),
        ("time.delay", 7),
        ("time.future", 7),
        ("emit.lateness", 1),
        ("sink.sqlite.key.0", 14),
    ],
)
def test_a_part_has_its_line(where: str, line: int) -> None:
    text = """\
name: x
source:
  log: {path: a}
decode:
  user: string
  user.id: string
time: {field: t, delay: 1s}
key:
  - user
  - user.id
window: {tumbling: 1s}
aggregate: {n: count()}
sink:
  sqlite: {path: a, table: t, key: [window_start]}
"""
    assert read_document(text, "x.yaml").place(where) == Place("x.yaml", line)


def _replaced(sections_text: str) -> str:
    """Put other top-level sections into the main job."""
    merged = yaml.safe_load(MAIN_JOB) | yaml.safe_load(sections_text)
    return str(yaml.safe_dump(merged, sort_keys=False))


def test_all_that_a_story_can_say_of_windows_time_and_triggers() -> None:
    read = sections("""
derive: {twice: amount * 2}
time: {field: t, delay: {adaptive: {target: 0.999, min: 10s, max: 10m}}, sent: s, idle: 1m, all_idle: advance}
key: [user, {domain: "split_part(url, '/', 3)", path: url}]
window: {tumbling: {size: 2 weeks, zone: Europe/Berlin, offset: 6h}}
aggregate:
  buys: count() where kind = 'buy'
  paid: sum(price * greatest(quantity, 1)) where kind in ('buy', 'rent')
  p99: quantile(amount, 0.99)
  top: top_k("a, b", 3)
  mean: paid / buys
emit: {early: {all_of: [{every: 30s}, {repeat: {trigger: {any_of: [{count: 2}, {count: 3}]}, times: 4}}]}}
salt: 4
""")
    assert read == StoryPipeline(
        derive=(Derive("twice", "amount * 2"), Derive("domain", "split_part(url, '/', 3)"), Derive("path", "url")),
        time=EventTime("t", Adaptive(0.999, 10_000_000, 600_000_000), None, "s", 60_000_000, "advance"),
        key=("user", "domain", "path"),
        window=Calendar(2, "week", "Europe/Berlin", 21_600_000_000),
        aggregates=(
            Aggregate("buys", Count(), "kind = 'buy'"),
            Aggregate("paid", Sum("price * greatest(quantity, 1)"), "kind in ('buy', 'rent')"),
            Aggregate("p99", Quantile("amount", 0.99)),
            Aggregate("top", TopK("a, b", 3)),
            Aggregate("mean", Formula("paid / buys")),
        ),
        emit=Emit(early=AllOf((Every(30_000_000), Repeat(AnyOf((Records(2), Records(3))), 4)))),
        salt=4,
    )


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("{tumbling: 1d}", Tumbling(86_400_000_000)),
        ("{tumbling: 1 day}", Calendar(1, "day")),
        ("{tumbling: {size: 3 months, zone: UTC}}", Calendar(3, "month")),
        ("{tumbling: {size: 6 hours, origin: 2026-04-15}}", Calendar(6, "hour", origin=date(2026, 4, 15))),
        ("{cumulate: {size: 1h, step: 1m, offset: 1s}}", Cumulate(3_600_000_000, 60_000_000, 1_000_000)),
        ("{hopping: {size: 1h, slide: 1m, offset: 1s}}", Hopping(3_600_000_000, 60_000_000, 1_000_000)),
        ("{session: 30m}", Session(1_800_000_000)),
        ("{global: {}}", Global()),
    ],
)
def test_all_windows(text: str, window: Window) -> None:
    pipeline = graph_of(read_document(_replaced(f"window: {text}\n"), "x.yaml").pipeline, Pipeline)
    assert pipeline.window == window


def test_a_field_derived_in_the_key_has_its_line() -> None:
    document = read_document(_replaced("key:\n  - user_id\n  - {domain: \"split_part(user_id, '@', 2)\"}\n"), "x.yaml")
    assert document.place("derive.domain") == document.place("key.1")
    assert document.place("key.1").line == document.place("key.0").line + 1
