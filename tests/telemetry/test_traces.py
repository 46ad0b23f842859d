"""Traces: what a collector receives of a run, and that no run fails, waits or imports anything for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from tests.client.test_progress import REPORT
from tests.contracts.stores import Store
from tests.graphs import as_graph
from tests.runtime.runs import Runner
from tests.runtime.spend import Files, events, spend
from tests.servers.hostile import HostileServer
from tests.servers.receiver import Receiver

from windrow.errors import RunError
from windrow.model import KafkaSource, PostgresSink, SqliteSink
from windrow.runtime.launch import launch
from windrow.runtime.replay import ReplayOptions, plan_replay, run_replay
from windrow.runtime.run import ReplayHost, RunSettings
from windrow.telemetry.exporting import LEAVE
from windrow.telemetry.part_times import PartTime, join_part_times
from windrow.telemetry.reports import Fault
from windrow.telemetry.traces import trace_exporters, tracing

T0 = 1_767_225_600_000_000
SINK = PostgresSink("postgresql://ann:secret@db/shop", "spend")
GRAPH = as_graph(spend(KafkaSource("broker:9092", "purchases"), SINK))
STEP = replace(
    REPORT,
    epoch=7,
    records=40,
    dead=2,
    inserts=3,
    revisions=4,
    read={0: 30, 1: 10},
    committed=T0 + 900_000,
    lag={0: 5, 1: 6},
    state_by_node={"user-spend": (20, 4096)},
    part_times=(
        PartTime("plan", 0.1, T0, T0 + 100_000),
        PartTime("compute", 0.5, T0 + 100_000, T0 + 600_000),
        PartTime("commit", 0.2, T0 + 700_000, T0 + 900_000),
        PartTime("operate", 0.3, T0 + 300_000, T0 + 550_000),
        PartTime("read", 0.05, T0 + 110_000, T0 + 250_000),
    ),
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans are sent soon."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


def asked(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)


def plain(value: AnyValue) -> Any:  # noqa: ANN401 - a value of any type
    kind = value.WhichOneof("value")
    return [plain(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, str(kind))


def attributes(span: Any) -> dict[str, Any]:  # noqa: ANN401 - a span, an event or a resource
    return {one.key: plain(one.value) for one in span.attributes}


def received(receiver: Receiver) -> tuple[list[Span], dict[str, Any]]:
    """The spans in the order of their starts, and the attributes of their resource."""
    assert {post.path for post in receiver.posts} == {"/v1/traces"}
    requests = [ExportTraceServiceRequest.FromString(post.body) for post in receiver.posts]
    of = [resource for request in requests for resource in request.resource_spans]
    spans = [span for resource in of for scope in resource.scope_spans for span in scope.spans]
    return sorted(spans, key=lambda span: span.start_time_unix_nano), attributes(of[0].resource)


def children(spans: list[Span], parent: Span) -> dict[str, Span]:
    return {span.name.removeprefix("windrow."): span for span in spans if span.parent_span_id == parent.span_id}


def test_the_trace_of_a_step_has_its_parts_at_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver:
        asked(monkeypatch, receiver.url)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=shop")
        with tracing(GRAPH, "stream", pytest.fail) as traces:
            traces.on_step(STEP)
            traces.on_step(replace(STEP, only_offsets=True))
            traces.on_step(replace(STEP, epoch=8, low_watermark=-(10**18), part_times=(), committed=T0 + 10**6))
    spans, resource = received(receiver)
    assert attributes(spans.pop())["windrow.epoch"] == 8  # a year that has no text, and nothing known of its parts
    assert resource["service.name"] == "windrow"
    assert (resource["windrow.pipeline"], resource["windrow.host"], resource["team"]) == (
        "user-spend",
        "stream",
        "shop",
    )
    (root,) = [span for span in spans if not span.parent_span_id]
    assert root.name == "windrow.step"
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (T0 * 1_000, (T0 + 900_000) * 1_000)
    known = attributes(root)
    assert {
        name: known[f"windrow.{name}"] for name in ("epoch", "records", "dead", "changes", "partitions", "lag")
    } == {
        "epoch": 7,
        "records": 40,
        "dead": 2,
        "changes": 7,
        "partitions": 2,
        "lag": 11,
    }
    assert known["windrow.low_watermark"] == "2026-01-01T00:00:00.000+00:00"
    parts = children(spans, root)
    assert list(parts) == ["plan", "compute", "commit"]
    tasks = children(spans, parts["compute"])
    assert list(tasks) == ["read", "operate"]
    for time_ in STEP.part_times:
        span = (parts | tasks)[time_.part]
        assert (span.start_time_unix_nano, span.end_time_unix_nano) == (time_.began * 1_000, time_.ended * 1_000)
        assert span.trace_id == root.trace_id
    assert attributes(tasks["read"]) == {
        "windrow.task_seconds": 0.05,
        "messaging.system": "kafka",
        "messaging.destination.name": "purchases",
        "messaging.operation.type": "receive",
        "messaging.operation.name": "poll",
        "messaging.batch.message_count": 42,
    }
    assert attributes(tasks["operate"]) == {
        "windrow.task_seconds": 0.3,
        "windrow.level": 0,
        "windrow.nodes": ["user-spend"],
        "windrow.state.rows": 20,
        "windrow.state.bytes": 4096,
    }
    commit = attributes(parts["commit"])
    assert (commit["db.system.name"], commit["db.collection.name"]) == ("postgresql", "spend")
    assert b"secret" not in b"".join(post.body for post in receiver.posts)


def test_a_fault_lasts_until_the_run_is_ready_and_a_failure_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver:
        asked(monkeypatch, receiver.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-spend")
        with pytest.raises(RunError), tracing(GRAPH, "stream", pytest.fail) as traces:  # noqa: PT012 - what it raises
            traces.on_ready()
            traces.on_trouble(Fault("the database is down", "sink", "trying again in 0.5 s"))
            traces.on_trouble(Fault("the database is down", "sink", "trying again in 1 s"))
            traces.on_ready()
            traces.on_step(STEP)
            msg = "the database is down for good"
            raise RunError(msg)
    spans, resource = received(receiver)
    assert resource["service.name"] == "shop-spend"
    faults = [span for span in spans if span.name in {"windrow.retry", "windrow.failure"}]
    assert [span.name for span in faults] == ["windrow.retry", "windrow.retry", "windrow.failure"]
    assert {span.status.code for span in faults} == {Status.STATUS_CODE_ERROR}
    assert len({span.trace_id for span in faults}) == 3
    assert faults[-1].status.message == "the database is down for good"
    assert attributes(faults[-1])["error.type"] == "RunError"
    assert attributes(faults[0].events[0])["exception.message"] == "the database is down; trying again in 0.5 s"


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, []),
        ({"OTEL_SERVICE_NAME": "shop"}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "True"}, []),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, ["otlp", "console"]),
    ],
)
def test_the_standard_variables_alone_switch_traces_on(variables: Mapping[str, str], names: list[str]) -> None:
    assert trace_exporters(variables) == names


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "exporter 'zipkin' is not installed"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"}, "is not a protocol"),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "0"}, "max_export_batch_size"),
    ],
)
def test_what_cannot_be_exported_to_is_a_warning(
    variables: Mapping[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    warnings: list[str] = []
    with tracing(GRAPH, "stream", warnings.append) as traces:
        traces.on_step(STEP)
        traces.on_trouble(Fault("a fault", "sink"))
    (warning,) = warnings
    assert said in warning


@pytest.mark.parametrize("manner", ["hangs", "drips", "refuses"])
def test_a_collector_that_does_not_answer_is_one_warning_and_seconds(
    manner: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Receiver(hangs=True) as receiver, HostileServer("dripping") as slow:
        url = {"hangs": receiver.url, "drips": slow.url, "refuses": "http://127.0.0.1:1"}[manner]
        asked(monkeypatch, url)
        warnings: list[str] = []
        since = time.monotonic()
        with tracing(GRAPH, "stream", warnings.append) as traces:
            for _ in range(1_000):
                traces.on_step(STEP)
            steps = time.monotonic() - since
        assert time.monotonic() - since - steps < LEAVE + 2
    (warning,) = warnings
    assert warning.startswith("traces of this run may be lost: ")
    assert capfd.readouterr() == ("", "")


def test_the_console_gets_a_line_a_span_on_stderr(
    files: Files, store: Store, runner: Runner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    files.append(events(100))
    options = RunSettings(runner.checkpoint, "memory", until_end=True)
    assert launch(as_graph(spend(files.source, store.settings())), options, lambda _: None, lambda _: None) == "end"
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert sorted({line.split('"')[3] for line in lines}) == ["windrow.commit", "windrow.compute", "windrow.step"]


def replayed(files: Files, folder: Path, host: ReplayHost) -> None:
    pipeline = spend(files.source, SqliteSink(str(folder / "spend.db"), "spend"))
    options = ReplayOptions(folder / "none", end="log", host=host, max_records=40, on_warning=pytest.fail)
    assert run_replay(plan_replay(as_graph(pipeline), options), options, lambda _: None, lambda _: None) == "end"


def test_a_replay_is_traced(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.append(events(100))
    with Receiver() as receiver:
        asked(monkeypatch, receiver.url)
        replayed(files, tmp_path, "memory")
    spans, resource = received(receiver)
    assert (resource["windrow.pipeline"], resource["windrow.host"]) == ("user-spend", "memory")
    assert sum(attributes(span).get("windrow.records", 0) for span in spans) >= 100
    assert {span.name for span in spans} == {"windrow.step", "windrow.compute", "windrow.commit"}


@pytest.mark.usefixtures("spark")
def test_the_batch_host_reads_all_steps_in_the_first(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.append(events(100))
    with Receiver() as receiver:
        asked(monkeypatch, receiver.url)
        replayed(files, tmp_path, "batch")
    spans, _ = received(receiver)
    roots = sorted(
        (span for span in spans if not span.parent_span_id), key=lambda one: attributes(one)["windrow.epoch"]
    )
    parts = [children(spans, root) for root in roots]
    assert len(parts) > 1
    assert {"read", "decode", "operate", "commit"} <= parts[0].keys()
    assert all(one.keys() == {"operate", "commit"} for one in parts[1:])
    assert parts[0]["read"].end_time_unix_nano <= parts[1]["commit"].start_time_unix_nano


def test_a_run_imports_nothing_for_exporters_that_are_not_asked_for() -> None:
    script = """
