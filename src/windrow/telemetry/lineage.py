"""OpenLineage events about a run: the logs it reads, the tables it writes, and its state.

The OpenLineage client's configuration enables them and sets the receiver (docs/guides/other-tools.md). Without such a
configuration, none of the client's packages is imported. Events are sent by a separate thread.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Literal

from windrow import model as m
from windrow.connectors.registry import sink_connector, source_connector
from windrow.errors import SetupError, needs_extra
from windrow.telemetry.exporting import ExportGuard
from windrow.telemetry.reports import Observer, StepReport, Totals

if TYPE_CHECKING:
    import pyarrow as pa
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent


EVERY: Final = 300.0
"""Seconds between two events of a running pipeline."""

State = Literal["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]


def is_lineage_enabled(environment: Mapping[str, str]) -> bool:
    """Return True if the client would find a configuration, in environment variables or in a file."""
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    names = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
    if any(value and name.startswith(names) for name, value in environment.items()):
        return True
    # as the client looks; unlike pathlib, these raise nothing without a home or where a folder may not be read
    files = "openlineage.yml", os.path.expanduser("~/.openlineage/openlineage.yml")  # noqa: PTH111
    return any(map(os.path.isfile, files))


@contextmanager
def lineage(
    graph: m.Graph, *, is_bounded: bool, on_warning: Callable[[str], None], every: float = EVERY
) -> Iterator[Observer]:
    """Yield an observer that sends the events of a run, one every `every` seconds, if lineage is enabled.

    If events cannot be sent, `on_warning` is called once and the run continues without them. Sending delays the end of
    the run by a few seconds at most.
    """
    if not is_lineage_enabled(os.environ):
        yield Observer()
        return
    try:
        with needs_extra("lineage", "the export of lineage, which the variables OPENLINEAGE... enable,"):
            import openlineage.client  # noqa: F401, PLC0415 - only where lineage is asked for
    except SetupError as exc:
        on_warning(f"{exc} (the run continues)")
        yield Observer()
        return
    check = "the server and the configuration of OpenLineage"
    with ExportGuard("lineage events", "openlineage", check, on_warning) as guard:
        run: _RunLineage | None = None
        with guard.harmless():
            run = _RunLineage(graph, is_bounded, guard, every)
        if run is None:
            yield Observer()
            return
        state: State = "ABORT"
        error: str | None = None

        def end(is_asked: bool) -> None:  # noqa: FBT001 - a callback
            nonlocal state
            # a live run ends only when it is asked to
            state = "ABORT" if is_asked and is_bounded else "COMPLETE"

        try:
            yield Observer(on_step=run.on_step, on_end=end)
        except Exception as exc:
            state, error = "FAIL", str(exc)
            raise
        finally:
            run.end(state, error)


class _RunLineage:
    """Sends the lineage events of one run."""

    def __init__(self, graph: m.Graph, is_bounded: bool, guard: ExportGuard, every: float) -> None:  # noqa: FBT001 - inner
        from openlineage.client import set_producer  # noqa: PLC0415 - only where lineage is asked for
        from openlineage.client.uuid import generate_new_uuid  # noqa: PLC0415 - the same

        set_producer(f"urn:windrow:{version('windrow')}")
        self._client = _client()
        if self._client.transport.kind == "console":
            msg = "the transport `console` writes to Python's log, which a run does not display: choose http, file ..."
            raise ValueError(msg)
        code = self._client.config.facets.source_code_location
        # the repository of the working directory is not the pipeline's, and its URL may have a password
        code.disabled = code.disabled or code.repo_url is None
        self._graph = graph
        self._is_bounded = is_bounded
        self._guard = guard
        self._every = every
        self._run = str(generate_new_uuid())
        self._lock = threading.Lock()
        self._totals = Totals()
        self._read: Counter[str] = Counter()
        self._ended = threading.Event()
        self._last: tuple[State, str | None] = "ABORT", None
        self._thread = threading.Thread(target=self._send, name="windrow-lineage", daemon=True)
        self._thread.start()

    def on_step(self, report: StepReport) -> None:
        """Add the counts of a step to the totals."""
        with self._guard.harmless(), self._lock:
            self._totals.add(report)
            for partition, records in report.read.items():
                self._read[str(partition).rpartition("/")[0]] += records

    def end(self, state: State, error: str | None) -> None:
        """Send the final event."""
        self._last = state, error
        self._ended.set()
        self._guard.leave(self._thread.join)

    def _send(self) -> None:
        self._emit("START")
        while not self._ended.wait(self._every):
            self._emit("RUNNING")
        self._emit(*self._last)
        with self._guard.harmless():
            self._client.close()

    def _emit(self, state: State, error: str | None = None) -> None:
        with self._guard.harmless():
            self._client.emit(self._event(state, error))

    def _event(self, state: State, error: str | None) -> RunEvent:
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState  # noqa: PLC0415 - the same
        from openlineage.client.facet_v2 import (  # noqa: PLC0415 - the same
            error_message_run,
            job_type_job,
            processing_engine_run,
        )

        engine = processing_engine_run.ProcessingEngineRunFacet(version("windrow"), "windrow", version("windrow"))
        of_run: dict[str, Any] = {"processing_engine": engine}
        if error is not None:
            of_run["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "python")
        kind = job_type_job.JobTypeJobFacet("BATCH" if self._is_bounded else "STREAMING", "WINDROW", "PIPELINE")
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
        return RunEvent(
            eventTime=datetime.now(UTC).isoformat(),
            eventType=RunState[state],
            run=Run(self._run, of_run),
            job=Job(namespace, self._graph.name, {"jobType": kind}),
            inputs=[self._input(node) for node in self._graph.sources],
            outputs=[output for node in self._graph.sinks for output in self._outputs(node)],
        )

    def _input(self, node: m.SourceNode) -> InputDataset:
        from openlineage.client.event_v2 import InputDataset  # noqa: PLC0415 - the same
        from openlineage.client.facet_v2 import input_statistics_input_dataset  # noqa: PLC0415 - the same

        from windrow.engine.schema import arrow_type  # noqa: PLC0415 - Arrow only where lineage is asked for

        fields = [(field.name, str(arrow_type(field.type))) for field in node.decode.fields]
        with self._lock:
            read = self._read[node.name if len(self._graph.sources) > 1 else ""]
        statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(read)
        return InputDataset(
            *source_connector(node.source).dataset(node.source),
            {"inputStatistics": statistics},
            facets={"schema": _schema(fields)},
        )

    def _outputs(self, node: m.SinkNode) -> Iterator[OutputDataset]:
        from openlineage.client.event_v2 import OutputDataset  # noqa: PLC0415 - the same
        from openlineage.client.facet_v2 import output_statistics_output_dataset  # noqa: PLC0415 - the same

        from windrow.connectors.tables import table_names  # noqa: PLC0415 - Arrow only where lineage is asked for

        make = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        with self._lock:
            totals = replace(self._totals)
        # the counts of a step are sums over all sinks, and a realtime run has none
        is_known = len(self._graph.sinks) == 1 and totals.last is not None and not totals.last.only_offsets
        for name, table, counts in output_tables(self._graph, node):
            statistics: dict[str, Any] = {}
            if is_known and counts:
                statistics = {"outputStatistics": make(sum(getattr(totals, count) for count in counts))}
            facets = {"schema": _schema([(field.name, str(field.type)) for field in table])}
            if name in table_names(node.sink.table)[:2]:  # the results, and their changes
                facets["columnLineage"] = self._columns(node, table.names)
            yield OutputDataset(*sink_connector(node.sink).dataset(node.sink, name), statistics, facets=facets)

    def _columns(self, node: m.SinkNode, names: list[str]) -> Any:  # noqa: ANN401 - a facet
        """Return the column lineage facet: the source fields from which each column of a result table is computed."""
        from openlineage.client.facet_v2 import column_lineage_dataset as facets  # noqa: PLC0415 - the same

        from windrow.expressions import origins_of  # noqa: PLC0415 - the same

        datasets = {
            source.name: source_connector(source.source).dataset(source.source) for source in self._graph.sources
        }
        return facets.ColumnLineageDatasetFacet(
            {
                column: facets.Fields(
                    [
                        facets.InputField(*datasets[source], field, [facets.Transformation("DIRECT", way)])
                        for (source, field), way in origins.items()
                    ]
                )
                for column, origins in origins_of(self._graph, node.input).items()
                if column in names and origins
            }
        )


def _client() -> OpenLineageClient:
    """Create the client from the environment, and remove the variables that it adds to the environment."""
    from openlineage.client import OpenLineageClient  # noqa: PLC0415 - the same

    given = set(os.environ)
    try:
        return OpenLineageClient()
    finally:
        for name in set(os.environ) - given:
            del os.environ[name]


def _schema(fields: list[tuple[str, str]]) -> Any:  # noqa: ANN401 - a facet
    from openlineage.client.facet_v2 import schema_dataset  # noqa: PLC0415 - the same

    return schema_dataset.SchemaDatasetFacet(
        [schema_dataset.SchemaDatasetFacetFields(name, type_) for name, type_ in fields]
    )


def output_tables(graph: m.Graph, node: m.SinkNode) -> Iterator[tuple[str, pa.Schema, tuple[str, ...]]]:
    """Yield (name, schema, counts) for each table (or topic) of a sink.

    `counts` names the counts of a run that add up to the number of new rows; it is empty if there are none.
    """
    from windrow.connectors.tables import layout  # noqa: PLC0415 - the same
    from windrow.engine import schema  # noqa: PLC0415 - Arrow only where lineage is asked for
    from windrow.expressions import sink_spec  # noqa: PLC0415 - the same

    spec, sink = sink_spec(graph, node), node.sink
    if isinstance(sink, m.KafkaSink):
        yield sink.topic, schema.changes(spec.rows), ()
        yield sink.companion("late"), schema.LATE, ()
        yield sink.companion("dead"), schema.DEAD, ()
        return
    tables = layout(spec)
    if not isinstance(sink, m.TableSink):
        yield sink.table, tables.changes.stored, ("inserts", "revisions")
        return
    yield tables.result.name, tables.result.stored, ("inserts", "revisions")
    if sink.changelog:
        yield tables.changes.name, tables.changes.stored, ()
    yield tables.late.name, tables.late.schema, ("expired",)
    yield tables.dead.name, tables.dead.schema, ("dead", "rejected")
    yield tables.clocks.name, tables.clocks.schema, ()
