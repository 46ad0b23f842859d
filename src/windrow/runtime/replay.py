"""Replay: reads the log again and writes the results to shadow tables beside the live tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.authoring.checks import require_valid
from windrow.connectors.cuts import Cut, Offset
from windrow.connectors.database import Condition, Replayed, only_columns
from windrow.connectors.open_sinks import open_database, open_sinks
from windrow.connectors.open_sources import open_sources, with_lists
from windrow.connectors.sink import Run
from windrow.connectors.tables import beside, layout
from windrow.engine.changelog import with_labels, with_numbers
from windrow.engine.columns import MIN_TIME
from windrow.engine.operators.window.triggers import trigger_periods
from windrow.engine.watermarks.journal import NO_IDLE, IdleAtEnd, JournalReplay
from windrow.errors import CheckpointError, InputError, SinkError
from windrow.expressions import sink_specs
from windrow.runtime.batch.plan import MAX_RECORDS, BatchSettings, starts_at_latest
from windrow.runtime.run import MAX_BYTES, Ended, OnStart, ReplayHost
from windrow.runtime.savepoint import require_new_folder
from windrow.runtime.settings import AS_GIVEN, SparkOptions
from windrow.runtime.stream.checkpoint import Checkpoint, log_of
from windrow.telemetry.facts import PartitionName
from windrow.telemetry.folders import Folder
from windrow.telemetry.numbers import format_time
from windrow.telemetry.reports import Observer, OnStep, counted, name_partitions
from windrow.telemetry.traces import tracing

SHADOW = "_shadow"


@dataclass(frozen=True)
class ReplayOptions:
    """Options of a replay.

    `checkpoint` is the checkpoint of the live run. If it is the `default` one and does not exist, or if `end` is
    ``log``, the replay reads to the end of the log. `begin` maps partition names to the offsets to read from. Windows
    that end at or before `since` (microseconds) are not written. `into` is the name of the shadow of a single table; by
    default, each shadow has the name of its live table with the suffix `SHADOW`.
    """

    checkpoint: Folder
    default: bool = True
    into: str | None = None
    begin: Mapping[PartitionName, int] | None = None
    since: int | None = None
    end: Mapping[PartitionName, int] | Literal["log", "live"] = "live"
    journal: bool = True
    host: ReplayHost = "batch"
    fresh: bool = False
    savepoint: Folder | None = None
    max_records: int = MAX_RECORDS
    max_bytes: int = MAX_BYTES
    spark: SparkOptions = AS_GIVEN
    on_warning: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Replay:
    """A planned replay into the tables of `pipeline`; `notes` are for the user.

    `tables` pairs each live table with its shadow. `lacks` is None unless the live run read records that the log no
    longer holds, which the shadow therefore cannot contain: then it has the first offset of each partition in the log.
    """

    pipeline: m.Graph
    tables: tuple[tuple[str, str], ...]
    end: Cut
    settings: BatchSettings
    notes: tuple[str, ...]
    lacks: Cut | None = None


def shadows(graph: m.Graph, into: str | None, option: str) -> dict[str, str]:
    """Map each live table to its shadow; `into`, the value of `option`, is the name of the shadow of a single table."""
    live = [node.sink.table for node in graph.sinks]
    if into is not None and len(live) > 1:
        msg = f"{option} names one table, but there are {len(live)}: leave it out, so that each is TABLE{SHADOW}"
        raise InputError(msg)
    if into is not None and into.lower() == live[0].lower():
        msg = f"{into!r} is the live table itself: choose another name with {option}"
        raise InputError(msg)
    return {table: into or table + SHADOW for table in live}


def plan_replay(graph: m.Graph, options: ReplayOptions) -> Replay:
    """Plan a replay from the log, the live run's checkpoint and its tables; raise a WindrowError if that fails."""
    if options.since is not None and graph.rules:
        msg = "alerts have no windows, so a replay of them begins at offsets, not at a time: use offsets in --from"
        raise InputError(msg)
    warnings: list[str] = []
    graph = with_lists(graph, warnings.append)
    tables = shadows(graph, options.into, "--into")
    if options.savepoint is not None:
        require_new_folder(options.savepoint)
    there = open_sources(graph).ends()
    begin = _by_number(graph, "--from", options.begin, there)
    asked = None if isinstance(options.end, str) else _by_number(graph, "--to", options.end, there)
    first = {partition: begin for partition, (begin, _) in there.items()}
    checkpoint = Checkpoint.read(options.checkpoint) if options.end == "live" else None
    if checkpoint is None and options.end == "live" and not options.default:
        msg = f"there is no checkpoint in {options.checkpoint}: use the live run's, or replay with --to end"
        raise CheckpointError(msg)
    epoch = None if checkpoint is None else _epoch(graph, checkpoint)
    end: dict[int, int]
    if checkpoint is not None:
        end = {**first, **checkpoint.offsets(-1 if epoch is None else epoch - checkpoint.first_epoch)}
    elif asked is not None:
        end = {**first, **asked}
    else:
        end = {partition: last for partition, (_, last) in there.items()}
    replayed = JournalReplay()
    if options.journal:
        with closing(open_sinks(graph)) as sinks:
            replayed = JournalReplay.of(with_numbers(graph, sinks.journal()), end)
    if checkpoint is not None:
        # partitions from which the live run has read nothing are idle at the end, too
        known = {*checkpoint.partitions, *(partition for partition in end if end[partition] > first.get(partition, 0))}
        lows = dict.fromkeys(first.keys() - known, MIN_TIME) | dict(replayed.idle_at_end.lows)
        replayed = replace(replayed, idle_at_end=IdleAtEnd(tuple(sorted(lows.items()))))
    # windows do not fire at the end of a part of the log
    holds = checkpoint is not None or asked is not None
    settings = BatchSettings(
        begin=begin,
        end=end,
        bounds=replayed.bounds,
        ends=replayed.ends,
        idle_at_end=replayed.idle_at_end if holds else NO_IDLE,
        journal=with_labels(graph, replayed.rows),
        at_end="hold" if holds else None,
        since=options.since,
        max_records=options.max_records,
        max_bytes=options.max_bytes,
        spark=options.spark,
        savepoint=options.savepoint,
        log=log_of(options.checkpoint),
        run=Run.new(graph.name),
        read_as=None if checkpoint is None else _at(checkpoint),
    )
    notes = (*warnings, *_notes(graph, options, checkpoint, replayed, first=first, epoch=epoch))
    shadowed = _into_shadows(graph, tables, checkpoint, options)
    # whether the live run began with records that the log no longer has
    live = Checkpoint.read(options.checkpoint) if any(first.values()) else None
    begun = {} if live is None else live.offsets(-1)
    is_trimmed = any(offset > begun.get(partition, offset) for partition, offset in first.items())
    return Replay(shadowed, tuple(tables.items()), end, settings, notes, first if is_trimmed else None)


