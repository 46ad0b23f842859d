"""Capacity of a pipeline under a load: cores, memory, state, checkpoint, partitions, latency, network, storage, cost.

Each figure has the law that it comes from, as a formula with its inputs. The laws are functions over what the model of
`windrow.hosts.expected` says of the pipeline, and over `Machine`: what one core does, by measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from windrow.hosts.expected import NodeExpected, Setting, delay_of, expected
from windrow.hosts.load import SECOND, Load
from windrow.hosts.sizes import BLOB_BYTES, grows, layout_of, row_bytes, state_bytes
from windrow.model import (
    DeduplicateNode,
    Graph,
    KafkaSink,
    LookupNode,
    PostgresSink,
    SinkNode,
    SqliteSink,
    TableJoinNode,
    TableNode,
    state_partitions,
)

GIB: Final = 1 << 30
MIB: Final = 1 << 20
MONTH: Final = 730.0
"""Hours of a month."""


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
    compressed: float = 0.41
    logged: float = 0.335
    logged_records: float = 0.4
    logged_blob: float = 90.0
    store: float = 4_000.0
    summary: float = 284.0
    clock: float = 40.0
    window: float = 18.0
    bucket: float = 48.0
    versions: int = 100
    snapshots: int = 10
    driver: float = 200 * MIB
    jvm: float = 500 * MIB
    workers: float = 700 * MIB
    worker: float = 300 * MIB
    row: float = 80.0


MACHINE: Final = Machine()


@dataclass(frozen=True)
class Figure:
    """A figure in its unit, the law that it comes from, and the inputs of the law by name.

    `within` is how far it can be off: a share (0.25), or 2 for a factor of 2; None if it is a choice or exact.
    """

    name: str
    value: float
    unit: str
    law: str
    inputs: Mapping[str, float]
    within: float | None = 0.25


@dataclass(frozen=True)
class Wishes:
    """Requirements: seconds between steps, headroom (a factor), the seconds that each kind of data is kept.

    `partitions` are those of the log, if it is there. `copies` is how often the log is stored.
    """

    every: float = 1.0
    headroom: float = 1.5
    keep_log: float = 7 * 86_400.0
    keep_table: float = 365 * 86_400.0
    keep_changelog: float = 30 * 86_400.0
    copies: int = 3
    partitions: int | None = None


@dataclass(frozen=True)
class Capacity:
    """A plan: figures by name, what each node takes and holds, and what is to be known of them.

    `doubts` say what was assumed, `unknown` what cannot be planned.
    """

    figures: tuple[Figure, ...]
    nodes: tuple[NodeExpected, ...]
    doubts: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    by_name: dict[str, Figure] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {one.name: one for one in self.figures})

    def value(self, name: str) -> float:
        """Return a figure's value."""
        return self.by_name[name].value


@dataclass(frozen=True)
class Tasks:
    """How a run is divided: partitions of the log, state partitions, key groups, levels."""

    log: int
    state: int
    groups: int
    levels: int


