"""The fluent stages."""

from dataclasses import FrozenInstanceError
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.graphs import graph_of
from tests.short_forms import Pipeline

import windrow as wr
from windrow.authoring.aggregate_text import NAMES, parse_aggregate
from windrow.client.fluent.streams import Aggregated, DecodedStream, Timed
from windrow.errors import PipelineError, each_error
from windrow.model import (
    AGGREGATE_FUNCTIONS,
    OFF,
    Adaptive,
    Aggregate,
    Alerts,
    AllOf,
    AnyOf,
    Avg,
    Calendar,
    Count,
    Cumulate,
    DecimalType,
    Decode,
    Derive,
    Emit,
    EventTime,
    Every,
    EveryEventTime,
    Field,
    Global,
    Hopping,
    KafkaSource,
    LagLimit,
    LatencyLimit,
    LogSource,
    LongType,
    Max,
    Min,
    PostgresSink,
    Punctuated,
    Records,
    Repeat,
    Session,
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
    Tumbling,
)


def decoded() -> DecodedStream:
    return wr.log("data").decode(user="string", t="timestamp_micros", w="timestamp_micros", amount="long")


def timed() -> Timed:
    return decoded().event_time("t", delay="1m")


def aggregated() -> Aggregated:
    return timed().key_by("user").window(wr.tumbling("5m")).aggregate(n=wr.count())


def test_all_that_can_be_said() -> None:
    pipeline = (
        wr.kafka("spend", servers="localhost:9092", start="latest", options={"security.protocol": "SSL"}, group="g")
        .decode(user="string", t="timestamp", w="timestamp", amount=DecimalType(9, 2), **{"a-b": "long"})
        .event_time("t", punctuated="w", future=timedelta(hours=1))
        .key_by("user", "a-b")
        .window(wr.tumbling("5m", offset="1m"))
        .aggregate(a=wr.count(), b=wr.sum("amount"), c=wr.min("amount"), d=wr.max("amount"), e=wr.avg("a-b"))
        .emit(late="batch", mode="retract", lateness="1h", at_end="hold")
        .to(wr.postgres("postgresql://", table="t", key=["window_start", "user", "a-b"]), name="x", key_groups=9)
    )
    assert graph_of(pipeline, Pipeline) == Pipeline(
        name="x",
        source=KafkaSource("localhost:9092", "spend", "latest", (("security.protocol", "SSL"),), "g"),
        decode=Decode(
            (
                Field("user", StringType()),
                Field("t", TimestampType("iso")),
                Field("w", TimestampType("iso")),
                Field("amount", DecimalType(9, 2)),
                Field("a-b", LongType()),
            )
        ),
        time=EventTime("t", Punctuated("w"), 3_600_000_000),
        key=("user", "a-b"),
        window=Tumbling(300_000_000, 60_000_000),
        aggregates=(
            Aggregate("a", Count()),
            Aggregate("b", Sum("amount")),
            Aggregate("c", Min("amount")),
            Aggregate("d", Max("amount")),
            Aggregate("e", Avg("a-b")),
        ),
        emit=Emit(3_600_000_000, "batch", "retract", "hold"),
        sink=PostgresSink("postgresql://", "t", ("window_start", "user", "a-b")),
        key_groups=9,
    )


def test_all_windows() -> None:
    assert wr.tumbling("1 day", zone="Europe/Berlin", offset="6h") == Calendar(
        1, "day", "Europe/Berlin", 21_600_000_000
    )
    assert wr.tumbling("2 weeks") == Calendar(2, "week")
    for origin in ("2026-04-15", date(2026, 4, 15)):
        assert wr.tumbling("3 months", origin=origin) == Calendar(3, "month", origin=date(2026, 4, 15))
    assert wr.tumbling("1d") == Tumbling(86_400_000_000)
    assert wr.cumulate("1d", "1h", offset="1s") == Cumulate(86_400_000_000, 3_600_000_000, 1_000_000)
    assert wr.hopping("1h", slide="1m", offset="1s") == Hopping(3_600_000_000, 60_000_000, 1_000_000)
    assert wr.session(timedelta(minutes=30)) == Session(1_800_000_000)
    assert wr.global_window() == Global()
    with pytest.raises(PipelineError, match="a zone needs a number of hours"):
        wr.tumbling("1d", zone="Europe/Berlin")
    with pytest.raises(PipelineError, match="an origin needs a number of hours"):
        wr.tumbling("1d", origin="2026-04-15")
    with pytest.raises(PipelineError, match="'April' is not a day"):
        wr.tumbling("1 month", origin="April")


def test_all_triggers() -> None:
    assert wr.every_event_time("1m") == EveryEventTime(60_000_000)
    trigger = wr.any_of(wr.all_of(wr.every("30s"), wr.every_count(10)), wr.repeat(wr.every_count(1), times=3))
    pipeline = aggregated().emit(early=trigger, mode="accumulate").to(wr.sqlite("a.db", table="t"))
    assert graph_of(pipeline, Pipeline).emit == Emit(
        mode="accumulate",
        early=AnyOf((AllOf((Every(30_000_000), Records(10))), Repeat(Records(1), 3))),
    )


