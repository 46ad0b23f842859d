"""Work of a pipeline under a load, in processor time and bytes.

The laws are functions over what `windrow.tools.capacity.nodes` expects of the pipeline, and over `Machine`: what one
core does, by measurement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from windrow import model as m
from windrow.tools.capacity.expected import NodeExpected, Setting
from windrow.tools.capacity.load import SECOND, Load
from windrow.tools.capacity.nodes import expected
from windrow.tools.capacity.sizes import BLOB_BYTES, grows, layout_of, row_bytes, state_bytes

_MIB: Final = 1 << 20
_PARTS: Final = ("read and decode", "operate", "results", "write state", "sink")
_MOST_STATE_PARTITIONS: Final = 16
_LATE_BYTES: Final = 120
"""Of a row of late output beside the record."""


@dataclass(frozen=True)
class Machine:
    """Cost of work on one core: microseconds of processor time, and bytes. `bench/capacity.py` measures them.

    `record` and `byte` are to read and decode a record, and each of its bytes; `take` to bring it to its key group and
    aggregate it, once for each operator; `lookup` in the place of that for each record of a lookup, a table or a
    deduplication; `change` for each row of results; `written` and `blob` for each row of state, and each blob of rows,
    that a step writes. A sink takes `sqlite` or `postgres` for each row of its changelog.

    Of a step, `step` is what it takes at all, `log_task` for each task that reads, `partition` for each partition of
    the log, `task` for each state partition and `group` for each key group, at each level. `busy` is the share of a
    step in which the cores work, `least_step` the seconds that a step takes at least.

    Of bytes of state, `compressed` is the share that they take on disk, `logged` the share that a step writes of its
    rows, or `logged_records` of those that are records, with `logged_blob` bytes for each blob and `store` for each
    state partition and level. A key group notes `summary` bytes a step and level, `clock` for each partition of the
    log, `window` for each window that it has and `bucket` for each bucket of sessions. Spark keeps the state of the
    last `versions` steps, with a snapshot every `snapshots`. Memory is that of the `driver` in Python, of a `jvm`, of
    the Python `workers` at all, `worker` for those of a core, and `row` for each row of results that a step makes.
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


@dataclass(frozen=True)
class Tasks:
    """How a run is divided: partitions of the log of each source, state partitions, key groups, levels."""

    logs: Mapping[str, int]
    state: int
    groups: int
    levels: int

    @property
    def log(self) -> int:
        """The partitions of all logs."""
        return sum(self.logs.values())


def reading(load: Load, machine: Machine = MACHINE) -> dict[str, float]:
    """Return the seconds of each second that the records of each source take to be read and decoded."""
    return {
        name: rate * (machine.record + machine.byte * load.record_bytes[name]) / SECOND
        for name, rate in load.rates.items()
    }