@dataclass(frozen=True)
class Demand:
    """The work of a pipeline under a load, in steps of so many seconds, divided in a way, on a number of cores.

    `nodes` are what the model says of its nodes. Times are seconds of processor time, sizes bytes.
    """

    graph: Graph
    load: Load
    step: float
    tasks: Tasks
    cores: int
    nodes: tuple[NodeExpected, ...]
    machine: Machine = MACHINE

    @staticmethod
    def of(graph: Graph, load: Load, step: float, log: int, cores: int) -> Demand:
        """Return the demand with so many partitions of the log; there is a state partition a core, up to a limit."""
        limit = graph.key_groups if cores <= _MOST_STATE_PARTITIONS else state_partitions(graph.key_groups)
        tasks = Tasks(log, min(cores, limit), graph.key_groups, len(graph.levels))
        nodes = tuple(expected(graph, load, Setting(step, graph.key_groups)))
        return Demand(graph, load, step, tasks, cores, nodes)

    @cached_property
    def operators(self) -> tuple[NodeExpected, ...]:
        """The nodes without the sinks of records."""
        return tuple(one for one in self.nodes if not isinstance(one.node, SinkNode))

    @cached_property
    def sunk(self) -> tuple[tuple[SinkNode, NodeExpected], ...]:
        """The sinks, each with what is expected of the node that writes its rows."""
        by_name = {one.node.name: one for one in self.nodes}
        return tuple(
            (sink, by_name.get(sink.name) or by_name[self.graph.producer(sink.input).name]) for sink in self.graph.sinks
        )

    @cached_property
    def parts(self) -> dict[str, float]:
        """The seconds of each second that go with the load, by what they are for."""
        machine, made = self.machine, dict.fromkeys(_PARTS, 0.0)
        for name, rate in self.load.rates.items():
            made["read and decode"] += rate * (machine.record + machine.byte * self.load.record_bytes[name])
        for one in self.operators:
            has_lookups = isinstance(one.node, LookupNode | DeduplicateNode | TableNode | TableJoinNode)
            made["operate"] += one.taken * (machine.lookup if has_lookups else machine.take)
            made["results"] += one.rows_made * machine.change
            made["write state"] += sum(
                held.written_rows * machine.written + held.written_blobs * machine.blob for held in one.held
            )
        for sink, one in self.sunk:
            each = {SqliteSink: machine.sqlite, PostgresSink: machine.postgres}.get(type(sink.sink), machine.change)
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
        """The tasks that read at a time: one a partition of the log, and one a core."""
        return min(self.tasks.log, self.cores)

    @cached_property
    def step_time(self) -> float:
        """The seconds that a step takes: by all cores, tasks that read, state partitions, or the driver's sink."""
        busy = self.machine.busy
        shares = (
            self.processors / (self.cores * busy), self.parts["read and decode"] / (self.readers * busy),
            self.in_groups / (self.tasks.state * busy), self.parts["sink"],
        )  # fmt: skip
        return max(self.machine.least_step, max(shares) * self.step)

    def _row_bytes(self, which: str, *, records: bool) -> float:
        """Return the bytes of rows of state that are records or not, without their blobs: of `rows`, `written_rows`."""
        total = sum(
            getattr(kind, which) * state_bytes(self.graph, one.node, kind.kind, self.load.text_bytes)
            for one in self.nodes
            for kind in one.held
            if kind.are_records == records
        )
        return float(total)

    def _blobs(self, which: str) -> float:
        return float(sum(getattr(kind, which) for one in self.nodes for kind in one.held))

    @property
    def rows(self) -> float:
        """The rows of state."""
        return sum(one.rows for one in self.nodes)

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
            for one in self.nodes
            for kind in one.held
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
            if not isinstance(sink.sink, KafkaSink):
                found["tables"] += max(0.0, one.inserts - one.deletes) * row_bytes(sink.sink, laid.result, text)
            if sink.sink.changelog:
                found["changelogs"] += one.changelog * row_bytes(sink.sink, laid.changes, text)
        late = sum(one.expired for one in self.nodes)
        return found | {"late output": late * (self.load.mean_bytes + _LATE_BYTES)}

    @property
    def step_rows(self) -> float:
        """The rows of results that a step makes."""
        return sum(one.rows_made for one in self.operators) * self.step

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
        return any(one.doubts or one.unknown or grows(one.node) for one in self.nodes)


_PARTS: Final = ("read and decode", "operate", "results", "write state", "sink")
_MOST_STATE_PARTITIONS: Final = 16
_MOST_CORES: Final = 10_000
_LATE_BYTES: Final = 120
"""Of a row of late output beside the record."""
_LONGEST: Final = 10.0
"""Seconds of the longest step that a live run makes (`--step-time`)."""
_GROUPS: Final = (8, 16, 32, 64, 128, 256, 512, 1024)
CLOSE, ABOUT = 0.25, 2.0
"""How far figures can be off: a share, and a factor."""


