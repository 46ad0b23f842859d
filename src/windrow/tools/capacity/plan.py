"""The capacity that a pipeline needs under a load: cores, memory, state, partitions, latency, network, cost.

Each figure is computed by a law, which is a formula over the work that `windrow.tools.capacity.demand` computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from windrow import model as m
from windrow.runtime.stream.steps import Trigger
from windrow.telemetry.reports import counted
from windrow.tools.capacity.demand import BLOB_BYTES, MACHINE, Demand, grows, reading
from windrow.tools.capacity.expected import NodeExpected
from windrow.tools.capacity.load import SECOND, Load
from windrow.tools.capacity.nodes import delay_of

GIB: Final = 1 << 30
MONTH: Final = 730.0
"""Hours of a month."""
_DAY: Final = 86_400.0
_MILLION: Final = 1e6
_MOST_CORES: Final = 10_000
_LONGEST: Final = 10.0
"""Seconds of the longest step that a live run makes (`--step-time`)."""
_GROUPS: Final = (8, 16, 32, 64, 128, 256, 512, 1024)
CLOSE, ABOUT = 0.25, 2.0
"""How far figures can be off: a share, and a factor."""


@dataclass(frozen=True)
class Figure:
    """A planned value in its unit, its law (a formula), and the law's inputs by name.

    `within` is the greatest error: a fraction (0.25), or 2 for a factor of 2; None if the value is a choice or exact.
    """

    name: str
    value: float
    unit: str
    law: str
    inputs: Mapping[str, float]
    within: float | None = 0.25


@dataclass(frozen=True)
class Wishes:
    """Requirements: seconds between steps, headroom (a factor), and the retention of each kind of data in seconds.

    `partitions` is the number of partitions of each existing log, by source; `copies` is the replication factor of the
    log.
    """

    every: float = 1.0
    headroom: float = 1.5
    keep_log: float = 7 * 86_400.0
    keep_table: float = 365 * 86_400.0
    keep_changelog: float = 30 * 86_400.0
    copies: int = 3
    partitions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Capacity:
    """A plan: its figures, and the expected rates and state of each node.

    `doubts` say what was assumed, and `unknown` says what cannot be planned.
    """

    figures: tuple[Figure, ...]
    nodes: tuple[NodeExpected, ...]
    doubts: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def value(self, name: str) -> float:
        """Return the value of a figure."""
        return next(figure.value for figure in self.figures if figure.name == name)


def plan(graph: m.Graph, load: Load, wishes: Wishes) -> Capacity:
    """Plan the resources that a pipeline needs under a load."""
    reads = reading(load)
    needed = {name: max(1, math.ceil(wishes.headroom * work)) for name, work in reads.items()}
    cores, existing = 1, {**(load.partitions or {}), **wishes.partitions}
    while True:
        # each source has a task for its part of the cores
        parts = {name: math.ceil(cores * work / sum(reads.values()) - 1e-9) for name, work in reads.items()}
        enough = {name: max(number, parts[name]) for name, number in needed.items()}
        demand = _demand(graph, load, wishes.every, enough | existing, cores)
        wanted = math.ceil(wishes.headroom * demand.processors / MACHINE.busy - 1e-9)
        if wanted <= cores or cores == _MOST_CORES:
            break
        cores = min(wanted, _MOST_CORES)
    figures = (
        *_processors(demand, wishes),
        *_parallelism(demand, wishes, enough),
        *_state(demand),
        *_memory(demand, wishes),
        *_latency(demand),
        *_network(demand),
        *_storage(demand, wishes),
    )
    growing = (
        f"{', '.join(names)}: its state grows with the records of a window, which is not counted"
        for node in demand.nodes
        if (names := grows(node.node))
    )
    doubts = [*(doubt for node in demand.nodes for doubt in node.doubts), *growing, *_bottlenecks(demand, needed)]
    unknown = tuple(
        f"{node.node.name or graph.name}: {node.unknown}" for node in demand.nodes if node.unknown is not None
    )
    return Capacity(figures, demand.nodes, tuple(dict.fromkeys(doubts)), unknown)


def _bottlenecks(demand: Demand, needed: Mapping[str, int]) -> Iterator[str]:
    """Yield a message for each part of a step that cannot keep up, or cannot use all cores."""
    tasks, sink, groups = demand.state_tasks, demand.parts["sink"], demand.graph.key_groups
    logs = demand.logs
    for name, number in needed.items():
        if logs[name] < number:
            yield (
                f"the log{f' of {name}' if len(logs) > 1 else ''} has {logs[name]} of the {number} partitions that are "
                "needed to keep up, because one task reads each partition; add partitions, or the run falls behind"
            )
    if demand.partitions < demand.cores and all(logs[name] >= number for name, number in needed.items()):
        yield (
            f"{'all logs have' if len(logs) > 1 else 'the log has'} {counted(demand.partitions, 'partition')}, so only "
            f"as many of the {demand.cores} cores read at the same time; add partitions"
        )
    if groups < demand.cores:
        yield (
            f"key_groups: with {groups}, only {tasks} of the {demand.cores} cores work on state at the same "
            "time; set more"
        )
    if demand.in_groups > tasks * demand.machine.busy:
        yield (
            f"key groups use {tasks} of {demand.cores} cores, too few for their {demand.in_groups:.3g} s/s, "
            "so the run falls behind; set more key_groups (up to 16 state partitions), or a longer --every"
        )
    if sink > 1:
        yield (
            f"the sinks need {sink:.3g} s/s, more than the driver can do, so the run falls behind; divide the pipeline"
        )


def _processors(demand: Demand, wishes: Wishes) -> Iterator[Figure]:
    machine, rate, within = demand.machine, demand.load.rate, ABOUT if demand.is_doubtful else CLOSE
    parts = {name: seconds for name, seconds in demand.parts.items() if seconds}
    yield Figure(
        "processor time", demand.processors, "s/s", " + ".join([*parts, "step / every"]),
        {**parts, "step": demand.of_step, "every": demand.step}, within,
    )  # fmt: skip
    graph = demand.graph
    yield Figure(
        "step", demand.of_step, "s",
        "step + log_task x tasks that read + partition x log partitions + levels x (task x state partitions + group x "
        "key groups)",
        {"step": machine.step / SECOND, "log_task": machine.log_task / SECOND,
         "tasks that read": demand.readers, "partition": machine.partition / SECOND,
         "log partitions": demand.partitions, "levels": len(graph.levels), "task": machine.task / SECOND,
         "state partitions": demand.state_tasks, "group": machine.group / SECOND, "key groups": graph.key_groups},
    )  # fmt: skip
    if rate * _DAY >= _MILLION:  # with fewer records the steps of days would count
        yield Figure(
            "processor time a million records", _MILLION * demand.processors / rate, "s",
            "1,000,000 x processor time / rate", {"processor time": demand.processors, "rate": rate}, within,
        )  # fmt: skip
    yield Figure(
        "cores", demand.cores, "cores", "headroom x processor time / busy, rounded up",
        {"headroom": wishes.headroom, "processor time": demand.processors, "busy": machine.busy}, within,
    )  # fmt: skip
    yield Figure(
        "records a second at saturation", _saturation(demand), "records/s",
        "the rate at which processor time is cores x busy, with the same keys, in steps of the greatest length",
        {"cores": demand.cores, "busy": machine.busy, "greatest length": max(_LONGEST, demand.step)}, ABOUT,
    )  # fmt: skip


def _saturation(demand: Demand) -> float:
    """Return the number of records per second that saturates the cores, by bisection; 0 if the steps alone do."""
    load, able, step = demand.load, demand.cores * demand.machine.busy, max(_LONGEST, demand.step)
    least, most = 0.0, able * SECOND / demand.machine.record
    while load.rate and most - least > most / 100:
        rate = (least + most) / 2
        more = replace(load, rates={name: own * rate / load.rate for name, own in load.rates.items()})
        if Demand.of(demand.graph, more, step, demand.logs, demand.cores).processors > able:
            most = rate
        else:
            least = rate
    return least


def _parallelism(demand: Demand, wishes: Wishes, enough: Mapping[str, int]) -> Iterator[Figure]:
    machine, load, graph, cores = demand.machine, demand.load, demand.graph, demand.cores
    for name, number in enough.items():
        yield Figure(
            f"log partitions, {name}" if len(enough) > 1 else "log partitions", number, "partitions",
            "the greater of headroom x rate / (records a second that one task reads), and the source's part of the "
            "cores, rounded up",
            {"headroom": wishes.headroom, "rate": load.rates[name], "cores": cores,
             "records a second that one task reads": SECOND / (machine.record + machine.byte * load.record_bytes[name]),
             **({} if load.partitions is None else {"partitions now": load.partitions[name]})},
        )  # fmt: skip
    groups = next((group for group in _GROUPS if group >= 2 * cores), _GROUPS[-1])
    yield Figure(
        "key groups", groups, "key_groups", f"the least of {', '.join(map(str, _GROUPS))} that is at least 2 x cores",
        {"cores": cores, "key_groups now": graph.key_groups}, None,
    )  # fmt: skip
    yield Figure(
        "maximum parallelism", graph.key_groups, "tasks", "key_groups of the pipeline",
        {"key_groups": graph.key_groups}, None,
    )  # fmt: skip
    yield Figure(
        "state partitions", demand.state_tasks, "tasks",
        "at each level, the cores up to key_groups; with more than 16 cores, the greatest divisor of 5040 up to 16",
        {"cores": cores, "key_groups": graph.key_groups, "levels": len(graph.levels)}, None,
    )  # fmt: skip
    hottest = max(
        (operator.taken * load.keys_of(operator.node.name).greatest for operator in demand.operators), default=0.0
    )
    yield Figure(
        "hottest key", hottest * machine.take / SECOND, "cores",
        "records a second of the busiest key x take; one task processes them all, so above 1 / headroom it needs salt",
        {"records a second": hottest, "take": machine.take / SECOND},
    )  # fmt: skip


def _state(demand: Demand) -> Iterator[Figure]:
    within, machine = ABOUT if demand.is_doubtful else CLOSE, demand.machine
    kinds = {
        f"{node.node.name} {kind.kind}".strip(): kind.rows for node in demand.nodes for kind in node.state if kind.rows
    }
    yield Figure("state rows", demand.rows, "rows", " + ".join(kinds) or "none", kinds, within)
    row = (demand.state - demand.blobs * BLOB_BYTES) / demand.rows if demand.rows else 0.0
    yield Figure(
        "state", demand.state, "bytes", "rows x bytes of a row + blobs x bytes of a blob",
        {"rows": demand.rows, "bytes of a row": row, "blobs": demand.blobs, "bytes of a blob": BLOB_BYTES}, within,
    )  # fmt: skip
    on_disk = demand.state * machine.compressed
    yield Figure(
        "state on disk", on_disk, "bytes", "state x compressed",
        {"state": demand.state, "compressed": machine.compressed}, ABOUT,
    )  # fmt: skip
    rows_written, records_written, blobs_written = demand.writes
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
    rows = {
        name: sum(getattr(operator, name) for operator in demand.operators)
        for name in ("inserts", "updates", "deletes")
    }
    yield Figure(
        "changes", sum(writer.changelog for _, writer in demand.sinks), "rows/s",
        "rows of the changelogs: inserts + updates (each 2 rows if the mode is retract) + deletes", rows, within,
    )  # fmt: skip
    for name, meaning in (("late", "revise a window that has fired"), ("expired", "are in no result")):
        value = sum(getattr(node, name) for node in demand.nodes)
        yield Figure(name, value, "records/s", f"pairs of a record and a window that {meaning}", {}, within)


def _demand(graph: m.Graph, load: Load, every: float, logs: Mapping[str, int], cores: int) -> Demand:
    """Return the demand with the shortest steps that start at this rate and end before the next step is due."""
    *shorter, longest = Trigger(round(every * SECOND)).intervals(load.rate)
    for step in shorter:
        demand = Demand.of(graph, load, step, logs, cores)
        if demand.step_time <= step:
            return demand
    return Demand.of(graph, load, longest, logs, cores)


def _memory(demand: Demand, wishes: Wishes) -> Iterator[Figure]:
    machine = demand.machine
    both = {"headroom": wishes.headroom, "jvm": machine.jvm, "row": machine.row, "rows of a step": demand.step_rows}
    yield Figure(
        "driver memory", wishes.headroom * demand.driver, "bytes",
        "headroom x (driver + jvm + 2 x row x rows of a step)", {**both, "driver": machine.driver}, ABOUT,
    )  # fmt: skip
    yield Figure(
        "executor memory", wishes.headroom * demand.executors, "bytes",
        "headroom x (jvm + workers + worker x cores + row x rows of a step + 2 x state), for all executors together",
        {**both, "workers": machine.workers, "worker": machine.worker, "cores": demand.cores, "state": demand.state},
        ABOUT,
    )  # fmt: skip


def _latency(demand: Demand) -> Iterator[Figure]:
    machine, step = demand.machine, demand.step
    took, (read, tasks) = demand.step_time, demand.slowest_reading
    delay = max(delay_of(source, demand.load)[0] for source in demand.graph.sources) + demand.load.skew
    yield Figure(
        "step time", took, "s",
        "every x the greatest of processor time / (cores x busy), read and decode / (tasks that read x busy) of all "
        "sources or one, key groups / (state partitions x busy) and sink; but at least least_step",
        {"processor time": demand.processors, "every": step, "cores": demand.cores, "busy": machine.busy,
         "read and decode": read, "tasks that read": tasks,
         "key groups": demand.in_groups, "state partitions": demand.state_tasks, "sink": demand.parts["sink"],
         "least_step": machine.least_step}, ABOUT,
    )  # fmt: skip
    (half, most), inputs = demand.latency, {"delay": delay, "every": step, "step time": took}
    yield Figure(
        "latency, half", delay + half, "s",
        "delay + skew + every / 2 + step time: the median time from the end of a window until its row is written",
        inputs, ABOUT,
    )  # fmt: skip
    yield Figure("latency, most", delay + most, "s", "delay + skew + every + step time: nearly all rows", inputs, ABOUT)


def _network(demand: Demand) -> Iterator[Figure]:
    load, groups = demand.load, demand.graph.key_groups
    yield Figure(
        "network, log", load.rate * load.mean_bytes, "bytes/s", "rate x bytes of a record",
        {"rate": load.rate, "bytes of a record": load.mean_bytes},
    )  # fmt: skip
    taken = sum(operator.taken for operator in demand.operators)
    width = _PACKED + load.text_bytes
    yield Figure(
        "network, shuffle", taken * width + demand.partitions * groups * _PROGRESS / demand.step, "bytes/s",
        f"records taken x bytes of a packed record + log partitions x key groups x {_PROGRESS} / every",
        {"records taken": taken, "bytes of a packed record": width, "log partitions": demand.partitions,
         "key groups": groups, "every": demand.step}, ABOUT,
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
"""Bytes that a key group receives about a partition in a step (docs/performance.md)."""


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
    """Prices per core-hour, per GiB of memory and hour, per GiB of storage and month, and per GiB of network."""

    currency: str
    core_hour: float
    memory_gb_hour: float
    storage_gb_month: float
    network_gb: float


def cost(found: Capacity, prices: Prices) -> Iterator[Figure]:
    """Yield the monthly cost (730 hours) of cores, memory, storage and network, then the total."""
    memory = (found.value("driver memory") + found.value("executor memory")) / GIB
    stored = sum(found.value(f"{name} storage") for name in ("log", "table", "changelog"))
    stored = (stored + found.value("checkpoint")) / GIB
    sent = sum(figure.value for figure in found.figures if figure.name.startswith("network, ")) * MONTH * 3600 / GIB
    parts = [
        ("cores", found.value("cores") * prices.core_hour * MONTH, "cores x core_hour x 730",
         {"cores": found.value("cores"), "core_hour": prices.core_hour}),
        ("memory", memory * prices.memory_gb_hour * MONTH, "GiB x memory_hour x 730",
         {"GiB": memory, "memory_hour": prices.memory_gb_hour}),
        ("storage", stored * prices.storage_gb_month, "GiB x storage_month",
         {"GiB": stored, "storage_month": prices.storage_gb_month}),
        ("network", sent * prices.network_gb, "GiB a month x network",
         {"GiB a month": sent, "network": prices.network_gb}),
    ]  # fmt: skip
    unit = f"{prices.currency} a month"
    for name, value, law, inputs in parts:
        yield Figure(f"cost of {name}", value, unit, law, inputs, 2.0)
    costs = {name: value for name, value, _, _ in parts}
    yield Figure("cost", sum(costs.values()), unit, " + ".join(f"cost of {name}" for name in costs), costs, 2.0)
