"""The rules of the review, as functions of facts: what provokes each of them, and what does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import ROOT
from tests.engine.pipelines import main as main_pipeline
from tests.graphs import Runnable, as_graph
from tests.telemetry.test_history import STEP, T0

from windrow.authoring.load import open_pipeline
from windrow.connectors.delta.connector import DeltaSink
from windrow.connectors.sink import Follows, Run
from windrow.connectors.source import Loss
from windrow.model import Adaptive, Delay, Emit, EventTime, Every, Global, Hopping, KafkaSink, KafkaSource, PostgresSink
from windrow.runtime.run import CommandLines
from windrow.telemetry.histogram import Histogram
from windrow.telemetry.history import RunRecord
from windrow.telemetry.hot_keys import HotKeys
from windrow.telemetry.reports import Lag, StepReport
from windrow.telemetry.status import RunStatus
from windrow.tools.doctor import RULES, Examined, Finding, review
from windrow.tools.doctor.examine import secret_references, unmet_requirements
from windrow.tools.doctor.facts import (
    CheckpointFacts,
    Damaged,
    Disk,
    LogFacts,
    Machine,
    Restored,
    Retention,
    RunFacts,
    TableFacts,
    Unknown,
)
from windrow.tools.tune.disorder import read_recorded

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
NOW = T0 + DAY
RUN = Run("user-spend", "this")
GB = 1_000_000_000
VERSIONS: dict[str, str | None] = {"windrow": "1.0", "pyspark": "4.3.0", "python": "3.11.7", "java": "17.0.15"}
EXAMPLES = [*sorted((ROOT / "examples").glob("*.yaml")), *sorted((ROOT / "examples").glob("*/pipeline.yaml"))]
DISK = Disk(".windrow/user-spend", "ext4", 50 * GB, 100 * GB, is_temporary=False)
HEALTHY = replace(
    STEP,
    records=100_000,
    late=10,
    expired=1,
    dead=0,
    rejected=0,
    open_windows=3,
    watermarks={0: NOW - MINUTE, 1: NOW - MINUTE},
    low_watermark=NOW - MINUTE,
    offsets={0: 50_000, 1: 50_000},
    idle=[],
    lag={0: 0, 1: 0},
    committed=NOW - SECOND,
    seconds=60.0,
    took=12.0,
    parts={"compute": 10.0, "commit": 2.0},
    log_times={0: NOW - 2 * SECOND, 1: NOW - 3 * SECOND},
    # all but 200 of 100,000 are at most 30 s behind
    lateness={0: Histogram((*[0] * 17, 49_900, *[0] * 3, 100)), 1: Histogram((*[0] * 17, 49_900, *[0] * 3, 100))},
    state_rows=1_000,
    state_bytes=100_000,
    hot_keys={"": HotKeys(100_000, {"ann": 1_000})},
)
RECORD = RunRecord("user-spend", "stream", "there", 1, T0, NOW - SECOND, lag=Lag(NOW - SECOND, {0: 0, 1: 0}))
PIPELINE = main_pipeline(time=EventTime("t", Delay(1 * MINUTE), idle=MINUTE), key_groups=4)


def run_of(step: StepReport = HEALTHY, record: RunRecord | None = RECORD, **facts: Any) -> RunFacts:  # noqa: ANN401 - any of the facts
    """A run with one step in the last minute."""
    status = replace(RunStatus.of(record, [step], NOW), recent=step, per_second=1_000.0)
    status = replace(status, **facts.pop("status", {}))
    others = {"options": ("windrow", "run", "--listen", ":9464"), "stands": 0}
    return RunFacts(status, () if record is None else (record,), step, **{**others, **facts})


def examined(pipeline: Runnable = PIPELINE, **facts: Any) -> Examined:  # noqa: ANN401 - any of the facts
    """Facts of a run with which all is well."""
    graph = as_graph(pipeline)
    run = facts.get("run", run_of())
    total = None if isinstance(run, Unknown) else run.total
    known: dict[str, Any] = {
        "graph": graph,
        "now": NOW,
        "commands": CommandLines("spend.yaml"),
        "machine": Machine(2, 16 * GB, VERSIONS, (), replace(DISK, path="/var/scratch")),
        "place": DISK,
        "run": run,
        "checkpoint": CheckpointFacts(RUN, None, 7, 1_000_000),
        "restored": Restored(7, 100_000, 900, 3, 4.2),
        "disorder": Unknown("none"),
        "logs": {one.name: LogFacts(2, 100_000) for one in graph.sources},
        "tables": {one.name: TableFacts(RUN, 7, ("window_start", "window_end", "user")) for one in graph.sinks},
    }
    if total is not None and "disorder" not in facts:
        known["disorder"] = Unknown("none") if total.only_offsets else read_recorded(graph, [total])
    return Examined(**{**known, **facts})


def findings(rule: str, x: Examined) -> list[Finding]:
    (check,) = [one.check for one in RULES if one.name == rule]
    return list(check(x))


def worst(rule: str, x: Examined) -> str:
    found = {one.severity for one in findings(rule, x)}
    return next(one for one in ("serious", "advice", "unknown", "fine") if one in found)


def test_with_a_healthy_run_nothing_is_serious_nor_advice() -> None:
    found = review(examined())
    assert [one for one in found if one.severity != "fine"] == []
    # hot keys and restored states have their figures
    assert {one.rule for one in found} == {one.name for one in RULES}


def table(**changes: Any) -> dict[str, dict[str, TableFacts]]:  # noqa: ANN401 - any of the fields
    return {"tables": {"": replace(TableFacts(RUN, 7, ("user",)), **changes)}}


def step(**changes: Any) -> dict[str, RunFacts]:  # noqa: ANN401 - any of the fields
    return {"run": run_of(replace(HEALTHY, **changes))}


def status(**changes: Any) -> dict[str, RunFacts]:  # noqa: ANN401 - any of the fields
    return {"run": run_of(status=changes)}


def record(**changes: Any) -> dict[str, RunFacts]:  # noqa: ANN401 - any of the fields
    return {"run": run_of(record=replace(RECORD, **changes))}


def kept(**changes: Any) -> dict[str, dict[str, LogFacts]]:  # noqa: ANN401 - any of the fields
    all_kept: dict[str, Any] = {"time": None, "bytes": None, "is_compacted": False, "is_appended": False}
    return {"logs": {"source": LogFacts(2, 10, Retention(**{**all_kept, **changes}))}}


def behind(records: int, seconds: float, trend: float) -> dict[str, RunFacts]:
    return status(lag=Lag(NOW - SECOND, {0: records}, {0: seconds}), lag_trend=trend)


FAILED = replace(RECORD, ended=NOW - HOUR, error="no room\nat all")
ELSEWHERE = "postgresql://windrow@db.example.org/spend"
KAFKA = KafkaSource("broker.example.org:9093", "spend")


def slow(share: float) -> dict[str, Any]:
    """Some of the records are 5 m behind."""
    many = round(100_000 * share)
    return step(lateness={0: Histogram((100_000 - many, *Histogram.of_one(5 * MINUTE).counts[1:-1], many))})


def of(pipeline: Runnable) -> dict[str, Any]:
    return {"pipeline": pipeline}


def source(kafka: KafkaSource, **options: str) -> dict[str, Any]:
    return of(main_pipeline(source=replace(kafka, options=tuple((k.replace("_", "."), v) for k, v in options.items()))))


def sink(url: str) -> dict[str, Any]:
    return of(main_pipeline(sink=PostgresSink(url, "spend")))


CASES: list[tuple[str, Mapping[str, Any], str, str]] = [
    ("warnings", {"warnings": (("time", "has no `future`"),)}, "advice", "time has no `future`"),
    ("warnings", {"warnings": (("key_groups", "4 key groups use at most 4 of 8 cores"),)}, "fine", "no warnings"),
    ("guarantee", of(main_pipeline(emit=Emit(early=Every(SECOND)))), "fine", "panes and timers in processing time"),
    (
        "guarantee",
        of(main_pipeline(sink=DeltaSink("lake", "spend"))),
        "fine",
        "one transaction (in Delta, one for each table)",
    ),
    ("tables", {"tables": {"": Unknown("there is no database")}}, "unknown", "there is no database"),
    ("tables", table(owner=Run("user-spend", "other")), "serious", "belongs to another run"),
    ("tables", table(owner=None), "serious", "belongs to nobody"),
    ("tables", table(epoch=4), "serious", "at epoch 4, but the checkpoint is at epoch 7"),
    ("tables", table(epoch=None), "serious", "has no step, but the checkpoint is at epoch 7"),
    ("tables", table(epoch=6), "fine", "primary key is user"),
    ("tables", table(misfits=("the primary key of table 'spend' is missing",)), "serious", "primary key"),
    ("tables", table() | {"checkpoint": Unknown("none")}, "unknown", "of a run whose checkpoint is not here"),
    ("tables", table() | {"checkpoint": CheckpointFacts(None, damage="torn")}, "unknown", "cannot be read"),
    (
        "tables",
        table() | {"checkpoint": CheckpointFacts(Run("user-spend", "new"), Follows(RUN, 7), None, 1)},
        "fine",
        "belongs to this run",
    ),
    ("late-policy", of(replace(PIPELINE, emit=Emit())), "advice", "lateness is 0s"),
    ("late-policy", of(replace(PIPELINE, emit=Emit())) | {"run": Unknown("no run")}, "fine", "change no row"),
    ("delay", slow(0.02), "advice", "time.delay is 1m: 2.0 % of 100,000 records are farther behind"),
    ("delay", slow(0.02) | of(replace(PIPELINE, emit=Emit())), "serious", "99 % are at most 5m behind"),
    ("delay", slow(0.005), "fine", "0.50 % of 100,000 records"),
    ("delay", of(replace(PIPELINE, time=EventTime("t", Delay(HOUR)))), "advice", "time.delay is 1h: 0 %"),
    ("delay", of(replace(PIPELINE, time=EventTime("t", Adaptive(0.99, 1, 2)))), "fine", "no fixed delay"),
    ("delay", {"run": Unknown("no run"), "disorder": Unknown("no run")}, "unknown", "no run"),
    ("delay", step(lateness={0: Histogram((10,))}), "unknown", "too few"),
    ("verdicts", step(expired=200), "advice", "200 expired (0.20 %)"),
    ("verdicts", step(expired=2_000), "serious", "2,000 expired (2.0 %)"),
    ("verdicts", {"run": Unknown("no run")}, "unknown", "no run"),
    ("verdicts", step(only_offsets=True), "unknown", "offsets only"),
    ("dead-letters", step(dead=100), "advice", "100 dead letters (0.10 % of the records), 0 redriven"),
    ("dead-letters", step(dead=3_000), "serious", "3,000 dead letters"),
    ("dead-letters", {"run": Unknown("no run")}, "unknown", "no run"),
    ("dead-letters", {"run": Unknown("no run")} | table(dead=7), "advice", "7 dead letters in spend_dead, 0 redriven"),
    ("dead-letters", step(dead=100) | table(redriven=100), "fine", "100 redriven"),
    ("lost-records", {"lost": (Loss(1, 4, 10, "offsets 4 to 9 are gone"),)}, "serious", "offsets 4 to 9"),
    ("lost-records", {"lost": Unknown("no broker")}, "unknown", "no broker"),
    ("lost-records", table(lost=2), "advice", "2 times"),
    ("window-state", of(replace(PIPELINE, window=Hopping(DAY, SECOND))), "advice", "87,060 windows at once"),
    ("window-state", step(state_bytes=5 * GB), "advice", "5.0 GB in 1,000 rows, 3 open windows, of 16.0 GB"),
    ("window-state", step(state_bytes=60 * GB), "serious", "50.0 GB are free"),
    (
        "window-state",
        {"run": run_of(replace(HEALTHY, state_bytes=GB), state_bytes=(1_000, GB // 10, GB // 10, GB // 10, GB, GB))},
        "advice",
        "it was 100 MB halfway",
    ),
    ("window-state", of(replace(PIPELINE, window=Global())), "fine", "forever"),
    ("checkpoint", {"checkpoint": Unknown("no run has left one")}, "unknown", "no run has left one"),
    ("checkpoint", {"checkpoint": CheckpointFacts(RUN, damage="1.zip is damaged")}, "serious", "1.zip is damaged"),
    ("checkpoint", {"checkpoint": CheckpointFacts(RUN, differs="time.delay: ...")}, "serious", "time.delay"),
    ("checkpoint", {"restored": Damaged("4.sst is torn")}, "serious", "cannot be restored: 4.sst is torn"),
    ("checkpoint", {"restored": Unknown("there is no Java")}, "unknown", "not restored: there is no Java"),
    ("checkpoint", {"savepoints": {"spend-3": Damaged("torn")}}, "advice", "the savepoint spend-3 cannot be restored"),
    ("checkpoint", {"savepoints": {"spend-3": Restored(3, 10, 0, 0, 0.1)}}, "fine", "spend-3 is complete: epoch 3"),
    ("place", {"place": replace(DISK, is_temporary=True)}, "serious", "temporary files"),
    ("place", {"place": replace(DISK, is_temporary=True), "checkpoint": Unknown("none")}, "advice", ""),
    ("place", {"place": replace(DISK, kind="overlay")}, "advice", "on overlay"),
    ("place", {"place": replace(DISK, free=500_000_000)}, "advice", "500 MB of 100 GB are free"),
    ("place", {"place": replace(DISK, free=500_000)}, "serious", "500 kB of 100 GB are free"),
    ("place", {"place": None}, "fine", "object store"),
    ("hot-keys", step(hot_keys={"": HotKeys(100, {"ann": 40})}, took=55.0), "advice", "user ann has 40 %"),
    ("hot-keys", step(hot_keys={"": HotKeys(100, {"ann": 40})}), "fine", "nothing waits for this key"),
    ("hot-keys", step(hot_keys={}), "unknown", "any keys yet"),
    ("parallelism", {"machine": Machine(8, None, VERSIONS, (), DISK)}, "advice", "2 partitions, 4 key groups, 8 cores"),
    ("parallelism", {"logs": {"source": LogFacts(250_000)}}, "advice", "250,000 partitions"),
    ("parallelism", {"logs": {"source": LogFacts(1)}}, "fine", "one core reads"),
    ("run-state", {"run": Unknown("no run")}, "unknown", "no run"),
    ("run-state", record(ended=NOW, error="no room\nat all"), "serious", "the run failed: no room"),
    ("run-state", status(state="killed"), "serious", "ended without a report"),
    ("run-state", record(seen=NOW - HOUR), "serious", "nothing was heard of the process 1 on there for 1h"),
    ("run-state", record(waiting=NOW - HOUR), "serious", "records have waited for 1h"),
    ("run-state", record(is_retrying=True, fault="no broker"), "advice", "is retrying after a fault: no broker"),
    ("run-state", record(fault="no broker", fault_at=NOW - HOUR), "advice", "1h ago: no broker"),
    ("run-state", record(fault="no broker", fault_at=NOW - 2 * DAY), "fine", "it is running"),
    (
        "run-state",
        {"run": replace(run_of(), processes=(FAILED, replace(FAILED, error=None, ended=None), FAILED, RECORD))},
        "advice",
        "of the last 3 processes, 2 failed and 1 were killed; the last error: no room",
    ),
    ("backpressure", behind(50_000, 30.0, 100.0), "advice", "grows by 100 records a second: 50,000 records behind"),
    ("backpressure", behind(500_000, 400.0, 100.0), "serious", "most of it in compute (83 %)"),
    ("backpressure", behind(500, 1.0, 100.0), "fine", "500 records behind; steps take 20 % of the time"),
    ("backpressure", {"run": run_of(replace(HEALTHY, took=58.0, lag={0: 5}), replace(RECORD, lag=None))}, "advice", ""),
    ("backpressure", step(only_offsets=True, took=60.0, lag={0: 5}), "fine", ""),
    ("backpressure", record(ended=NOW), "unknown", "had read all of the log"),
    ("backpressure", record(ended=NOW, lag=Lag(NOW, {0: 7})), "unknown", "7 records were left"),
    ("watermark", of(main_pipeline()), "advice", "time has no `idle`, and there are 2 partitions"),
    ("watermark", of(main_pipeline()) | {"logs": {"source": LogFacts(1)}, "run": Unknown("")}, "fine", ""),
    ("watermark", of(main_pipeline()) | {"logs": {}, "run": Unknown("")}, "unknown", "partitions is unknown"),
    ("watermark", {"run": run_of(stands=5 * MINUTE)}, "serious", "has not moved for 5m, while records are read"),
    ("watermark", {"run": run_of(stands=4 * MINUTE)}, "fine", "the low watermark has not moved for 4m"),
    ("watermark", step(low_watermark=None), "serious", "there has been no low watermark for 1d, while records"),
    ("watermark", {"logs": {}, "run": Unknown("")}, "fine", "time.idle protects"),
    ("watched", {"run": run_of(options=("windrow", "run"))}, "advice", "does not serve /metrics"),
    ("watched", {"run": Unknown("no run")}, "unknown", "no run is active"),
    ("watched", {"run": run_of(options=("windrow", "run", "--until-end"))}, "fine", "ends by itself"),
    ("watched", {"run": run_of(options=None)}, "unknown", "no run is active here"),
    ("retention", kept(time=7 * DAY), "fine", "keeps records for 7d"),
    ("retention", kept(time=HOUR), "advice", "keeps records for 1h"),
    ("retention", kept(bytes=GB), "advice", "keeps 1.0 GB of each partition"),
    ("retention", kept(is_compacted=True), "advice", "is compacted"),
    ("retention", kept(), "fine", "all of it can be replayed"),
    ("retention", kept(time=DAY) | behind(10, 50_000.0, 0.0), "serious", "has read nothing of the last 13h53m"),
    ("retention", kept(time=DAY) | record(ended=NOW, lag=Lag(NOW - DAY, {0: 0})), "serious", "the last 1d"),
    ("retention", {"logs": {"source": Unknown("no broker")}}, "unknown", "no broker"),
    ("clocks", step(log_times={0: NOW + 5 * SECOND}), "advice", "partition 0 was logged 6s after"),
    ("clocks", step(log_times={}), "unknown", "no log timestamps are known"),
    ("clocks", step(only_offsets=True), "unknown", "offsets only"),
    ("hot-keys", step(only_offsets=True), "unknown", "offsets only"),
    ("secrets", sink("postgresql://windrow:hunter2@localhost/spend"), "serious", "sink.postgres.url has a password"),
    ("secrets", sink("postgresql://windrow:${PASSWORD}@localhost/spend"), "fine", ""),
    ("secrets", source(KAFKA, ssl_keystore_key="hunter2"), "serious", "source.kafka.options.ssl.keystore.key"),
    ("secrets", source(KAFKA, sasl_jaas_config='x password="${P}";'), "fine", ""),
    ("secrets", {"leaks": ("spark.log",)}, "serious", "spark.log contains a secret"),
    ("secrets", {"readable": ("the secret s is readable by everyone",)}, "advice", "is readable by everyone"),
    ("connections", source(KAFKA), "advice", "broker.example.org:9093: PLAINTEXT"),
    ("connections", source(KAFKA, security_protocol="SASL_SSL"), "fine", ""),
    ("connections", source(KAFKA, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN"), "serious", ""),
    ("connections", source(KafkaSource("127.0.0.1:9092,[::1]:9092", "spend")), "fine", ""),
    ("connections", sink(ELSEWHERE), "advice", "db.example.org: sslmode prefer"),
    ("connections", sink(f"{ELSEWHERE}?sslmode=verify-full"), "fine", ""),
    ("connections", sink("${URL}"), "unknown", "a reference"),
    ("versions", {"machine": Machine(2, None, {**VERSIONS, "java": None}, (), DISK)}, "advice", "no Java"),
    ("versions", {"machine": Machine(2, None, VERSIONS, ("pandas 3.0 (needs <3)",), DISK)}, "advice", "pandas 3.0"),
    ("versions", record(versions={"pyspark": "4.1.0"}), "serious", "pyspark was 4.1.0 and is now 4.3.0"),
    ("versions", record(versions={"windrow": "0.9"}), "advice", "windrow was 0.9 and is now 1.0"),
    ("versions", record(versions={"python": "3.11.4"}), "fine", "the last run had python 3.11.4"),
    ("versions", record(versions={"pyspark": "4.3.0"}), "fine", "the same"),
]


@pytest.mark.parametrize(("rule", "facts", "severity", "text"), CASES)
def test_a_rule_finds_it(rule: str, facts: Mapping[str, Any], severity: str, text: str) -> None:
    x = examined(**facts)
    found = findings(rule, x)
    assert worst(rule, x) == severity
    assert any(text in one.found for one in found if one.severity == severity), [one.found for one in found]
    for one in found:
        # what is wrong says why and what to do; what could not be looked at may say how it can be
        is_wrong = one.severity in {"serious", "advice"}
        assert bool(one.why) == is_wrong
        assert bool(one.to_do) == is_wrong or one.severity == "unknown"


def test_each_rule_is_provoked_and_not() -> None:
    fine = {rule for rule, _, severity, _ in CASES if severity == "fine"} | {one.rule for one in review(examined())}
    assert fine == {one.name for one in RULES}
    assert {rule for rule, _, severity, _ in CASES if severity in {"serious", "advice"}} == fine - {"guarantee"}


def test_tables_in_two_databases_are_not_committed_at_once() -> None:
    graph = as_graph(main_pipeline())
    first, node, sink_node = graph.nodes
    other = replace(sink_node, name="other", sink=PostgresSink("postgresql://localhost/spend", "spend"))  # type: ignore[arg-type]
    found = findings("guarantee", examined(replace(graph, nodes=(first, node, sink_node, other))))
    assert [one.severity for one in found] == ["fine", "advice"]


def test_in_real_time_there_is_no_checkpoint_and_no_common_watermark() -> None:
    pipeline = main_pipeline(source=KAFKA, sink=KafkaSink(KAFKA.servers, "spend"), mode="realtime")
    x = examined(pipeline, run=Unknown("no run"), checkpoint=Unknown("none"), tables={})
    assert worst("checkpoint", x) == "unknown"
    assert "read_committed" in findings("guarantee", x)[0].found
    assert "does not wait for others" in findings("watermark", x)[0].found
    assert findings("place", x) == findings("tables", x) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_no_example_is_serious_by_its_design(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    pipeline = open_pipeline(str(example)).runnable()
    none: dict[str, Any] = {name: Unknown("no run") for name in ("run", "checkpoint", "restored", "disorder", "lost")}
    found = review(examined(pipeline, logs={}, tables={}, **none))
    assert {one.rule for one in found if one.severity in {"serious", "advice"}} <= {"watermark"}
    # and with a run, whatever its host knows
    for known in (HEALTHY, replace(HEALTHY, only_offsets=True, watermarks={}, low_watermark=None)):
        assert review(examined(pipeline, run=run_of(known), disorder=Unknown("none")))


def test_advice_names_the_file_and_the_checkpoint() -> None:
    x = examined(commands=CommandLines("spend.yaml", "there"), **slow(0.02))
    (found,) = findings("delay", x)
    assert found.to_do == ("windrow tune spend.yaml --checkpoint there",)
    assert found.where == "time.delay"
    (found,) = findings("watermark", examined(main_pipeline(), run=Unknown("no run"), checkpoint=Unknown("none")))
    assert found.to_do == ("time: {idle: 1m}",)


def test_rules_say_what_they_look_at() -> None:
    for rule in RULES:
        assert re.fullmatch(r"[A-Z][a-z ]+", rule.title)
        assert rule.question
        assert rule.when("Serious") or rule.when("Advice")
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_references_are_secrets_by_their_place() -> None:
    options = (
        ("sasl.jaas.config", 'x username="${KAFKA_USER}" password="${KAFKA_PASSWORD}";'),
        ("ssl.keystore.key", "${file:/run/key}"),
        ("client.id", "${CLIENT}"),
    )
    url = "postgresql://${PGUSER}:${PGPASSWORD}@${HOST}/spend?sslpassword=${file:/run/tls}&sslmode=require"
    pipeline = main_pipeline(source=replace(KAFKA, options=options), sink=PostgresSink(url, "spend"))
    assert secret_references(as_graph(pipeline)) == [
        "${KAFKA_PASSWORD}", "${file:/run/key}", "${PGPASSWORD}", "${file:/run/tls}",
    ]  # fmt: skip
    assert secret_references(as_graph(main_pipeline(sink=PostgresSink("${URL}", "spend")))) == ["${URL}"]


def test_requirements_that_are_not_met_are_named() -> None:
    there = {"pandas": "3.0.1", "pyspark": "4.3.0", "click": None}
    needs = ["click>=8.1", "pandas<3,>=2.2", "pyspark==4.3.0", 'pytest>=8; extra == "test"']
    assert unmet_requirements(needs, there.get) == ["click is missing (needs >=8.1)", "pandas 3.0.1 (needs <3,>=2.2)"]