import sys, windrow.runtime.launch
from windrow.telemetry.lineage import lineage
from windrow.telemetry.traces import tracing
with tracing(None, "memory", print) as one, lineage(None, is_bounded=True, on_warning=print) as other:
    one.on_ready(), other.on_ready()
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"opentelemetry", "openlineage", "requests", "attr"}))
"""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "OPENLINEAGE_"))}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=given)
    assert ran.stdout.split() == []


def test_times_of_tasks_are_joined_by_part_and_level() -> None:
    times = [PartTime("operate", 1.0, 10, 20, 1), PartTime("operate", 2.0, 5, 12, 1), PartTime("operate", 4.0, 0, 4)]
    assert join_part_times(times) == (PartTime("operate", 4.0, 0, 4), PartTime("operate", 3.0, 5, 20, 1))


@pytest.mark.usefixtures("spark")
def test_a_run_on_spark_is_traced(files: Files, store: Store, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    files.append(events(600))
    pipeline = replace(spend(files.source, store.settings()), salt=2)
    with Receiver() as receiver:
        asked(monkeypatch, receiver.url)
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        runner.bounded(pipeline, max_records=300, on_warning=pytest.fail)
    lineage = [post for post in receiver.posts if post.path == "/api/v1/lineage"]
    receiver.posts = [post for post in receiver.posts if post not in lineage]
    assert len(lineage) == 2
    spans, _ = received(receiver)
    roots = [span for span in spans if not span.parent_span_id]
    assert [span.name for span in roots] == ["windrow.step"] * len(runner.reports)
    assert [attributes(span)["windrow.epoch"] for span in roots] == [report.epoch for report in runner.reports]
    for root, report in zip(roots, runner.reports, strict=True):
        known = attributes(root)
        assert known["windrow.records"] == report.records
        assert known["windrow.held_back_by"] == [str(name) for name in report.held_back_by]
        parts = children(spans, root)
        assert parts.keys() == report.parts.keys()
        for name, span in parts.items():
            assert root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= root.end_time_unix_nano
            seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
            assert seconds == pytest.approx(report.parts[name], abs=1e-5)
        order = [parts[name].start_time_unix_nano for name in ("plan", "compute", "collect", "wait", "sync", "commit")]
        assert order == sorted(order)
        compute = parts["compute"]
        tasks = [span for span in spans if span.parent_span_id == compute.span_id]
        levels = sorted(attributes(span)["windrow.level"] for span in tasks if span.name == "windrow.operate")
        assert levels == [0, 1]
        for span in tasks:
            # of another process, on the clock of the same machine
            assert compute.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= compute.end_time_unix_nano
    assert {span.name for span in spans} >= {"windrow.read", "windrow.decode"}