def plan(graph: Graph, load: Load, wishes: Wishes) -> Capacity:
    """Plan a pipeline under a load."""
    read = sum(
        rate * (MACHINE.record + MACHINE.byte * load.record_bytes[name]) / SECOND for name, rate in load.rates.items()
    )
    needed = max(1, math.ceil(wishes.headroom * read))
    cores, there = 1, wishes.partitions or load.partitions
    while True:
        demand = Demand.of(graph, load, wishes.every, there or max(needed, cores), cores)
        wanted = math.ceil(wishes.headroom * demand.processors / MACHINE.busy - 1e-9)
        if wanted <= cores or cores == _MOST_CORES:
            break
        cores = min(wanted, _MOST_CORES)
    figures = (
        *_processors(demand, wishes),
        *_parallelism(demand, wishes, needed),
        *_state(demand),
        *_memory(demand, wishes),
        *_latency(demand),
        *_network(demand),
        *_storage(demand, wishes),
    )
    doubts = [*(one for node in demand.nodes for one in node.doubts), *_growing(demand), *_behind(demand, needed)]
    unknown = tuple(f"{one.node.name or graph.name}: {one.unknown}" for one in demand.nodes if one.unknown is not None)
    return Capacity(figures, demand.nodes, tuple(dict.fromkeys(doubts)), unknown)


def _growing(demand: Demand) -> Iterator[str]:
    for one in demand.nodes:
        found = grows(one.node)
        if found:
            yield f"{', '.join(found)}: its state grows with the records of a window; what that adds is left out"


def _behind(demand: Demand, needed: int) -> Iterator[str]:
    """Say which part of a step cannot keep up, or has no use for all of the cores."""
    tasks, sink, groups = demand.tasks.state, demand.parts["sink"], demand.graph.key_groups
    if demand.tasks.log < needed:
        yield (
            f"the log has {demand.tasks.log} of the {needed} partitions that its tasks need to keep up: one task reads "
            "each; add partitions, or the run falls behind"
        )
    elif demand.tasks.log < demand.cores:
        yield f"the log has {demand.tasks.log} partitions: of {demand.cores} cores, so many read at a time; add some"
    if groups < demand.cores:
        yield f"key_groups: {groups} is the limit: of {demand.cores} cores, {tasks} keep state at a time; take more"
    if demand.in_groups > tasks * demand.machine.busy:
        yield (
            f"{demand.cores} cores, of which key groups use {tasks}: their {demand.in_groups:.3g} s/s are more than "
            "these do, so the run falls behind; take more key_groups (up to 16 state partitions), or a longer --every"
        )
    if sink > 1:
        yield f"one sink for all: its {sink:.3g} s/s are more than the driver does, so the run falls behind; divide it"


def _processors(demand: Demand, wishes: Wishes) -> Iterator[Figure]:
    parts, machine, rate = {name: one for name, one in demand.parts.items() if one}, demand.machine, demand.load.rate
    within = ABOUT if demand.is_doubtful else CLOSE
    yield Figure(
        "processor time", demand.processors, "s/s", " + ".join([*parts, "step / every"]),
        {**parts, "step": demand.of_step, "every": demand.step}, within,
    )  # fmt: skip
    tasks = demand.tasks
    yield Figure(
        "step", demand.of_step, "s",
        "step + log_task x tasks that read + partition x log partitions + levels x (task x state partitions + group x "
        "key groups)",
        {"step": machine.step / SECOND, "log_task": machine.log_task / SECOND,
         "tasks that read": min(tasks.log, demand.cores), "partition": machine.partition / SECOND,
         "log partitions": tasks.log, "levels": tasks.levels, "task": machine.task / SECOND,
         "state partitions": tasks.state, "group": machine.group / SECOND, "key groups": tasks.groups},
    )  # fmt: skip
    yield Figure(
        "processor time a million records", 1e6 * demand.processors / rate if rate else 0.0, "s",
        "1,000,000 x processor time / rate", {"processor time": demand.processors, "rate": rate}, within,
    )  # fmt: skip
    yield Figure(
        "cores", demand.cores, "cores", "headroom x processor time / busy, rounded up",
        {"headroom": wishes.headroom, "processor time": demand.processors, "busy": machine.busy}, within,
    )  # fmt: skip
    yield Figure(
        "records a second at saturation", _saturation(demand), "records/s",
        "the rate at which processor time is cores x busy, of the same keys, in steps of the greatest length",
        {"cores": demand.cores, "busy": machine.busy, "greatest length": max(_LONGEST, demand.step)}, ABOUT,
    )  # fmt: skip