def require_as_far(graph: m.Graph, tables: Mapping[str, str], folder: Folder) -> None:
    """Raise SinkError if a shadow ends before the position of its live table, or was computed from another log.

    `_position` determines positions, with the checkpoint in the folder. If the position is unknown, a live table is
    assumed to be at the end of the log and a shadow at its beginning. A table that a promoted replay replaced can be
    promoted again, unless a run has written to the live table since.

    Also raise SinkError if the log no longer has its beginning, and the shadow begins later than a live table whose
    beginning no checkpoint records.
    """
    checkpoint = Checkpoint.read(folder)
    for node in graph.sinks:
        live, shadow, database = node.sink.table, tables[node.sink.table], open_database(node.sink)
        if database.stands(shadow) is None:
            continue
        replayed, stands = database.replayed(shadow), database.stands(live)
        if replayed is not None and replayed.at is not None:
            _require_log(graph, f"the replay into {shadow!r} read", replayed.at, replayed.identity)
        if stands is None or (replayed is None and database.replayed(live) is not None):
            continue
        _require_rows(graph, tables, node.sink, checkpoint, folder)
        if checkpoint is None or checkpoint.run != stands[0]:
            _require_as_early(graph, node.sink, shadow)
        elif (at := _at(checkpoint)) is not None:
            _require_log(graph, f"{live!r} was written from", at, checkpoint.identity)


