"""The work of a pipeline under a load, in processor time and bytes.

It is computed from the rates and state that `windrow.tools.capacity.nodes` expects of the pipeline, and from `Machine`,
the measured cost of work on one core.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from windrow import model as m
from windrow.connectors.base import load as load_function
from windrow.connectors.registry import sink_connector
from windrow.connectors.row_bytes import arrow_bytes
from windrow.connectors.tables import Table, layout
from windrow.engine.state.inspect import state_schema
from windrow.expressions import sink_spec
from windrow.tools.capacity.expected import NodeExpected
from windrow.tools.capacity.load import SECOND, Load
from windrow.tools.capacity.nodes import expected

BLOB_BYTES: Final = 640
"""Bytes of a blob of state beside its rows: the header and the padding of an Arrow stream of some columns."""
_GROWING: Final = (
    m.ApproxCountDistinct | m.ApproxQuantile | m.BottomKBy | m.CollectList | m.CollectSet | m.CountDistinct | m.Custom
    | m.Quantile | m.TopK | m.TopKBy
)  # fmt: skip
"""Functions whose accumulator holds values."""
_MIB: Final = 1 << 20
_PARTS: Final = ("read and decode", "operate", "results", "write state", "sink")
_MOST_STATE_PARTITIONS: Final = 16
_LATE_BYTES: Final = 120
"""Bytes of a row of late output beside the record."""


@dataclass(frozen=True)
class Machine:
    """The cost of work on one core, in microseconds of processor time and in bytes, as measured by `bench/capacity.py`.

    Records: `record` and `byte` are the time to read and decode a record and each of its bytes. `take` is the time in
    which an operator brings a record to its key group and aggregates it, and `lookup` the time of a lookup, a table or
    a deduplication instead. `change` is the time for each result row, `written` and `blob` for each row and blob of
    state that a step writes, and `sqlite` or `postgres` for each row of a sink's changelog.

    Steps: `step` is the fixed time of a step. A step also takes `log_task` for each task that reads, `partition` for
    each partition of the log and, at each level, `task` for each state partition and `group` for each key group. `busy`
    is the fraction of a step during which the cores work, and `least_step` the shortest step in seconds.

    State: `compressed` is the compression ratio of state on disk. A step writes the fraction `logged` of the bytes of
    changed rows (`logged_records` if the rows are records), `logged_blob` bytes for each blob, and `store` bytes for
    each state partition and level. In each step and level a key group writes `summary` bytes, `clock` for each
    partition of the log, `window` for each window and `bucket` for each bucket of sessions. Spark keeps the last
    `versions` steps and writes a snapshot every `snapshots` steps.

    Memory: `driver` for the driver's Python process, `jvm` for a Java process, `workers` for all Python workers
    together plus `worker` for each core, and `row` for each result row of a step.
    """

    record: float = 1.3
    byte: float = 0.0028
    take: float = 1.1
    lookup: float = 3.0
    change: float = 0.63
    written: float = 0.69
    blob: float = 120.0
    sqlite: float = 2.7
    postgres: float = 1.0
    step: float = 100_000.0
    log_task: float = 15_000.0
    partition: float = 1_000.0
    task: float = 45_000.0
    group: float = 17_000.0
    busy: float = 0.8
    least_step: float = 0.2
    compressed: float = 0.2
    logged: float = 0.185
    logged_records: float = 0.22
    logged_blob: float = 50.0
    store: float = 4_000.0
    summary: float = 284.0
    clock: float = 40.0
    window: float = 18.0
    bucket: float = 48.0
    versions: int = 100
    snapshots: int = 10
    driver: float = 200 * _MIB
    jvm: float = 500 * _MIB
    workers: float = 700 * _MIB
    worker: float = 300 * _MIB
    row: float = 80.0


MACHINE: Final = Machine()


def reading(load: Load, machine: Machine = MACHINE) -> dict[str, float]:
    """Map each source to the cores needed to read and decode its records (seconds of processor time per second)."""
    return {
        name: rate * (machine.record + machine.byte * load.record_bytes[name]) / SECOND
        for name, rate in load.rates.items()
    }


@dataclass(frozen=True)
class Demand:
    """The work of a pipeline under a load, in steps of `step` seconds on a number of cores.

    `logs` is the number of log partitions of each source, `state_tasks` the number of state partitions at each level,
    and `nodes` the expected rates and state of the nodes. Times are seconds of processor time; sizes are bytes.
    """

    graph: m.Graph
    load: Load
    step: float
    logs: Mapping[str, int]
    state_tasks: int
    cores: int
    nodes: tuple[NodeExpected, ...]
    machine: Machine = MACHINE

    @staticmethod
    def of(graph: m.Graph, load: Load, step: float, logs: Mapping[str, int], cores: int) -> Demand:
        """Return the demand with the given log partitions, and with a state partition for each core, up to a limit."""
        limit = graph.key_groups if cores <= _MOST_STATE_PARTITIONS else m.state_partitions(graph.key_groups)
        return Demand(graph, load, step, logs, min(cores, limit), cores, tuple(expected(graph, load, step)))

    @property
    def partitions(self) -> int:
        """Number of partitions of all logs."""
        return sum(self.logs.values())

    @cached_property
    def operators(self) -> tuple[NodeExpected, ...]:
        """The nodes that are not sinks."""
        return tuple(node for node in self.nodes if not isinstance(node.node, m.SinkNode))

    @cached_property
    def sinks(self) -> tuple[tuple[m.SinkNode, NodeExpected], ...]:
        """Pairs of a sink and the expected rates of the node that produces its rows."""
        by_name = {node.node.name: node for node in self.nodes}
        return tuple(
            (sink, by_name.get(sink.name) or by_name[self.graph.producer(sink.input).name]) for sink in self.graph.sinks
        )

    @cached_property
    def reads(self) -> dict[str, float]:
        """Processor seconds per second to read and decode each source."""
        return reading(self.load, self.machine)

    @cached_property
    def parts(self) -> dict[str, float]:
        """Processor seconds per second that grow with the load, for each kind of work."""
        machine, parts = self.machine, dict.fromkeys(_PARTS, 0.0)
        parts["read and decode"] = SECOND * sum(self.reads.values())
        for operator in self.operators:
            has_lookups = isinstance(operator.node, m.LookupNode | m.FilterNode | m.TableNode | m.TableJoinNode)
            parts["operate"] += operator.taken * (machine.lookup if has_lookups else machine.take)
            parts["results"] += operator.result_rows * machine.change
            parts["write state"] += sum(
                kind.written_rows * machine.written + kind.written_blobs * machine.blob for kind in operator.state
            )
        for sink, writer in self.sinks:
            each = {m.SqliteSink: machine.sqlite, m.PostgresSink: machine.postgres}.get(type(sink.sink), machine.change)
            parts["sink"] += writer.changelog * each
        return {name: micros / SECOND for name, micros in parts.items()}

    @cached_property
    def of_step(self) -> float:
        """Fixed processor seconds of a step, whatever it reads."""
        machine = self.machine
        level = machine.task * self.state_tasks + machine.group * self.graph.key_groups
        read = machine.log_task * self.readers + machine.partition * self.partitions
        return (machine.step + read + len(self.graph.levels) * level) / SECOND

    @property
    def processors(self) -> float:
        """Total processor seconds per second."""
        return sum(self.parts.values()) + self.of_step / self.step

    @cached_property
    def in_groups(self) -> float:
        """Processor seconds per second of the work in key groups, which uses at most one core per state partition."""
        return sum(self.parts[name] for name in ("operate", "results", "write state"))

    @property
    def readers(self) -> int:
        """Number of tasks that read at the same time: one for each log partition, limited by the cores."""
        return min(self.partitions, self.cores)

    @cached_property
    def slowest_reading(self) -> tuple[float, int]:
        """Processor seconds per second and number of tasks of the slowest read, of one source or of all together."""
        by_source = [(work, min(self.logs[name], self.cores)) for name, work in self.reads.items()]
        return max((sum(self.reads.values()), self.readers), *by_source, key=lambda reading: reading[0] / reading[1])

    @cached_property
    def step_time(self) -> float:
        """Seconds that a step takes, limited by all cores, the reading tasks, the state partitions, or the sink."""
        busy, (read, tasks) = self.machine.busy, self.slowest_reading
        shares = (
            self.processors / (self.cores * busy), read / (tasks * busy),
            self.in_groups / (self.state_tasks * busy), self.parts["sink"],
        )  # fmt: skip
        return max(self.machine.least_step, max(shares) * self.step)

    @property
    def latency(self) -> tuple[float, float]:
        """Median and maximum seconds from when the low watermark passes a window's end until its row is written."""
        wait = max(self.step, self.step_time)
        return wait / 2 + self.step_time, wait + self.step_time

    def _row_bytes(self, which: str, *, records: bool) -> float:
        """Return the bytes of state rows, without the overhead of their blobs.

        `which` is `rows` or `written_rows`. Only kinds of state whose rows are records are counted if `records` is set,
        otherwise only the other kinds.
        """
        total = sum(
            getattr(kind, which) * state_bytes(self.graph, node.node, kind.kind, self.load.text_bytes)
            for node in self.nodes
            for kind in node.state
            if kind.are_records == records
        )
        return float(total)

    @property
    def rows(self) -> float:
        """Number of rows of state."""
        return sum(node.rows for node in self.nodes)

    @cached_property
    def blobs(self) -> float:
        """Number of blobs that hold the rows of state."""
        return float(sum(kind.blobs for node in self.nodes for kind in node.state))

    @cached_property
    def state(self) -> float:
        """Size of all blobs of state in bytes."""
        return sum(self._row_bytes("rows", records=are) for are in (False, True)) + self.blobs * BLOB_BYTES

    @cached_property
    def writes(self) -> tuple[float, float, float]:
        """State that a step writes: bytes of result rows, bytes of records, and number of blobs."""
        rows, records = (self._row_bytes("written_rows", records=are) for are in (False, True))
        blobs = float(sum(kind.written_blobs for node in self.nodes for kind in node.state))
        return rows * self.step, records * self.step, blobs * self.step

    @cached_property
    def notes(self) -> float:
        """Bytes that the key groups write in each step about clocks, windows and buckets of sessions."""
        machine, levels, groups = self.machine, len(self.graph.levels), self.graph.key_groups
        windows = sum(
            (machine.bucket if kind.kind == "sessions" else machine.window) * kind.blobs
            for node in self.nodes
            for kind in node.state
        )
        stores = levels * self.state_tasks * machine.store
        return groups * levels * (machine.summary + machine.clock * self.partitions) + windows + stores

    @property
    def step_bytes(self) -> float:
        """Bytes that a step writes into the checkpoint."""
        (rows, records, blobs), machine = self.writes, self.machine
        return machine.logged * rows + machine.logged_records * records + machine.logged_blob * blobs + self.notes

    def checkpoint(self, steps: float = math.inf) -> float:
        """Return the size of the checkpoint in bytes after a number of steps."""
        kept = min(steps, self.machine.versions)
        return kept * self.step_bytes + kept / self.machine.snapshots * self.state * self.machine.compressed

    @cached_property
    def sink_bytes(self) -> dict[str, float]:
        """Bytes per second written to tables, changelogs and late output."""
        found = {"tables": 0.0, "changelogs": 0.0}
        for sink, writer in self.sinks:
            tables, text = layout(sink_spec(self.graph, sink)), self.load.text_bytes
            if isinstance(sink.sink, m.TableSink):
                kept = max(0.0, writer.inserts - writer.deletes)
                found["tables"] += kept * _row_bytes(sink.sink, tables.result, text)
            if sink.sink.changelog:
                found["changelogs"] += writer.changelog * _row_bytes(sink.sink, tables.changes, text)
        late = sum(node.expired for node in self.nodes)
        return found | {"late output": late * (self.load.mean_bytes + _LATE_BYTES)}

    @property
    def step_rows(self) -> float:
        """Number of result rows of a step."""
        return sum(operator.result_rows for operator in self.operators) * self.step

    @property
    def driver(self) -> float:
        """Memory of the driver in bytes; it holds the results of two steps."""
        return self.machine.driver + self.machine.jvm + 2 * self.machine.row * self.step_rows

    @property
    def executors(self) -> float:
        """Memory of all executors in bytes."""
        machine = self.machine
        python = machine.workers + machine.worker * self.cores + machine.row * self.step_rows
        return machine.jvm + python + 2 * self.state

    @property
    def is_doubtful(self) -> bool:
        """Whether the number of rows rests on an assumption."""
        return any(node.doubts or node.unknown or grows(node.node) for node in self.nodes)


def state_bytes(graph: m.Graph, node: m.KeyedNode | m.SinkNode, kind: str, text_bytes: float) -> float:
    """Return the bytes that a row of one kind of a node's state takes in its blob."""
    return arrow_bytes(state_schema(graph, node, kind), text_bytes)


def grows(node: m.KeyedNode | m.SinkNode) -> list[str]:
    """Return the names of aggregates whose state grows with the records of a window.

    `state_bytes` does not count this growth.
    """
    if not isinstance(node, m.WindowNode):
        return []
    return [aggregate.name for aggregate in node.aggregates if isinstance(aggregate.function, _GROWING)]


def _row_bytes(sink: m.Sink, table: Table, text_bytes: float) -> float:
    """Return the bytes of a table row in its database, including its entry in the primary key's index."""
    found: float = load_function(sink_connector(sink).row_bytes)(table, text_bytes)
    return found