def _saturation(demand: Demand) -> float:
    """Return the records a second that take all of the cores, by bisection; 0 if the steps alone do."""
    load, able = demand.load, demand.cores * demand.machine.busy
    least, most = 0.0, able * SECOND / demand.machine.record
    while load.rate and most - least > most / 100:
        rate = (least + most) / 2
        more = replace(load, rates={name: one * rate / load.rate for name, one in load.rates.items()})
        step = max(_LONGEST, demand.step)
        if Demand.of(demand.graph, more, step, demand.tasks.log, demand.cores).processors > able:
            most = rate
        else:
            least = rate
    return least


def _parallelism(demand: Demand, wishes: Wishes, needed: int) -> Iterator[Figure]:
    machine, load, graph, cores = demand.machine, demand.load, demand.graph, demand.cores
    yield Figure(
        "log partitions", max(needed, cores), "partitions",
        "the greater of headroom x rate / (records a second that one task reads), rounded up, and the cores",
        {"headroom": wishes.headroom, "rate": load.rate, "cores": cores,
         "records a second that one task reads": SECOND / (machine.record + machine.byte * load.mean_bytes),
         **({} if load.partitions is None else {"partitions now": load.partitions})},
    )  # fmt: skip
    groups = next((one for one in _GROUPS if one >= 2 * cores), _GROUPS[-1])
    yield Figure(
        "key groups", groups, "key_groups", f"the least of {', '.join(map(str, _GROUPS))} that is 2 x cores or more",
        {"cores": cores, "key_groups now": graph.key_groups}, None,
    )  # fmt: skip
    yield Figure(
        "maximum parallelism", graph.key_groups, "tasks", "key_groups of the pipeline",
        {"key_groups": graph.key_groups}, None,
    )  # fmt: skip
    yield Figure(
        "state partitions", demand.tasks.state, "tasks",
        "at each level the cores, up to key_groups; on more than 16 the greatest divisor of 5040 up to 16",
        {"cores": cores, "key_groups": graph.key_groups, "levels": demand.tasks.levels}, None,
    )  # fmt: skip
    hottest = max((one.taken * load.keys_of(one.node.name).greatest for one in demand.operators), default=0.0)
    yield Figure(
        "hottest key", hottest * machine.take / SECOND, "cores",
        "records a second of the key with most x take; one task has them all, so above 1 / headroom it needs salt",
        {"records a second": hottest, "take": machine.take / SECOND},
    )  # fmt: skip