def _require_rows(
    graph: m.Graph, tables: Mapping[str, str], sink: m.Sink, checkpoint: Checkpoint | None, folder: Folder
) -> None:
    there, here = (_position(graph, names, sink, checkpoint) for names in ({}, tables))
    if there is None:
        there = {partition: last for partition, (_, last) in open_sources(graph).ends().items()}
    behind = ((number, offset) for number, offset in there.items() if offset > (here or {}).get(number, 0))
    partition, offset = next(behind, (None, 0))
    if partition is None:
        return
    shadow, name = tables[sink.table], graph.partition_name(partition)
    end = f"offset {(here or {}).get(partition, 0):,} of partition {name}"
    if open_database(sink).replayed(shadow) is not None:
        ended = f"the replay into {shadow!r} ended at {end}"
    elif here is not None:
        ended = f"{shadow!r} has the records up to {end}"
    else:
        ended = f"no replay wrote {shadow!r}, and nothing records how much of partition {name} is in it"
    msg = (
        f"{ended}, but {sink.table!r} has the records up to offset {offset:,} and would lose rows: replay again with "
        f"--fresh and without --to, then promote (if the checkpoint of the live run is not {folder}, give it with "
        f"--checkpoint)"
    )
    raise SinkError(msg)


def _require_log(graph: m.Graph, what: str, at: Offset, identity: str | None) -> None:
    """Raise SinkError if the pipeline's log lacks records before a position for a reason other than retention."""
    source = open_sources(graph)
    others = [loss for loss in source.find_losses(at, identity).losses if loss.goes_on <= loss.stood]
    if others:
        msg = (
            f"{what} a different log than {source.name} of the pipeline ({others[0]}): use the pipeline of that log, "
            f"or replay this one again with --fresh, then promote"
        )
        raise SinkError(msg)


def _require_as_early(graph: m.Graph, sink: m.Sink, shadow: str) -> None:
    if not any(first for first, _ in open_sources(graph).ends().values()):
        return
    begins = [_first_window(graph, sink, table) for table in (sink.table, shadow)]
    if begins[0] is not None and (begins[1] is None or begins[0] < begins[1]):
        first = "no windows" if begins[1] is None else f"windows from {format_time(begins[1])} on"
        msg = (
            f"{shadow!r} has {first}, as the log no longer has its beginning, but {sink.table!r} has windows from "
            f"{format_time(begins[0])} on and would lose them: keep the live table"
        )
        raise SinkError(msg)


def _first_window(graph: m.Graph, sink: m.Sink, name: str) -> int | None:
    """Return the start of the first window in a table, or None if it has no rows or its rows have no windows."""
    spec = next(spec for spec in sink_specs(graph).values() if spec.sink == sink)
    table = layout(spec.into(name)).result
    if "window_start" not in table.columns:
        return None
    with open_database(sink).snapshot() as snapshot:
        rows = list(snapshot.rows(only_columns(table, ["window_start"]), ["window_start"], limit=1))
    return next((int(part["window_start"][0].value) for part in rows if part.num_rows), None)


def _position(graph: m.Graph, names: Mapping[str, str], sink: m.Sink, checkpoint: Checkpoint | None) -> Cut | None:
    """Return the position of a sink's table, or of its shadow in `names`, as the next offset of each partition.

    This is the end of the replay that wrote the table, the position of the checkpoint if its run wrote the table, or
    the end of the input if that was the last step of a bounded run. Return None if the position is unknown.
    """
    database, table = open_database(sink), names.get(sink.table, sink.table)
    replayed, stands = database.replayed(table), database.stands(table)
    if replayed is not None or stands is None:
        return None if replayed is None else replayed.end
    owner, epoch = stands
    if checkpoint is not None and checkpoint.run == owner:
        return checkpoint.offsets(-1 if epoch is None else epoch - checkpoint.first_epoch)
    if checkpoint is not None and checkpoint.follows is not None and checkpoint.follows.run == owner:
        return checkpoint.offsets(-1)
    return None if epoch is None else _end_of_input(graph, names, epoch)