def test_all_clocks() -> None:
    stage = decoded().event_time(
        "t",
        delay=wr.adaptive(0.999, min="10s", max="10m"),
        sent="w",
        idle="1m",
        all_idle="advance",
        future="1h",
        jump="1d",
    )
    watermark = Adaptive(0.999, 10_000_000, 600_000_000)
    assert stage.time == EventTime("t", watermark, 3_600_000_000, "w", 60_000_000, "advance", 86_400_000_000)


def test_derived_fields_and_keys() -> None:
    pipeline = (
        decoded()
        .derive(twice="amount * 2")
        .event_time("t", delay="1m")
        .key_by("user", domain="split_part(user, '@', 2)")
        .window(wr.tumbling("5m"))
        .aggregate(total=wr.sum("twice"))
        .emit(lateness="1h", late="batch")
        .to(wr.sqlite("a.db", table="t"), salt=4)
    )
    graph = graph_of(pipeline, Pipeline)
    assert graph.derive == (Derive("twice", "amount * 2"), Derive("domain", "split_part(user, '@', 2)"))
    assert graph.key == ("user", "domain")
    assert graph.salt == 4


def test_what_yaml_calls_is_a_function_of_the_same_name() -> None:
    for name in NAMES:
        more = {"fraction": "0.5", "measure": "amount", "limit": "10"}
        arguments = [] if name == "count" else ["amount", *(more[one] for one in AGGREGATE_FUNCTIONS[name].extra)]
        text = f"{name}({', '.join(arguments)})"
        assert eval(f"wr.{text}".replace("amount", "'amount'"), {"wr": wr}) == parse_aggregate(text)  # noqa: S307


def test_a_text_is_what_it_is_in_yaml() -> None:
    stage = timed().key_by("user").window(wr.tumbling("5m"))
    texts = stage.aggregate(total="sum(amount) where amount > 0", n="count()", mean="total / n")
    calls = stage.aggregate(total=wr.sum("amount", where="amount > 0"), n=wr.count(), mean=wr.formula("total / n"))
    assert texts == calls
    with pytest.raises(PipelineError, match=r"aggregate\.total: sum\(\) needs a field"):
        stage.aggregate(total="sum()")


def test_emit_may_be_left_out_and_the_table_names_the_pipeline() -> None:
    pipeline = aggregated().to(wr.postgres("postgresql://", table="spend"))
    assert graph_of(pipeline, Pipeline).emit == Emit()
    assert pipeline.name == "spend"
    assert pipeline == aggregated().emit().to(wr.postgres("postgresql://", table="spend"), name="spend")


def test_every_step_returns_a_new_value() -> None:
    stage = aggregated()
    one, other = stage.emit(lateness="1h"), stage.emit(lateness="2h")
    assert one != other
    assert stage == aggregated()
    with pytest.raises(FrozenInstanceError):
        stage.node = stage.node  # type: ignore[misc]


def test_paths_may_be_paths() -> None:
    assert wr.log(Path("data") / "spend").source == LogSource("data/spend")
    assert wr.sqlite(Path("a.db"), table="t", key="user", decimals="text") == SqliteSink("a.db", "t", ("user",), "text")
    assert wr.postgres("postgresql://", table="t", changelog=False) == PostgresSink(
        "postgresql://", "t", changelog=False
    )


def test_field_and_result_names_are_free() -> None:
    stage = wr.log("x").decode(self="long", t="timestamp")
    assert stage.fields.field("self").type == LongType()
    results = stage.event_time("t", delay="1s").key_by("self").window(wr.tumbling("1s")).aggregate(self=wr.count())
    assert results.node.aggregates == (Aggregate("self", Count()),)


@pytest.mark.parametrize("given", [{}, {"delay": "1m", "punctuated": "w"}])
def test_the_watermark_comes_from_one_thing(given: dict[str, str]) -> None:
    with pytest.raises(PipelineError, match=r"either delay .* or punctuated"):
        decoded().event_time("t", **given)  # type: ignore[call-overload]


def test_bad_values_are_refused_where_they_are_given() -> None:
    with pytest.raises(PipelineError, match=r"decode\.amount: 'decimal' is not a type"):
        wr.log("x").decode(amount="decimal")
    with pytest.raises(PipelineError, match=r"time\.delay: '10' is not a duration"):
        decoded().event_time("t", delay="10")
    with pytest.raises(PipelineError, match=r"time\.delay must be a duration such as '10m' or a timedelta, not 10"):
        decoded().event_time("t", delay=10)  # type: ignore[call-overload]
    with pytest.raises(PipelineError, match=r"window\.tumbling\.offset: 'x' is not a duration"):
        wr.tumbling("5m", offset="x")
    with pytest.raises(PipelineError, match=r"emit\.lateness: '' is not a duration"):
        aggregated().emit(lateness="")


