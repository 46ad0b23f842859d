"""OpenTelemetry traces of a run: a trace for each committed step, with a span for each part of the step.

OpenTelemetry's environment variables enable them and choose the exporter (docs/guides/other-tools.md). Without these
variables, none of its packages is imported. Spans are created when a step is reported, from the times in the report,
and a thread of the SDK sends them from a bounded queue.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING, Any, Final

from windrow import model as m
from windrow.errors import SetupError, needs_extra
from windrow.telemetry.exporting import ExportGuard
from windrow.telemetry.part_times import PartTime
from windrow.telemetry.reports import COUNTS, Observer, StepReport, now_micros

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, SpanKind

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_IN_TASKS: Final = frozenset({"read", "decode", "operate"})
"""The parts of a step that tasks execute while the driver waits in the part `compute`."""


def trace_exporters(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the exporters that the environment selects."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    default = "otlp" if any(environment.get(name) for name in _ENDPOINTS) else "none"
    names = (environment.get("OTEL_TRACES_EXPORTER") or default).split(",")
    return [name for name in dict.fromkeys(name.strip().lower() for name in names) if name not in {"", "none"}]


@contextmanager
def tracing(graph: m.Graph, host: str, on_warning: Callable[[str], None]) -> Iterator[Observer]:
    """Yield an observer that exports the traces of a run, if the environment enables it.

    If traces cannot be exported, `on_warning` is called once and the run continues without them. Exporting delays the
    end of the run by a few seconds at most.
    """
    names = trace_exporters(os.environ)
    if not names:
        yield Observer()
        return
    try:
        with needs_extra("traces", "the export of traces, which the variables OTEL_... enable,"):
            import opentelemetry.sdk.trace  # noqa: F401, PLC0415 - only where traces are asked for
    except SetupError as exc:
        on_warning(f"{exc} (the run continues)")
        yield Observer()
        return
    with ExportGuard("traces", "opentelemetry", "the collector and the variables OTEL_...", on_warning) as guard:
        run: _RunTraces | None = None
        with guard.harmless():
            run = _RunTraces(graph, host, names, guard)
        if run is None:
            yield Observer()
            return
        try:
            yield Observer(run.on_step, run.on_trouble, run.on_ready)
        except BaseException as exc:
            run.on_failure(exc)
            raise
        finally:
            guard.leave(run.close, run.abandon)


class _RunTraces:
    """The traces of one run. Thread-safe."""

    def __init__(self, graph: m.Graph, host: str, names: list[str], guard: ExportGuard) -> None:
        self._graph = graph
        self._guard = guard
        self._exporters = [_exporter(name) for name in names]
        self._provider = _provider(graph, host, self._exporters)
        self._tracer = self._provider.get_tracer("windrow", version("windrow"))
        self._lock = threading.Lock()
        self._fault: tuple[int, str] | None = None

    def on_step(self, report: StepReport) -> None:
        """Export the trace of a step. The reports of realtime runs do not describe steps and are ignored."""
        with self._guard.harmless():
            self._end_fault()
            if not report.only_offsets:
                self._step(report)

    def on_trouble(self, message: str) -> None:
        """Note a fault after which the run continues. Its trace ends when the run is ready or commits a step."""
        with self._guard.harmless():
            self._end_fault()
            with self._lock:
                self._fault = now_micros(), message

    def on_ready(self) -> None:
        """Note that the run is processing steps, for the first time or again after a fault."""
        with self._guard.harmless():
            self._end_fault()

    def on_failure(self, exc: BaseException) -> None:
        """Export the trace of the error that ended a run. Signals do not count as errors."""
        with self._guard.harmless():
            self._end_fault()
            if isinstance(exc, Exception):
                now = now_micros()
                self._export_failure("windrow.failure", now, now, str(exc), type(exc).__qualname__)

    def close(self) -> None:
        """Send the remaining spans and shut down."""
        self._end_fault()
        self._provider.force_flush()
        self._provider.shutdown()

    def abandon(self) -> None:
        """Stop sending and end the exporters' threads."""
        for exporter in self._exporters:
            exporter.shutdown()

    def _step(self, report: StepReport) -> None:
        times = report.part_times
        committed = report.committed or now_micros()
        began = min((time.began for time in times), default=committed - round(report.took * 1_000_000))
        ended = max((time.ended for time in times), default=committed)
        root = self._span("windrow.step", None, began, _of_step(report, self._graph))
        parents = {"": root}
        # the driver's parts first: the tasks' are within one of them
        for time in sorted(times, key=lambda time: (time.part in _IN_TASKS, time.began)):
            parent = parents.get("compute" if time.part in _IN_TASKS else "", root)
            span = self._span(f"windrow.{time.part}", parent, time.began, self._of_part(time, report), _kind(time.part))
            parents[time.part] = span
            span.end(time.ended * 1_000)
        root.end(max(ended, committed) * 1_000)

    def _of_part(self, time: PartTime, report: StepReport) -> dict[str, Any]:
        """Return the span attributes of a part of a step."""
        found: dict[str, Any] = {}
        if time.part in _IN_TASKS:
            found["windrow.task_seconds"] = time.seconds
        match time.part:
            case "read":
                found |= _of_sources(self._graph, report)
            case "operate":
                nodes = list(report.state_by_node)
                # none if the run resumes from a checkpoint with more levels
                places = [place for level in self._graph.levels[time.level : time.level + 1] for place in level]
                names = [place.node.name or self._graph.name for place in places]
                found |= {"windrow.level": time.level, "windrow.nodes": names}
                if time.level < len(nodes):
                    rows, size = report.state_by_node[nodes[time.level]]
                    found |= {"windrow.state.rows": rows, "windrow.state.bytes": size}
            case "commit":
                found |= _of_sinks([node.sink for node in self._graph.sinks], report)
        return found

    def _end_fault(self) -> None:
        """Export the trace of the last fault, if there was one."""
        with self._lock:
            fault, self._fault = self._fault, None
        if fault is not None:
            began, message = fault
            self._export_failure("windrow.retry", began, now_micros(), message, "_OTHER")

    def _export_failure(self, name: str, began: int, ended: int, message: str, kind: str) -> None:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - only where traces are asked for

        span = self._span(name, None, began, {"windrow.pipeline": self._graph.name, "error.type": kind})
        span.add_event("exception", {"exception.message": message, "exception.type": kind}, began * 1_000)
        span.set_status(Status(StatusCode.ERROR, message))
        span.end(ended * 1_000)

    def _span(
        self, name: str, parent: Span | None, began: int, attributes: Mapping[str, Any], kind: SpanKind | None = None
    ) -> Span:
        from opentelemetry.context import Context  # noqa: PLC0415 - the same
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 - the same

        # a step is a trace of its own, whatever trace this process is in
        within: Context = Context() if parent is None else set_span_in_context(parent, Context())
        known = {key: value for key, value in attributes.items() if value is not None}
        return self._tracer.start_span(
            name, within, kind or SpanKind.INTERNAL, attributes=known, start_time=began * 1_000
        )