def _end_of_input(graph: m.Graph, names: Mapping[str, str], epoch: int) -> Cut | None:
    """Return the offsets at which the input ended in an epoch, according to the clock journal beside the first table.

    Return None if the input did not end in this epoch.
    """
    sink = graph.sinks[0].sink
    _, _, clocks = beside(names.get(sink.table, sink.table))
    with open_database(sink).snapshot() as snapshot:
        rows = (
            list(snapshot.rows(clocks, ["epoch"], [Condition("reason", "=", "end")]))
            if snapshot.columns(clocks.name)
            else []
        )
    journal = with_numbers(
        graph, pa.concat_tables([clocks.schema.empty_table(), *(part.cast(clocks.schema) for part in rows)])
    )
    journal = journal.filter(pc.equal(journal["epoch"], epoch))
    return dict(zip(journal["partition"].to_pylist(), journal["offset"].to_pylist(), strict=True)) or None


def run_replay(replay: Replay, options: ReplayOptions, on_step: OnStep, on_start: OnStart) -> Ended:
    """Run a replay; `on_start` receives a function that asks it to stop. Raise a WindrowError if it fails."""
    graph = replay.pipeline
    with tracing(graph, options.host, options.on_warning) as traces:
        both = Observer.all_of([Observer(on_step), Observer(name_partitions(graph, traces.on_step))])
        return _run_replay(replay, options, both.on_step, on_start)


def _run_replay(replay: Replay, options: ReplayOptions, on_step: OnStep, on_start: OnStart) -> Ended:
    sinks, settings = open_sinks(replay.pipeline), replay.settings
    source = open_sources(replay.pipeline, settings.read_as)
    if settings.run is None:
        msg = "a replay needs a run for its rows"
        raise ValueError(msg)
    notes = [
        (
            open_database(node.sink),
            Replayed(
                table=node.sink.table,
                run=settings.run,
                begin=settings.begin if replay.lacks is None else replay.lacks,
                end=replay.end,
                since=settings.since,
                finished=False,
                at=source.beginning(replay.end),
                identity=source.identity(),
            ),
        )
        for node in replay.pipeline.sinks
    ]
    try:
        if options.fresh:
            sinks.clear()
        for database, note in notes:
            database.note(note)
        match options.host:
            case "batch":
                from windrow.runtime.batch.run import BatchRun  # noqa: PLC0415 - Spark only where it runs

                batch = BatchRun(replay.pipeline, sinks, settings)
                on_start(batch.stop)
                ended = batch.run(on_step)
            case "memory":
                from windrow.runtime.memory import MemoryRun  # noqa: PLC0415 - Arrow only where it runs

                memory = MemoryRun(replay.pipeline, sinks, batch=settings)
                on_start(memory.stop)
                ended = memory.run(on_step)
            case _:
                assert_never(options.host)
        for database, note in notes if ended == "end" else ():
            database.note(replace(note, finished=True))
        return ended
    finally:
        sinks.close()


def _by_number(
    graph: m.Graph, option: str, given: Mapping[PartitionName, int] | None, there: Mapping[int, tuple[int, int]]
) -> dict[int, int] | None:
    """Replace partition names by partition numbers in a mapping to offsets.

    Raise InputError if an option specifies a partition that the log does not have, or an offset beyond its end.
    """
    if given is None:
        return None
    found = {graph.partition_number(name): offset for name, offset in given.items()}
    for (partition, offset), name in zip(found.items(), given, strict=True):
        if partition not in there:
            known = ", ".join(str(graph.partition_name(number)) for number in sorted(there)) or "none"
            msg = f"{option} specifies partition {name}, which is not in the log: the log has {known}"
            raise InputError(msg)
        end = there[partition][1]
        if offset > end:
            msg = f"{option} specifies offset {offset} of partition {name}, which ends at {end}: use at most {end}"
            raise InputError(msg)
    return found