def test_what_is_no_trigger_is_refused() -> None:
    given: Any = "30s"
    keyed = wr.log("x").decode(t="timestamp", v="long").event_time("t", delay="1m").key_by("v")
    counted = keyed.window(wr.tumbling("5m")).aggregate(n=wr.count())
    with pytest.raises(PipelineError, match=r"must be a trigger, such as wr\.every"):
        counted.emit(early=given)
    with pytest.raises(PipelineError, match=r"must be a trigger, such as wr\.every"):
        wr.any_of(wr.every_count(3), given)
    with pytest.raises(PipelineError, match=r"must be a trigger, such as wr\.every"):
        wr.repeat(given, times=3)


def test_what_is_no_function_is_no_condition() -> None:
    text: Any = "count > 3"
    with pytest.raises(PipelineError, match=r"`predicate` must be a function, .* it is the text 'count > 3'"):
        wr.when(text)


def test_what_is_no_window_is_refused() -> None:
    keyed = wr.log("x").decode(t="timestamp", v="long").event_time("t", delay="1m").key_by("v")
    text: Any = "5m"
    with pytest.raises(PipelineError, match=r"must be a window, such as wr\.tumbling.* it is the text '5m'"):
        keyed.window(text)


def test_a_pipeline_that_means_nothing_is_refused_with_all_its_errors() -> None:
    stage = decoded().event_time("user", delay=timedelta(seconds=-1)).key_by().window(wr.tumbling("0s")).aggregate()
    with pytest.raises(PipelineError) as refused:
        stage.to(wr.sqlite("", table="a b"), name="", key_groups=0)
    assert [error.message.partition(": ")[0] for error in each_error(refused.value)] == [
        "name",
        "time.field",
        "time.delay",
        "window.tumbling.size",
        "aggregate",
        "sink.sqlite.path",
        "sink.sqlite.table",
        "key_groups",
    ]
    assert refused.value.place is None


def test_warnings_do_not_stop_a_pipeline() -> None:
    assert (
        decoded()
        .event_time("t", delay="0s")
        .key_by("user")
        .window(wr.tumbling("5m"))
        .aggregate(n=wr.count())
        .to(wr.sqlite("a.db", table="t"))
    )


def test_a_problem_with_the_log_path_is_found() -> None:
    with pytest.raises(PipelineError, match=r"source\.log\.path: is empty"):
        wr.log("").decode(t="timestamp", u="long").event_time("t", delay="1s").key_by("u").window(
            wr.tumbling("1s")
        ).aggregate(n=wr.count()).to(wr.sqlite("a.db", table="t"))


def test_a_table_is_followed_into_a_log_or_a_topic() -> None:
    url = "postgresql://me@localhost/shop"
    with pytest.raises(PipelineError, match="give either `log`, or `servers` and `topic`"):
        wr.postgres_cdc(url, table="orders", topic="orders")
    with pytest.raises(PipelineError, match="give either `log`, or `servers` and `topic`"):
        wr.postgres_cdc(url, table="orders", log="data/orders", servers="localhost:9092")


def test_a_stage_reports_all_of_its_problems_at_once() -> None:
    stream = wr.log("data")
    with pytest.raises(PipelineError) as decode:
        stream.decode(user="text", t="timestamp_millis", amount="decimal")
    assert [error.message.split(":")[0] for error in each_error(decode.value)] == ["decode.user", "decode.amount"]
    decoded = stream.decode(user="string", t="timestamp_millis")
    with pytest.raises(PipelineError) as time:
        decoded.event_time("t", delay="x", future="y", idle="z")
    found = [error.message.split(":")[0] for error in each_error(time.value)]
    assert found == ["time.delay", "time.future", "time.idle"]
    windowed = decoded.event_time("t", delay="1m").key_by("user").window(wr.tumbling("5m"))
    with pytest.raises(PipelineError) as results:
        windowed.aggregate(total="sum()", events="count(user)", users=wr.count())
    assert [error.message.split(":")[0] for error in each_error(results.value)] == [
        "aggregate.total",
        "aggregate.events",
    ]


def test_alerts_are_what_the_section_has() -> None:
    alerts = wr.alerts(
        lag={"time": timedelta(minutes=3), "records": 1000},
        latency="500ms",
        hot_key="off",
        command=["notify", "-x"],
    )
    assert aggregated().to(wr.sqlite("a.db", table="t"), alerts=alerts).graph.alerts == Alerts(
        lag=LagLimit(180_000_000, 1000), latency=LatencyLimit(500_000), hot_key=OFF, command=("notify", "-x")
    )
    with pytest.raises(PipelineError) as wrong:
        wr.alerts(lag={"tme": "5m"}, no_step="soon")
    assert [str(one).partition(";")[0] for one in each_error(wrong.value)] == [
        "'tme' is not a key of alerts.lag",
        "alerts.no-step: 'soon' is not a duration",
    ]
    with pytest.raises(PipelineError, match=r"^alerts.hot-key.share: must be more than 0 and less than 1, not 2"):
        aggregated().to(wr.sqlite("a.db", table="t"), alerts=wr.alerts(hot_key=2))