@dataclass(frozen=True)
class Demand:
    """The work of a pipeline under a load, in steps of so many seconds, divided in a way, on a number of cores.

    `nodes` are what the model says of its nodes. Times are seconds of processor time, sizes bytes.
    """

    graph: m.Graph
    load: Load
    step: float
    tasks: Tasks
    cores: int
    nodes: tuple[NodeExpected, ...]
    machine: Machine = MACHINE

    @staticmethod
    def of(graph: m.Graph, load: Load, step: float, logs: Mapping[str, int], cores: int) -> Demand:
        """Return the demand with so many partitions of each log; there is a state partition a core, up to a limit."""
        limit = graph.key_groups if cores <= _MOST_STATE_PARTITIONS else m.state_partitions(graph.key_groups)
        tasks = Tasks(logs, min(cores, limit), graph.key_groups, len(graph.levels))
        nodes = tuple(expected(graph, load, Setting(step, graph.key_groups)))
        return Demand(graph, load, step, tasks, cores, nodes)

    @cached_property
    def operators(self) -> tuple[NodeExpected, ...]:
        """The nodes without the sinks of records."""
        return tuple(node for node in self.nodes if not isinstance(node.node, m.SinkNode))

    @cached_property
    def sunk(self) -> tuple[tuple[m.SinkNode, NodeExpected], ...]:
        """The sinks, each with what is expected of the node that writes its rows."""
        by_name = {node.node.name: node for node in self.nodes}
        return tuple(
            (sink, by_name.get(sink.name) or by_name[self.graph.producer(sink.input).name]) for sink in self.graph.sinks
        )

    @cached_property
    def reads(self) -> dict[str, float]:
        """The seconds of each second that each source takes to be read."""
        return reading(self.load, self.machine)

    @cached_property
    def parts(self) -> dict[str, float]:
        """The seconds of each second that go with the load, by what they are for."""
        machine, made = self.machine, dict.fromkeys(_PARTS, 0.0)
        made["read and decode"] = SECOND * sum(self.reads.values())
        for one in self.operators:
            has_lookups = isinstance(one.node, m.LookupNode | m.FilterNode | m.TableNode | m.TableJoinNode)
            made["operate"] += one.taken * (machine.lookup if has_lookups else machine.take)
            made["results"] += one.rows_made * machine.change
            made["write state"] += sum(
                held.written_rows * machine.written + held.written_blobs * machine.blob for held in one.held
            )
        for sink, one in self.sunk:
            each = {m.SqliteSink: machine.sqlite, m.PostgresSink: machine.postgres}.get(type(sink.sink), machine.change)
            made["sink"] += one.changelog * each
        return {name: micros / SECOND for name, micros in made.items()}

    @cached_property
    def of_step(self) -> float:
        """The seconds of a step whatever is in it."""
        machine, tasks = self.machine, self.tasks
        level = machine.task * tasks.state + machine.group * tasks.groups
        read = machine.log_task * self.readers + machine.partition * tasks.log
        return (machine.step + read + tasks.levels * level) / SECOND

    @property
    def processors(self) -> float:
        """The seconds of each second."""
        return sum(self.parts.values()) + self.of_step / self.step

    @cached_property
    def in_groups(self) -> float:
        """The seconds of each second that key groups work, of which only a state partition each has a core."""
        return sum(self.parts[name] for name in ("operate", "results", "write state"))

    @property
    def readers(self) -> int:
        """The tasks that read at a time: one a partition of a log, and one a core."""
        return min(self.tasks.log, self.cores)

    @cached_property
    def slowest_reading(self) -> tuple[float, int]:
        """The reading that takes longest, of all sources or of one: its seconds of each second, by so many tasks."""
        by_source = [(work, min(self.tasks.logs[name], self.cores)) for name, work in self.reads.items()]
        return max((sum(self.reads.values()), self.readers), *by_source, key=lambda one: one[0] / one[1])

    @cached_property
    def step_time(self) -> float:
        """The seconds that a step takes: by all cores, tasks that read, state partitions, or the driver's sink."""
        busy, (read, tasks) = self.machine.busy, self.slowest_reading
        shares = (
            self.processors / (self.cores * busy), read / (tasks * busy),
            self.in_groups / (self.tasks.state * busy), self.parts["sink"],
        )  # fmt: skip
        return max(self.machine.least_step, max(shares) * self.step)

    @property
    def latency(self) -> tuple[float, float]:
        """The seconds from when the low watermark passes the end of a window to its row: of half, and of nearly all."""
        wait = max(self.step, self.step_time)
        return wait / 2 + self.step_time, wait + self.step_time

    def _row_bytes(self, which: str, *, records: bool) -> float:
        """Return the bytes of rows of state that are records or not, without their blobs: of `rows`, `written_rows`."""
        total = sum(
            getattr(kind, which) * state_bytes(self.graph, node.node, kind.kind, self.load.text_bytes)
            for node in self.nodes
            for kind in node.held
            if kind.are_records == records
        )
        return float(total)

    def _blobs(self, which: str) -> float:
        return float(sum(getattr(kind, which) for node in self.nodes for kind in node.held))

    @property
    def rows(self) -> float:
        """The rows of state."""
        return sum(node.rows for node in self.nodes)

    @cached_property
    def blobs(self) -> float:
        """The blobs that the rows of state are in."""
        return self._blobs("blobs")

    @cached_property
    def held(self) -> float:
        """The bytes of the blobs of state."""
        return sum(self._row_bytes("rows", records=one) for one in (False, True)) + self.blobs * BLOB_BYTES

    @cached_property
    def written(self) -> tuple[float, float, float]:
        """The bytes of rows of results, those of records, and the blobs, that a step writes."""
        rows, records = (self._row_bytes("written_rows", records=one) for one in (False, True))
        return rows * self.step, records * self.step, self._blobs("written_blobs") * self.step

    @cached_property
    def notes(self) -> float:
        """The bytes of what the key groups note in each step: the clocks, and windows or buckets of sessions."""
        machine, tasks = self.machine, self.tasks
        windows = sum(
            (machine.bucket if kind.kind == "sessions" else machine.window) * kind.blobs
            for node in self.nodes
            for kind in node.held
        )
        stores = tasks.levels * tasks.state * machine.store
        return tasks.groups * tasks.levels * (machine.summary + machine.clock * tasks.log) + windows + stores

    @property
    def step_bytes(self) -> float:
        """The bytes that a step writes into the checkpoint."""
        (rows, records, blobs), machine = self.written, self.machine
        return machine.logged * rows + machine.logged_records * records + machine.logged_blob * blobs + self.notes

    def checkpoint(self, steps: float = math.inf) -> float:
        """Return the bytes of the checkpoint after so many steps."""
        kept = min(steps, self.machine.versions)
        return kept * self.step_bytes + kept / self.machine.snapshots * self.held * self.machine.compressed

    @cached_property
    def sink_bytes(self) -> dict[str, float]:
        """The bytes a second of tables, changelogs and late output."""
        found = {"tables": 0.0, "changelogs": 0.0}
        for sink, one in self.sunk:
            laid, text = layout_of(self.graph, sink), self.load.text_bytes
            if isinstance(sink.sink, m.TableSink):
                found["tables"] += max(0.0, one.inserts - one.deletes) * row_bytes(sink.sink, laid.result, text)
            if sink.sink.changelog:
                found["changelogs"] += one.changelog * row_bytes(sink.sink, laid.changes, text)
        late = sum(node.expired for node in self.nodes)
        return found | {"late output": late * (self.load.mean_bytes + _LATE_BYTES)}

    @property
    def step_rows(self) -> float:
        """The rows of results that a step makes."""
        return sum(operator.rows_made for operator in self.operators) * self.step

    @property
    def driver(self) -> float:
        """The bytes of memory of the driver: it holds the results of two steps."""
        return self.machine.driver + self.machine.jvm + 2 * self.machine.row * self.step_rows

    @property
    def executors(self) -> float:
        """The bytes of memory of all executors."""
        machine = self.machine
        python = machine.workers + machine.worker * self.cores + machine.row * self.step_rows
        return machine.jvm + python + 2 * self.held

    @property
    def is_doubtful(self) -> bool:
        """Whether something about the rows was assumed."""
        return any(node.doubts or node.unknown or grows(node.node) for node in self.nodes)