def _epoch(graph: m.Graph, checkpoint: Checkpoint) -> int | None:
    """Return the last epoch of the live tables, or None if their run has not committed any.

    It is one more than the epoch that Spark recorded if the run died between the two commits. Raise CheckpointError if
    another run wrote a table, or if the tables are at different epochs.
    """
    epochs = {node.sink.table: _epoch_of(node.sink, checkpoint) for node in graph.sinks}
    if len(set(epochs.values())) > 1:
        msg = (
            f"the run of {checkpoint.folder} ended between the commits of a step to two tables: run the pipeline "
            "once more, then replay"
        )
        raise CheckpointError(msg)
    return next(iter(epochs.values()))


def _at(checkpoint: Checkpoint) -> Offset | None:
    """Return the position of a run in the source's own form, or None if it has none yet."""
    return checkpoint.note(checkpoint.batch).at if checkpoint.place(checkpoint.batch)[0].is_file() else None


def _epoch_of(sink: m.Sink, checkpoint: Checkpoint) -> int | None:
    table = sink.table
    owner, epoch = open_database(sink).stands(table) or (checkpoint.run, checkpoint.committed)
    if owner == checkpoint.run:
        return None if epoch is None or epoch < checkpoint.first_epoch else epoch
    if checkpoint.follows is None or checkpoint.follows.run != owner or checkpoint.committed is not None:
        msg = (
            f"the run of {checkpoint.folder} did not write the table {table!r}: give the checkpoint of the run that "
            "did with --checkpoint, or replay to the end of the log with --to end"
        )
        raise CheckpointError(msg)
    return None


def _into_shadows(
    graph: m.Graph, tables: Mapping[str, str], checkpoint: Checkpoint | None, options: ReplayOptions
) -> m.Graph:
    """Return the pipeline with each source read from its beginning and each sink writing to its shadow table."""
    latest = [node.name for node in graph.sources if starts_at_latest(node.source)]
    if latest and options.begin is None:
        whose = "" if checkpoint is None else f" (the checkpoint {options.checkpoint} has them)"
        msg = (
            f"the pipeline starts at the latest records: say at which offsets it started{whose}, for example "
            "--from 0=100,1=250"
        )
        raise InputError(msg)

    def shadow(node: m.Node) -> m.Node:
        match node:
            case m.SourceNode(source=m.KafkaSource() as topic):
                return replace(node, source=replace(topic, start="earliest"))
            case m.SinkNode(sink=sink):
                return replace(node, sink=sink.into(tables[sink.table]))
            case _:
                return node

    return require_valid(graph.map_nodes(shadow))


def _notes(
    graph: m.Graph,
    options: ReplayOptions,
    checkpoint: Checkpoint | None,
    replayed: JournalReplay,
    *,
    first: Cut,
    epoch: int | None,
) -> Iterator[str]:
    if checkpoint is not None:
        where = "the beginning" if epoch is None else f"epoch {epoch}"
        yield f"up to the position of the live table: {where} of the checkpoint {options.checkpoint}"
    elif options.end == "live":
        yield f"to the end of the log, as there is no checkpoint {options.checkpoint}"
    if replayed.bounds.rows or replayed.ends:
        moves, ends = counted(len(replayed.bounds.rows), "watermark move"), len(replayed.ends)
        inputs = f"{ends:,} end{'' if ends == 1 else 's'} of input"
        yield f"the clock journal of {graph.sinks[0].sink.table!r} is repeated: {moves}, {inputs}"
    if options.begin is not None:
        yield (
            "read from the given offsets on: windows lack earlier records, and clocks begin there; "
            "the result cannot be promoted"
        )
    elif any(first.values()):
        missing = {graph.partition_name(partition): offset for partition, offset in first.items() if offset}
        gone = ", ".join(f"{offset:,} of partition {name}" for name, offset in missing.items())
        yield (
            f"the log no longer has its beginning (its first offsets are {gone}): windows lack earlier records, and "
            f"the first verdicts do not take them into account"
        )
    early = [node.emit.early for node in graph.nodes if isinstance(node, m.WindowNode)]
    if any(any(trigger_periods(trigger)) for trigger in early if trigger is not None):
        yield "early panes by processing time are not repeated: rows of pane early may differ"