def _state(demand: Demand) -> Iterator[Figure]:
    within, machine = ABOUT if demand.is_doubtful else CLOSE, demand.machine
    kinds = {
        f"{one.node.name} {kind.kind}".strip(): kind.rows for one in demand.nodes for kind in one.held if kind.rows
    }
    yield Figure("state rows", demand.rows, "rows", " + ".join(kinds) or "none", kinds, within)
    row = (demand.held - demand.blobs * BLOB_BYTES) / demand.rows if demand.rows else 0.0
    yield Figure(
        "state", demand.held, "bytes", "rows x bytes of a row + blobs x bytes of a blob",
        {"rows": demand.rows, "bytes of a row": row, "blobs": demand.blobs, "bytes of a blob": BLOB_BYTES}, within,
    )  # fmt: skip
    on_disk = demand.held * machine.compressed
    yield Figure(
        "state on disk", on_disk, "bytes", "state x compressed",
        {"state": demand.held, "compressed": machine.compressed}, ABOUT,
    )  # fmt: skip
    rows_written, records_written, blobs_written = demand.written
    yield Figure(
        "checkpoint a step", demand.step_bytes, "bytes",
        "logged x bytes of the rows that a step writes + logged_records x bytes of the records that it writes"
        " + logged_blob x blobs that it writes + notes",
        {"logged": machine.logged, "bytes of the rows that a step writes": rows_written,
         "logged_records": machine.logged_records, "bytes of the records that it writes": records_written,
         "logged_blob": machine.logged_blob, "blobs that it writes": blobs_written, "notes": demand.notes}, ABOUT,
    )  # fmt: skip
    yield Figure(
        "checkpoint", demand.checkpoint(), "bytes",
        "versions x checkpoint a step + versions / snapshots x state on disk",
        {"versions": machine.versions, "checkpoint a step": demand.step_bytes, "snapshots": machine.snapshots,
         "state on disk": on_disk}, ABOUT,
    )  # fmt: skip
    rows = {name: sum(getattr(one, name) for one in demand.operators) for name in ("inserts", "updates", "deletes")}
    yield Figure(
        "changes", sum(one.changelog for _, one in demand.sunk), "rows/s",
        "rows of the changelogs: inserts + updates (each 2 rows where the mode is retract) + deletes", rows, within,
    )  # fmt: skip
    for name, meaning in (("late", "revise a window that has fired"), ("expired", "are in no result")):
        value = sum(getattr(one, name) for one in demand.nodes)
        yield Figure(name, value, "records/s", f"pairs of a record and a window that {meaning}", {}, within)


def _memory(demand: Demand, wishes: Wishes) -> Iterator[Figure]:
    machine = demand.machine
    both = {"headroom": wishes.headroom, "jvm": machine.jvm, "row": machine.row, "rows of a step": demand.step_rows}
    yield Figure(
        "driver memory", wishes.headroom * demand.driver, "bytes",
        "headroom x (driver + jvm + 2 x row x rows of a step)", {**both, "driver": machine.driver}, ABOUT,
    )  # fmt: skip
    yield Figure(
        "executor memory", wishes.headroom * demand.executors, "bytes",
        "headroom x (jvm + workers + worker x cores + row x rows of a step + 2 x state), of all executors together",
        {**both, "workers": machine.workers, "worker": machine.worker, "cores": demand.cores, "state": demand.held},
        ABOUT,
    )  # fmt: skip


def _latency(demand: Demand) -> Iterator[Figure]:
    machine, step = demand.machine, demand.step
    took = demand.step_time
    delay = max(delay_of(source, demand.load)[0] for source in demand.graph.sources) + demand.load.skew
    yield Figure(
        "step time", took, "s",
        "every x the greatest of processor time / (cores x busy), read and decode / (tasks that read x busy), key "
        "groups / (state partitions x busy) and sink; least_step at least",
        {"processor time": demand.processors, "every": step, "cores": demand.cores, "busy": machine.busy,
         "read and decode": demand.parts["read and decode"], "tasks that read": demand.readers,
         "key groups": demand.in_groups, "state partitions": demand.tasks.state, "sink": demand.parts["sink"],
         "least_step": machine.least_step}, ABOUT,
    )  # fmt: skip
    wait, inputs = max(step, took), {"delay": delay, "every": step, "step time": took}
    yield Figure(
        "latency, half", delay + wait / 2 + took, "s",
        "delay + skew + every / 2 + step time: from the end of a window to its row, of half of them", inputs, ABOUT,
    )  # fmt: skip
    yield Figure(
        "latency, most", delay + wait + took, "s", "delay + skew + every + step time, of nearly all", inputs, ABOUT
    )