def _provider(graph: m.Graph, host: str, exporters: Sequence[SpanExporter]) -> TracerProvider:
    """Create a tracer provider that is configured by the environment."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415 - the same
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - the same
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - the same

    resource = Resource.create({"windrow.pipeline": graph.name, "windrow.host": host})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "windrow"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporter(name: str) -> SpanExporter:
    """Create the exporter with a name from OTEL_TRACES_EXPORTER; raise ValueError if it is not installed."""
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter  # noqa: PLC0415 - the same

        # a line for each span, on stderr: results are on stdout
        return ConsoleSpanExporter(out=sys.stderr, formatter=lambda span: f"{span.to_json(indent=None)}\n")
    if name == "otlp":
        protocol = next(
            (os.environ[protocol].strip() for protocol in _PROTOCOLS if os.environ.get(protocol)), "http/protobuf"
        )
        if protocol not in _OTLP:
            msg = f"{protocol!r} is not a protocol for traces: set {_PROTOCOLS[1]} to {' or '.join(_OTLP)}"
            raise ValueError(msg)
        name = _OTLP[protocol]
    found = list(entry_points(group="opentelemetry_traces_exporter", name=name))
    if not found:
        msg = f"exporter {name!r} is not installed: set OTEL_TRACES_EXPORTER to otlp or console, or install its package"
        raise ValueError(msg)
    exporter: SpanExporter = found[0].load()()
    return exporter


def _kind(part: str) -> SpanKind:
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - the same

    return {"read": SpanKind.CONSUMER, "commit": SpanKind.CLIENT}.get(part, SpanKind.INTERNAL)


def _of_step(report: StepReport, graph: m.Graph) -> dict[str, Any]:
    """Return the span attributes of a step; unknown values are None."""
    counts = {f"windrow.{name}": getattr(report, name) for name in ("epoch", *COUNTS)}
    lag = report.last_lag
    return {
        "windrow.pipeline": graph.name,
        **counts,
        "windrow.changes": report.inserts + report.revisions,
        "windrow.open_windows": report.open_windows,
        "windrow.partitions": len(report.read),
        "windrow.low_watermark": None if report.low_watermark is None else _time(report.low_watermark),
        "windrow.watermark_lag_seconds": report.watermark_lag,
        "windrow.held_back_by": [str(name) for name in report.held_back_by],
        "windrow.lag": None if lag is None else lag.behind,
        "windrow.lag_seconds": None if lag is None else lag.longest,
        "windrow.state.rows": report.state_rows,
        "windrow.state.bytes": report.state_bytes,
        "windrow.key_group_load": report.key_group_load,
    }


def _of_sources(graph: m.Graph, report: StepReport) -> dict[str, Any]:
    """Return the span attributes of a read.

    The messaging conventions allow only one topic, so topics are omitted if there are several.
    """
    sources = [node.source.records for node in graph.sources]
    found: dict[str, Any] = {"messaging.batch.message_count": report.events}
    match sources:
        case [m.KafkaSource(topic=topic)]:
            found |= {"messaging.system": "kafka", "messaging.destination.name": topic}
            found |= {"messaging.operation.type": "receive", "messaging.operation.name": "poll"}
        case _:
            found["windrow.sources"] = [source.label for source in sources]
    return found


def _of_sinks(sinks: list[m.Sink], report: StepReport) -> dict[str, Any]:
    """Return the span attributes of a commit, named by OpenTelemetry's conventions for databases."""
    systems = {sink.system for sink in sinks}
    found: dict[str, Any] = {"db.operation.name": "COMMIT", "windrow.changes": report.inserts + report.revisions}
    if len(systems) == 1:
        found["db.system.name"] = systems.pop()
    if len(sinks) == 1:
        return found | {"db.collection.name": sinks[0].table}
    return found | {"windrow.tables": [sink.table for sink in sinks]}


def _time(micros: int) -> str | None:
    """Format a time as ISO 8601, or return None if the year is out of range for Python."""
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="milliseconds")
    except OverflowError:
        return None
