"""Alerts as a function of what is reported, and when: each is raised once and resolved once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import main as main_pipeline
from tests.graphs import as_graph, with_names
from tests.telemetry.test_history import STEP, T0

import windrow as wr
from windrow.cli import main
from windrow.errors import CheckpointError, SinkUnavailableError
from windrow.model import ALERT_NAMES, AlertName, Alerts, SqliteSink
from windrow.runtime.run import CommandLines
from windrow.telemetry.histogram import Histogram
from windrow.telemetry.hot_keys import HotKeys
from windrow.telemetry.reports import Alert, Fault, Lag, StepReport
from windrow.tools.alerts.conditions import NO_PAST, AlertEvaluator, Past

SECOND = 1_000_000
AWAY = Fault("the database is away", "sink", "trying again in 1 s")
QUIET = wr.alerts(**dict.fromkeys((name.replace("-", "_") for name in ALERT_NAMES), "off"))
BASE = replace(
    STEP,
    records=100,
    watermarks={0: T0, 1: T0},
    offsets={0: 100, 1: 100},
    lag={0: 0, 1: 0},
    lag_seconds={0: 0.0, 1: 0.0},
    read={0: 50, 1: 50},
    took=0.5,
    latency=Histogram((0, 100)),
    hot_keys={},
    idle=[],
)


def only(**limits: Any) -> Alerts:  # noqa: ANN401 - limits as a pipeline has them
    """The alerts with these limits, and no others."""
    given = wr.alerts(**limits)
    return replace(QUIET, **{name: getattr(given, name) for name in limits})


@dataclass
class Run:
    """A run with alerts, whose steps are a second apart, and what was raised and resolved."""

    alerts: Alerts
    past: Past = NO_PAST
    said: list[Alert] = field(default_factory=list)
    now: int = T0

    def __post_init__(self) -> None:
        graph = replace(as_graph(main_pipeline()), alerts=self.alerts)
        self.evaluator = AlertEvaluator(graph, every=SECOND, now=self.now, past=self.past)
        self.epoch = 0

    def steps(self, number: int, /, **changes: Any) -> None:  # noqa: ANN401 - fields of a report
        """Take a step each second, with a low watermark that goes on."""
        for _ in range(number):
            self.now += SECOND
            self.epoch += 1
            low = {"low_watermark": self.now, "watermarks": {0: self.now, 1: self.now}}
            report = replace(BASE, epoch=self.epoch, committed=self.now, **{**low, **changes})
            self.evaluator.add_step(report, self.now)
            self.look()

    def waits(self, seconds: int, lag: Callable[[int], Lag] | None = None) -> None:
        """Let seconds pass without a step."""
        for _ in range(seconds):
            self.now += SECOND
            if lag is not None:
                self.evaluator.add_lag(lag(self.now))
            self.look()

    def look(self) -> None:
        self.said += self.evaluator.evaluate(self.now)

    @property
    def states(self) -> list[str]:
        return [one.state for one in self.said]

    @property
    def message(self) -> str:
        """The message of the one alert that was raised."""
        (raised,) = [one for one in self.said if one.is_active]
        return raised.message


def behind(records: int, seconds: float | None = None) -> Callable[[int], Lag]:
    """A lag of partition 0."""
    return lambda now: Lag(now, {0: records, 1: 0}, None if seconds is None else {0: seconds, 1: 0.0})


def test_lag_that_grows() -> None:
    run = Run(only(lag={"time": "5m", "records": 1000, "for": "10s"}))
    run.waits(30, behind(1000, 10.0))
    assert run.said == []
    for number in range(20):
        run.waits(1, behind(1100 + 10 * number, 20.0))
    assert run.states == ["raised"]
    assert run.message.startswith("the run is 1,200 records, 20s behind the end of the log, and growing by ")
    assert "Farthest behind is partition 0 with 1,200 records" in run.message
    assert run.said[0].since == T0 + 31 * SECOND
    run.waits(30, behind(900))
    assert run.states == ["raised"], "above four fifths of the limit it stays"
    run.waits(11, behind(700))
    assert run.states == ["raised", "resolved"]


def test_lag_in_time_that_shrinks_is_none() -> None:
    run = Run(only(lag={"time": "1m", "for": "10s"}))
    for number in range(60):
        run.waits(1, behind(10_000 - 100 * number, 600.0 - number))
    assert run.said == []
    run.waits(20, behind(4_100, 600.0))
    assert run.states == ["raised"]


def test_records_wait_without_a_step() -> None:
    run = Run(only(no_step={}))
    run.steps(3)
    run.waits(119, behind(0))
    run.waits(120, behind(5))
    assert run.said == []
    run.waits(1, behind(5))
    assert run.message.startswith("5 records wait, and no step was committed for 2m, since 2026-01-01 00:02:03Z. ")
    run.steps(59, lag={0: 5})
    run.steps(2)
    assert run.states == ["raised", "resolved"]


def test_ten_triggers_can_be_longer_than_two_minutes() -> None:
    run = Run(only(no_step={}))
    run.evaluator = AlertEvaluator(replace(as_graph(main_pipeline()), alerts=run.alerts), every=60 * SECOND, now=T0)
    run.waits(600, behind(5))
    assert run.said == []
    run.waits(1, behind(5))
    assert run.states == ["raised"]


def test_a_watermark_that_stands_names_the_partition_and_why() -> None:
    run = Run(only(watermark_stuck="20s"))
    run.steps(30)
    low = run.now
    stuck = {"low_watermark": low, "lag": {0: 0, 1: 40}}
    for _ in range(25):
        run.steps(1, watermarks={0: run.now, 1: low}, **stuck)
    assert run.states == ["raised"]
    assert "the low watermark has been at 2026-01-01 00:00:30Z since 2026-01-01 00:00:30Z, while" in run.message
    assert "partition 1 holds it back: 40 of its records have not been read yet" in run.message
    assert run.said[0].figures["partitions"] == [1]
    run.steps(30)
    assert run.states == ["raised", "resolved"]


def test_a_watermark_that_stands_without_records_is_not_stuck() -> None:
    run = Run(only(watermark_stuck="20s"))
    run.steps(5)
    run.waits(60)
    run.steps(60, low_watermark=T0, records=0, read={})
    assert run.said == []


def test_a_watermark_stays_stuck_when_no_more_records_come() -> None:
    """Nor is it mended by an outage of the database, in which no step is taken."""
    run = Run(only(watermark_stuck="20s"))
    run.steps(30)
    low = run.now
    for _ in range(25):
        run.steps(1, low_watermark=low, watermarks={0: run.now, 1: low})
    run.waits(300)
    run.steps(60, low_watermark=low, watermarks={0: run.now, 1: low}, records=0, read={})
    assert run.states == ["raised"]
    run.steps(30)
    assert run.states == ["raised", "resolved"]


def test_latency() -> None:
    run = Run(only(latency={"p99": "2s", "for": "20s"}))
    slow = Histogram.of_one(5 * SECOND)
    run.steps(40, latency=Histogram((0, 990)) + slow)
    assert run.said == []
    run.steps(40, latency=Histogram((0, 90)) + slow + slow)
    assert run.states == ["raised"]
    assert "99 % took up to 3.1s from log to commit; the limit is 2s" in run.message
    run.steps(60)
    assert run.states == ["raised", "resolved"]


def test_late_records_against_the_past() -> None:
    run = Run(only(late_spike={"times": 3, "share": 0.01, "for": "20s"}))
    run.steps(100, late=2)
    run.steps(30, late=5)
    assert run.said == []
    run.steps(30, late=10)
    assert run.states == ["raised"]
    assert "160 of 2,100 records since" in run.message
    assert "were late (7.62%), compared with 2.50% before; the limit is 7.50% (3 times the usual share" in run.message
    run.steps(60, late=2)
    assert run.states == ["raised", "resolved"]


def test_late_records_against_processes_before() -> None:
    alerts = only(late_spike={"for": "20s"})
    for past, states in ((Past(), []), (Past(events=1_000_000, late=10_000), ["raised"])):
        run = Run(alerts, past)
        run.steps(21, late=5)
        assert run.states == states


def test_expired_records() -> None:
    run = Run(only(expired_share={"share": 0.001, "for": "20s"}))
    run.steps(19, expired=1)
    assert run.said == [], "not before a whole span was watched"
    run.steps(3, expired=1)
    assert run.message.startswith("21 of 2,100 records since ")
    assert "have expired (1.00%), so no result includes them; the limit is 0.10%" in run.message
    run.steps(60)
    assert run.states == ["raised", "resolved"]


def test_a_share_of_few_records_is_none() -> None:
    run = Run(only(expired_share={"share": 0.001, "for": "20s"}))
    run.steps(60, records=1, expired=1)
    assert run.said == []


def test_dead_letters_of_a_new_kind_and_many_of_a_known_one() -> None:
    run = Run(only(dead_letters={"share": 0.05, "for": "20s"}), Past(reasons=frozenset({"missing: amount"})))
    run.steps(30, dead=1, dead_reasons={"missing: amount": 1})
    assert run.said == []
    run.steps(1, dead=1, dead_reasons={"null: user": 1})
    assert run.said[0].since == run.now
    run.steps(60)
    assert run.states == ["raised", "resolved"]
    run.steps(60, dead=20, dead_reasons={"null: user": 20})
    assert run.states == ["raised", "resolved", "raised"]
    run = Run(only(dead_letters={"share": 0.05, "for": "20s"}), Past(reasons=frozenset({"missing: amount"})))
    run.steps(20, dead=5, dead_reasons={"missing: amount": 5})
    run.steps(1, dead=30, dead_reasons={"missing: amount": 10, "null: user": 20})
    assert "missing: amount (110), null: user (20). New reasons: null: user. First" in run.message


def test_a_dead_letter_for_a_new_reason_is_not_said_to_exceed_the_share() -> None:
    run = Run(only(dead_letters={"share": 0.05, "for": "20s"}), Past(reasons=frozenset({"missing: amount"})))
    run.steps(30, dead=1, dead_reasons={"missing: amount": 1})
    run.steps(1, dead=1, dead_reasons={"null: user": 1})
    assert run.message.startswith(
        "1 dead letter for a reason that is new in this pipeline: null: user (1). In total, 21 of 2,121 records since "
        "2026-01-01 00:00:11Z are dead letters (0.99%; the limit is 5.00% in 20s). First check them with "
    )
    assert run.said[0].figures == {"share": 21 / 2121, "dead": 21, "reasons": {"null: user": 1}, "new": ["null: user"]}


def test_one_dead_letter_because_of_a_defect_is_enough() -> None:
    run = Run(only(internal_errors={"for": "20s"}))
    run.steps(5, dead=9, dead_reasons={"missing: amount": 9})
    assert run.said == []
    run.steps(1, dead=3, dead_reasons={"internal: derive": 1, "missing: amount": 2})
    assert "1 dead letter since 2026-01-01 00:00:00Z because of a defect: internal: derive (1). First" in run.message
    assert "then report the defect" in run.message
    run.steps(90, dead=9, dead_reasons={"missing: amount": 9})
    assert run.states == ["raised", "resolved"]


def test_the_tables_that_have_the_dead_letters_are_named() -> None:
    """Those of the sinks that were given the letters of the reason; one that has all of them is enough."""
    graph = with_names(as_graph(main_pipeline()))
    (sink,) = graph.sinks
    database = cast("SqliteSink", sink.sink)
    sinks = [replace(sink, name=name, sink=replace(database, table=name)) for name in ("a", "b", "c")]
    nodes = (*(node for node in graph.nodes if node is not sink), *sinks)
    made = replace(graph, nodes=nodes, alerts=only(dead_letters={"for": "20s"}))

    def named(kinds: dict[str, int], by_sink: dict[str, dict[str, int]]) -> list[str]:
        evaluator = AlertEvaluator(made, every=SECOND, now=T0, past=Past(reasons=frozenset({"old"})))
        report = replace(BASE, dead=1, committed=T0, dead_reasons=kinds, dead_by_sink=by_sink)
        evaluator.add_step(report, T0)
        (alert,) = evaluator.evaluate(T0)
        return re.findall(r"windrow show PIPELINE (\w+)", alert.message)

    assert named({"new": 2, "old": 9}, {"a": {"old": 9}, "c": {"new": 2}}) == ["c_dead"]
    assert named({"new": 3}, {"b": {"new": 1}, "c": {"new": 2}}) == ["c_dead", "b_dead"]
    assert named({"new": 2}, {name: {"new": 2} for name in "abc"}) == ["a_dead"]
    assert named({"new": 2}, {}) == ["a_dead"]


def test_messages_advise_commands_that_can_be_pasted() -> None:
    """Of the pipeline's file and its checkpoint; a graph's dead letters are shown, as they cannot be redriven."""
    commands = CommandLines("my spend.yaml", "/data/spend")
    alerts = only(dead_letters={"for": "20s"}, checkpoint={"savepoint": "10s"}, late_spike={"for": "20s"})
    short = as_graph(main_pipeline())
    for made, dead in ((short, "redrive 'my spend.yaml' --list"), (with_names(short), "show")):
        evaluator = AlertEvaluator(
            replace(made, alerts=alerts),
            every=SECOND,
            now=T0,
            past=Past(10_000, 1, began=T0),
            commands=commands,
        )
        report = replace(BASE, late=50, dead=1, dead_reasons={"null: user": 1})
        for second in range(30):
            evaluator.add_step(replace(report, committed=T0 + second * SECOND), T0 + second * SECOND)
        said = {one.name: one.message for one in evaluator.evaluate(T0 + 30 * SECOND)}
        assert f"`windrow {dead}" in said["dead-letters"]
        assert "`windrow tune 'my spend.yaml' --checkpoint /data/spend`" in said["late-spike"]
        assert "`windrow savepoint 'my spend.yaml' --to" in said["checkpoint"]
        for line in re.findall("`(windrow [^`]+)`", " ".join(said.values())):
            _, name, *arguments = shlex.split(line)
            group = click.Context(main, **main.context_settings)
            command = main.get_command(group, name)
            assert command is not None
            command.make_context(name, arguments, group)  # raises where it has no such option


def test_faults_that_come_again() -> None:
    run = Run(only(sink_errors="10s"))
    run.evaluator.add_fault(AWAY, run.now)
    run.steps(70)
    assert run.said == [], "one fault is none"
    run.evaluator.add_fault(Fault("the broker is away", "source", "trying again in 1 s"), run.now)
    run.waits(5)
    run.evaluator.add_ready()
    run.waits(60)
    assert run.said == [], "nor are two that end soon"
    for _ in range(6):
        run.evaluator.add_fault(AWAY, run.now)
        run.steps(2)
    assert run.message.startswith("the run has had 6 faults since 2026-01-01 00:02:15Z and is retrying; the ")
    assert run.message.endswith("the last was: the database is away. First check whether the database answers")
    run.steps(67)
    assert run.states == ["raised"]
    run.steps(1)
    assert run.states == ["raised", "resolved"]


def test_a_run_that_hangs_after_a_fault() -> None:
    run = Run(only(sink_errors="10s"))
    run.evaluator.add_fault(AWAY, run.now)
    run.waits(10)
    assert run.states == ["raised"]


def test_a_run_that_has_ended() -> None:
    run = Run(only(sink_errors="5m", checkpoint={}))
    run.evaluator.add_end(SinkUnavailableError("the database is away\nand more"))
    run.look()
    assert [one.name for one in run.said] == ["sink-errors"]
    assert run.message == "the run has ended: the database is away. Fix the cause, then start it again"
    run = Run(only(sink_errors="5m", checkpoint={}))
    run.evaluator.add_end(CheckpointError("the disk is full"))
    run.look()
    assert [one.name for one in run.said] == ["checkpoint"]


def test_a_run_that_tries_again_and_then_ends_says_both() -> None:
    run = Run(only(sink_errors="10s"))
    run.evaluator.add_fault(AWAY, run.now)
    run.waits(10)
    assert "and is retrying" in run.message
    run.evaluator.add_end(SinkUnavailableError("the database is away"))
    run.look()
    run.look()
    assert run.states == ["raised", "resolved", "raised"]
    assert run.said[-1].message.startswith("the run has ended: the database is away")
    (again,) = Run(only(sink_errors="10s"), Past(active=(run.said[-1],))).evaluator.active.values()
    assert again.is_active, "and the next process resolves it"


def test_a_savepoint_that_is_old() -> None:
    for saved, states in ((T0 - 86_400 * SECOND, ["raised"]), (T0 - 86_300 * SECOND, []), (None, [])):
        run = Run(only(checkpoint={"savepoint": "24h"}), Past(saved=saved))
        run.steps(50)
        assert run.states == states
    run.steps(60)


def test_where_no_savepoint_was_taken_none_is_named() -> None:
    run = Run(only(checkpoint={"savepoint": "24h"}), Past(began=T0 - 86_400 * SECOND))
    run.steps(1)
    assert run.message.startswith(
        "no savepoint has been taken since the first run, at 2025-12-31 00:00:00Z, 1d ago; the"
    )


def test_steps_that_take_longer_than_the_trigger() -> None:
    run = Run(only(backpressure="20s"))
    run.steps(18, took=1.5)
    run.steps(1, took=0.9)
    run.steps(18, took=1.5)
    run.waits(3_600)
    run.steps(1, took=1.5, seconds=3_600.0)
    run.steps(19, took=1.5)
    assert run.said == []
    run.steps(1, took=2.5, parts={"commit": 1.5, "compute": 1.0})
    assert "took longer than the interval of 1s; the last took 2.5 s, most of it in `compute`" in run.message
    run.steps(21)
    assert run.states == ["raised", "resolved"]


def test_a_partition_that_has_no_more_records() -> None:
    run = Run(only(partition_idle="20s"))
    run.steps(10, read={0: 50, 1: 50, 2: 0})
    run.steps(19, read={0: 50, 1: 0, 2: 0})
    assert run.said == []
    run.steps(5, read={0: 50, 1: 0, 2: 0})
    assert run.message.startswith("no records have arrived from partition 1 for 20s, since 2026-01-01 00:00:10Z")
    run.steps(21)
    assert run.states == ["raised", "resolved"]
    run.steps(60, read={})
    assert run.states == ["raised", "resolved"], "where no partition has records, none is behind the others"


def test_a_hot_key() -> None:
    run = Run(only(hot_key={"share": 0.25, "for": "20s"}))
    run.steps(40, hot_keys={"": HotKeys(100, {"ann": 20, "bob": 5})})
    assert run.said == []
    run.steps(40, hot_keys={"": HotKeys(100, {"ann": 40, "bob": 5})})
    assert "the key 'ann' has about 26% of the records since" in run.message
    run.steps(60, hot_keys={"": HotKeys(100, {"ann": 2})})
    assert run.states == ["raised", "resolved"]


def test_what_counts_nothing_raises_nothing_about_counts() -> None:
    run = Run(Alerts())
    run.steps(4_000, only_offsets=True, low_watermark=None, watermarks={}, records=100, took=5.0)
    assert run.said == []


def test_an_alert_of_the_process_before_goes_on() -> None:
    before = Alert("spend", "hot-key", "the key 'ann' has ...", T0 - 50, T0 - 20)
    alerts = only(hot_key={"share": 0.25, "for": "20s"})
    hot, cold = ({"": HotKeys(100, {"ann": count})} for count in (30, 1))
    run = Run(alerts, Past(active=(before,)))
    run.steps(200, hot_keys=hot)
    assert run.said == []
    run = Run(alerts, Past(active=(before,)))
    run.steps(39, hot_keys=cold)
    assert run.said == []
    run.steps(2, hot_keys=cold)
    assert run.said == [replace(before, resolved=T0 + 40 * SECOND)]


def test_an_alert_that_is_off_now_is_resolved() -> None:
    run = Run(QUIET, Past(active=(Alert("spend", "hot-key", "it is hot", T0 - 50, T0 - 20),)))
    run.steps(2)
    assert run.states == ["resolved"]


def test_times_that_no_date_has() -> None:
    run = Run(only(watermark_stuck="5s"))
    run.steps(30, low_watermark=-62_135_596_900 * SECOND, watermarks={0: -62_135_596_900 * SECOND})
    assert "the low watermark has been at 0000-12-31 23:58:20Z" in run.message


LIMITS = only(
    lag={"time": "5s", "records": 50, "for": "5s"},
    no_step="4s",
    watermark_stuck="4s",
    latency={"p99": "1s", "for": "4s"},
    late_spike={"for": "4s"},
    expired_share={"share": 0.01, "for": "4s"},
    dead_letters={"share": 0.01, "for": "4s"},
    sink_errors="3s",
    checkpoint={"savepoint": "20s"},
    backpressure="3s",
    partition_idle="4s",
    hot_key={"share": 0.3, "for": "4s"},
)
STEPS = st.fixed_dictionaries(
    {},
    optional={
        "low_watermark": st.sampled_from([None, T0, T0 + SECOND]),
        "late": st.integers(0, 20),
        "expired": st.integers(0, 20),
        "dead": st.integers(0, 20),
        "dead_reasons": st.dictionaries(st.sampled_from(["missing: a", "null: b"]), st.integers(1, 9)),
        "took": st.sampled_from([0.1, 2.0]),
        "read": st.dictionaries(st.integers(0, 2), st.integers(0, 50)),
        "lag": st.dictionaries(st.integers(0, 2), st.integers(0, 100), min_size=1) | st.none(),
        "latency": st.sampled_from([Histogram(), Histogram((0, 9)), Histogram.of_one(9 * SECOND)]),
        "hot_keys": st.sampled_from([{}, {"": HotKeys(100, {"ann": 50})}, {"": HotKeys(100, {"ann": 1})}]),
        "only_offsets": st.sampled_from([True]),
    },
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), STEPS, st.integers(1, 8)),
        st.tuples(st.just("lag"), st.integers(0, 100), st.integers(1, 8)),
        st.tuples(st.just("fault"), st.none(), st.integers(1, 8)),
        st.tuples(st.just("nothing"), st.none(), st.integers(1, 90)),
    ),
    max_size=25,
)


def played(events: list[tuple[str, Any, int]]) -> list[Alert]:
    run = Run(LIMITS, Past(saved=T0, active=(Alert("spend", "lag", "it was behind", T0 - 9, T0 - 5),)))
    for kind, what, times in events:
        if kind == "step":
            run.steps(times, **what)
        elif kind == "lag":
            run.waits(times, behind(what, float(what)))
        else:
            if kind == "fault":
                run.evaluator.add_fault(AWAY, run.now)
            run.waits(times)
    return run.said


@given(EVENTS)
def test_each_alert_is_raised_once_and_resolved_once(events: list[tuple[str, Any, int]]) -> None:
    said = played(events)
    active: dict[str, Alert] = {"lag": Alert("spend", "lag", "it was behind", T0 - 9, T0 - 5)}
    for alert in said:
        if alert.resolved is None:
            assert alert.name not in active
            assert alert.since <= alert.raised
            active[alert.name] = alert
        else:
            assert replace(alert, resolved=None) == active.pop(alert.name)
            assert alert.resolved > alert.raised
        assert Alert.of_plain(alert.plain()) == alert
    assert played(events) == said, "it depends on nothing else"


def test_each_alert_has_its_field() -> None:
    assert list(wr.alerts(latency="1s").limits) == list(ALERT_NAMES)
    assert isinstance(STEP, StepReport)


@pytest.mark.parametrize("name", ALERT_NAMES)
def test_each_alert_has_its_runbook(name: AlertName) -> None:
    page, _, anchor = Alert("spend", name, "", 0, 0).runbook.partition("#")
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    assert f"\n### {anchor}\n" in text


@pytest.mark.parametrize("name", ALERT_NAMES)
def test_off_is_off(name: str) -> None:
    assert name not in wr.alerts(**{name.replace("-", "_"): "off"}).limits