def _network(demand: Demand) -> Iterator[Figure]:
    load, tasks = demand.load, demand.tasks
    yield Figure(
        "network, log", load.rate * load.mean_bytes, "bytes/s", "rate x bytes of a record",
        {"rate": load.rate, "bytes of a record": load.mean_bytes},
    )  # fmt: skip
    taken = sum(one.taken for one in demand.operators)
    width = _PACKED + load.text_bytes
    yield Figure(
        "network, shuffle", taken * width + tasks.log * tasks.groups * _PROGRESS / demand.step, "bytes/s",
        f"records taken x bytes of a packed record + log partitions x key groups x {_PROGRESS} / every",
        {"records taken": taken, "bytes of a packed record": width, "log partitions": tasks.log,
         "key groups": tasks.groups, "every": demand.step}, ABOUT,
    )  # fmt: skip
    yield Figure(
        "network, sink", sum(demand.sink_bytes.values()), "bytes/s", " + ".join(demand.sink_bytes), demand.sink_bytes,
        ABOUT,
    )  # fmt: skip
    yield Figure(
        "network, checkpoint", demand.step_bytes / demand.step, "bytes/s", "checkpoint a step / every",
        {"checkpoint a step": demand.step_bytes, "every": demand.step}, ABOUT,
    )  # fmt: skip


_PACKED: Final = 60
"""Bytes of a record on its way to its key group beside a text: its place, two times, and two values."""
_PROGRESS: Final = 20
"""Bytes of what a key group is told of a partition in a step (docs/scale.md)."""


def _storage(demand: Demand, wishes: Wishes) -> Iterator[Figure]:
    within, sunk = ABOUT if demand.is_doubtful else CLOSE, demand.sink_bytes
    log = demand.load.rate * demand.load.mean_bytes
    yield Figure(
        "log storage", log * wishes.keep_log * wishes.copies, "bytes", "bytes a second x retention x copies",
        {"bytes a second": log, "retention": wishes.keep_log, "copies": wishes.copies},
    )  # fmt: skip
    yield Figure(
        "table storage", sunk["tables"] * wishes.keep_table, "bytes", "bytes a second x retention",
        {"bytes a second": sunk["tables"], "retention": wishes.keep_table}, within,
    )  # fmt: skip
    more = {name: sunk[name] for name in ("changelogs", "late output")}
    yield Figure(
        "changelog storage", sum(more.values()) * wishes.keep_changelog, "bytes",
        "(changelogs + late output) x retention", {**more, "retention": wishes.keep_changelog}, within,
    )  # fmt: skip


@dataclass(frozen=True)
class Prices:
    """Prices of a core and a GiB of memory an hour, of a GiB of storage a month, and of a GiB of network."""

    currency: str
    core_hour: float
    memory_hour: float
    storage_month: float
    network: float


def cost(found: Capacity, prices: Prices) -> Iterator[Figure]:
    """Yield what the figures cost a month, of 730 hours; the last is the total."""
    memory = (found.value("driver memory") + found.value("executor memory")) / GIB
    stored = sum(found.value(f"{name} storage") for name in ("log", "table", "changelog"))
    stored = (stored + found.value("checkpoint")) / GIB
    sent = sum(one.value for one in found.figures if one.name.startswith("network, ")) * MONTH * 3600 / GIB
    parts = [
        ("cores", found.value("cores") * prices.core_hour * MONTH, "cores x core_hour x 730",
         {"cores": found.value("cores"), "core_hour": prices.core_hour}),
        ("memory", memory * prices.memory_hour * MONTH, "GiB x memory_hour x 730",
         {"GiB": memory, "memory_hour": prices.memory_hour}),
        ("storage", stored * prices.storage_month, "GiB x storage_month",
         {"GiB": stored, "storage_month": prices.storage_month}),
        ("network", sent * prices.network, "GiB a month x network", {"GiB a month": sent, "network": prices.network}),
    ]  # fmt: skip
    unit = f"{prices.currency} a month"
    for name, value, law, inputs in parts:
        yield Figure(f"cost of {name}", value, unit, law, inputs, 2.0)
    yield Figure(
        "cost", sum(value for _, value, _, _ in parts), unit, " + ".join(f"cost of {name}" for name, *_ in parts),
        {name: value for name, value, _, _ in parts}, 2.0,
    )  # fmt: skip


def as_plain(figure: Figure) -> dict[str, Any]:
    """Return a figure as plain JSON."""
    return {
        "name": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "law": figure.law,
        "inputs": dict(figure.inputs),
        "within": figure.within,
    }
