"""Redrive of dead letters: appends copies of them to the log that they came from (`windrow.engine.decode.redriven`).

Once: what was redriven is what the log holds. The log is read from the first chosen record on, by one process at a
time, and a record with a copy behind it gets no other, also if the process that appended that died before it noted it.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.database import Condition, Value, columns_of, only_columns
from windrow.connectors.open_sinks import open_database
from windrow.connectors.open_sources import open_appender, open_source
from windrow.connectors.registry import source_connector
from windrow.connectors.source import NewRecord
from windrow.connectors.tables import REDRIVES, beside
from windrow.engine.columns import MIN_TIME, to_micros
from windrow.engine.decode.decoder import Decoder
from windrow.engine.decode.redriven import PREFIX, REDRIVEN, Redriven, copies
from windrow.engine.operators.window.assigner import in_windows
from windrow.engine.schema import END, MICROS, RAW, TIME
from windrow.engine.state.inspect import inspect_state
from windrow.errors import CheckpointError, InputError
from windrow.expressions import OperatorSpec, decoding_spec
from windrow.runtime.savepoint import Savepoint
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.telemetry.folders import Folder
from windrow.telemetry.history import history_of, read_history

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(frozen=True)
class Redrivable:
    """The one result of a graph whose dead letters can be redriven, and the sink of its rows."""

    graph: m.Graph
    spec: OperatorSpec[m.ResultNode]
    sink: m.Sink

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self.graph.name

    @property
    def source(self) -> m.Source:
        """The source of the records."""
        return self.spec.source


"""Pipelines whose dead letters can be redriven: no part of them has counted such a record."""
Outcome = Literal["redriven", "already", "dead", "expired", "counted", "attempts", "lost"]
"""What becomes of a dead letter: it is redriven, or was; or it is not, since it is still dead, would be expired, was
decoded by the settings of today, was redriven too often, or is not in the log any more."""
Verdict = Literal["on time", "late", "expired", "unknown"]


_ROW: Final = "__row"
_MOST: Final = 2**63 - 1


@dataclass(frozen=True)
class Choice:
    """Which dead letters to redrive: those that meet all conditions. None, or nothing, is no condition.

    `reasons` are beginnings of reasons, `since` is a log timestamp in microseconds, `key` has values of
    fields of the key, in their types.
    """

    reasons: tuple[str, ...] = ()
    partition: int | None = None
    offsets: tuple[int, ...] = ()
    since: int | None = None
    key: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Letter:
    """A dead letter, and what becomes of it.

    `attempt` is how often its record is redriven with it, `origin` the offset of the record that was first redriven.
    `verdict` is the forecast for its copy, `copy` the offset of that once it is in the log. `now` is why it is still a
    dead letter.
    """

    partition: int
    offset: int
    reason: str
    outcome: Outcome
    attempt: int = 1
    origin: int = 0
    verdict: Verdict = "unknown"
    copy: int | None = None
    now: str | None = None


@dataclass(frozen=True)
class Listed:
    """How many dead letters have a reason that begins so, how many of them were redriven, and the first of them."""

    reason: str
    letters: int
    redriven: int
    example: str


def redrivable(graph: m.Graph) -> Redrivable:
    """Return the one result of a graph; raise InputError if the dead letters of such a graph cannot be redriven."""
    if not graph.is_short or graph.rules:
        msg = (
            f"pipeline {graph.name!r} has {'rules' if graph.is_short else 'several streams'}: a "
            "record that one of them rejects was counted by others, so its copy would count twice; replay the log "
            "instead (windrow replay)"
        )
        raise InputError(msg)
    connector = source_connector(graph.sources[0].source)
    if not connector.appender:
        raise InputError(connector.not_written(graph.sources[0].source))
    return Redrivable(graph, decoding_spec(graph), graph.sinks[0].sink)


def list_letters(pipeline: Redrivable) -> tuple[list[Listed], int]:
    """Return the dead letters by reason, most first, and how many rows the late output has.

    Raise InputError if no run has written them.
    """
    counts: Counter[str] = Counter()
    redriven: Counter[str] = Counter()
    examples: dict[str, str] = {}
    noted = _noted(pipeline)
    for row in _dead(pipeline, Choice()):
        word = _word(row.reason)
        counts[word] += 1
        redriven[word] += (row.partition, row.offset) in noted
        examples.setdefault(word, row.reason)
    database, late = open_database(pipeline.sink), beside(pipeline.sink.table)[0]
    with database.snapshot() as snapshot:
        expired = snapshot.count(late)
    return [Listed(word, count, redriven[word], examples[word]) for word, count in counts.most_common()], expired


def redrive(
    graph: m.Graph,
    choice: Choice,
    checkpoint: Folder,
    *,
    attempts: int,
    dry_run: bool = False,
    file: str = "PIPELINE",
) -> list[Letter]:
    """Redrive the chosen dead letters, by partition and offset; with `dry_run` return only what would become of them.

    A record is redriven `attempts` times at most. Raise CheckpointError if the run of the checkpoint decodes by other
    settings than the pipeline's, with the commands that resume it with the pipeline in `file`; and the errors of the
    source and the sink, and of `redrivable`.
    """
    pipeline = redrivable(graph)
    begun = _resumed(graph, checkpoint, file)
    carried = begun.carried()
    since = {} if carried is None else carried.decoded_since
    limits = _Limits(since, attempts, _low(graph, checkpoint, begun))
    chosen = list(_dead(pipeline, choice))
    if not chosen:
        return []
    if dry_run:
        return _judged(pipeline, choice, chosen, _read_log(pipeline, chosen), limits)
    with open_appender(pipeline.source, f"windrow-redrive-{pipeline.name}", PREFIX) as appender:
        # what others appended before is there now, and nobody appends but this process
        log = _read_log(pipeline, chosen)
        letters = _judged(pipeline, choice, chosen, log, limits)
        new = _copies(pipeline, letters, log)
        appended = appender.append(
            {
                partition: [NewRecord(log.originals[partition, one.offset].key, one.encode()) for one in those]
                for partition, those in new.items()
            }
        )
        made = {
            (partition, copy.offset): (offset, copy)
            for partition, those in new.items()
            for copy, offset in zip(those, appended[partition], strict=True)
        }
        found = log.copies | made
        # also what an earlier call appended, and could not note any more
        _note(
            pipeline,
            {place: found[place] for letter in letters if (place := (letter.partition, letter.offset)) in found},
        )
    return [
        replace(letter, copy=made[letter.partition, letter.offset][0]) if letter.outcome == "redriven" else letter
        for letter in letters
    ]


def _resumed(graph: m.Graph, folder: Folder, file: str) -> Checkpoint:
    """Return the checkpoint of the run that copies are for; raise CheckpointError if it is not of this pipeline."""
    found = Checkpoint.read(folder)
    if found is None:
        msg = (
            f"there is no checkpoint in {folder}: a copy counts only for a run that resumed from a savepoint with "
            "the mended pipeline (windrow run --from-savepoint); one that reads the log from its beginning counts the "
            "records themselves"
        )
        raise CheckpointError(msg)
    if differences := found.differences(graph):
        listed = "\n  ".join(differences)
        msg = (
            f"the run of the checkpoint {folder} decodes by another pipeline than {file}; it differs in\n  {listed}\n"
            "a copy counts only for a run that resumed with the mended pipeline: name the checkpoint of that run with "
            f"--checkpoint. If there is none yet, stop the run, undo the changes of {file}, and write a savepoint:\n"
            f"  windrow savepoint {file} --checkpoint {folder} --to {folder}.savepoint\n"
            "then make the changes again, and resume with them:\n"
            f"  windrow run {file} --from-savepoint {folder}.savepoint --checkpoint {folder}.mended\n"
            f"  windrow redrive {file} --checkpoint {folder}.mended --all"
        )
        raise CheckpointError(msg)
    return found


def _word(reason: str) -> str:
    return reason.partition(":")[0]


class _Dead(NamedTuple):
    """A row of the table of dead letters."""

    partition: int
    offset: int
    reason: str


def _dead(pipeline: Redrivable, choice: Choice) -> Iterator[_Dead]:
    """Yield the dead letters of a choice but for its key, by place; copies that do not count are none."""
    database, table = open_database(pipeline.sink), beside(pipeline.sink.table)[1]
    shown = only_columns(table, ["source", "partition", "offset", "log_time", "reason"])
    where = [] if choice.partition is None else [Condition("partition", "=", choice.partition)]
    with database.snapshot() as snapshot:
        columns_of(snapshot, database, table)
        for batch in snapshot.rows(shown, ["partition", "offset"], where):
            columns = (batch.column(name).to_pylist() for name in ("source", "partition", "offset", "reason"))
            times = batch.column("log_time").cast(pa.int64()).to_pylist()
            for source, partition, offset, reason, log_time in zip(*columns, times, strict=True):
                if (
                    source == pipeline.source.label
                    # a row of the results has none
                    and partition is not None
                    and _word(reason) != REDRIVEN
                    and (not choice.reasons or reason.startswith(choice.reasons))
                    and (not choice.offsets or offset in choice.offsets)
                    and (choice.since is None or (log_time is not None and log_time >= choice.since))
                ):
                    yield _Dead(partition, offset, reason)


@dataclass(frozen=True)
class _Original:
    """A record as it was first, and not as its copy. `attempt` is how often it was redriven before."""

    log_time: int | None
    key: bytes | None
    value: bytes | None
    attempt: int
    origin: int


@dataclass(frozen=True)
class _Limits:
    """The offsets that today's settings decode from on, the greatest number of attempts, and the low watermark."""

    since: Mapping[int, int]
    attempts: int
    low: int | None


@dataclass(frozen=True)
class _Log:
    """The chosen records that are in the log, and the copies of records there, by the place of their originals."""

    originals: dict[Place, _Original]
    copies: dict[Place, tuple[int, Redriven]]


def _read_log(pipeline: Redrivable, chosen: Sequence[_Dead]) -> _Log:
    """Read each partition from the first of its chosen records on."""
    source = open_source(pipeline.source)
    wanted: dict[int, list[int]] = {}
    for one in chosen:
        wanted.setdefault(one.partition, []).append(one.offset)
    log = _Log({}, {})
    for partition, those in wanted.items():
        for batch in source.read_from(partition, min(those)):
            offsets = to_micros(batch.column("offset"))
            own = {row: copy for row, copy in copies(batch).items() if copy.pipeline == pipeline.name}
            for row, copy in own.items():
                log.copies[partition, copy.offset] = int(offsets[row]), copy
            for row in np.flatnonzero(np.isin(offsets, those)).tolist():
                log.originals[partition, int(offsets[row])] = _original(batch, row, own.get(row))
    return log


def _original(batch: pa.RecordBatch, row: int, copy: Redriven | None) -> _Original:
    log_time, key, value = (batch.column(name)[row] for name in ("log_time", "key", "value"))
    if copy is not None:
        return _Original(copy.log_time, key.as_py(), copy.value, copy.attempt, copy.origin)
    return _Original(
        log_time.cast(pa.int64()).as_py(), key.as_py(), value.as_py(), 0, batch.column("offset")[row].as_py()
    )


def _judged(pipeline: Redrivable, choice: Choice, chosen: Sequence[_Dead], log: _Log, limits: _Limits) -> list[Letter]:
    """Return what becomes of the chosen dead letters; with a key those alone that are good now, and have it."""
    there = [one for one in chosen if one[:2] in log.originals]
    rows = [(*one[:2], log.originals[one[:2]]) for one in there]
    raw = pa.table(
        [
            [partition for partition, _, _ in rows],
            [offset for _, offset, _ in rows],
            pa.array([one.log_time for _, _, one in rows], pa.int64()).cast(MICROS),
            pa.array([one.key for _, _, one in rows], pa.binary()),
            pa.array([one.value for _, _, one in rows], pa.binary()),
        ],
        schema=RAW,
    )
    decoded = Decoder(pipeline.spec).decode(raw)
    still = {(row["partition"], row["offset"]): row["reason"] for row in decoded.dead.to_pylist()}
    good = _places(decoded.good)
    verdicts = dict(zip(good, _forecasts(pipeline, decoded.good.column(2), limits.low), strict=True))
    kept = set(compress(good, _has_key(decoded.good, choice)))
    found = []
    for one in chosen:
        place = (one.partition, one.offset)
        if choice.key and place not in kept:
            continue
        original = log.originals.get(place)
        letter = Letter(*one, "lost")
        if original is not None:
            letter = replace(letter, attempt=original.attempt + 1, origin=original.origin)
        if place in log.copies:
            letter = replace(letter, outcome="already", copy=log.copies[place][0])
        elif place in still:
            letter = replace(letter, outcome="dead", now=still[place])
        elif original is not None:
            verdict = verdicts.get(place, "unknown")  # of a mark without a record there is none
            outcome: Outcome = "redriven"
            if one.offset >= limits.since.get(one.partition, 0):
                outcome = "counted"
            elif letter.attempt > limits.attempts:
                outcome = "attempts"
            elif verdict == "expired":
                outcome = "expired"
            letter = replace(letter, outcome=outcome, verdict=verdict)
        found.append(letter)
    return found


def _has_key(good: pa.Table, choice: Choice) -> npt.NDArray[np.bool_]:
    """Return the mask of the good records that have the key of a choice."""
    # by position: a field may have any name
    columns = {name: good.column(3 + at) for at, name in enumerate(good.column_names[3:])}
    mask = np.ones(good.num_rows, dtype=np.bool_)
    for name, value in choice.key:
        type_ = columns[name].type
        micros = pa.int64() if pa.types.is_timestamp(type_) else type_
        mask &= pc.equal(columns[name], pa.scalar(value, micros).cast(type_)).to_numpy()
    return mask


def _places(table: pa.Table) -> list[Place]:
    # by position: a field may have any name
    return list(zip(*(table.column(at).to_pylist() for at in range(2)), strict=True))


def _forecasts(pipeline: Redrivable, times: pa.ChunkedArray, low: int | None) -> list[Verdict]:
    """Return the verdicts on records with these event times, if the low watermark were `low`.

    A record in several windows is on time or expired if it is for all of them.
    """
    if not isinstance(pipeline.spec.node, m.WindowNode) or low is None or not len(times):
        return ["unknown"] * len(times)
    micros = to_micros(times)
    rows = np.arange(len(times))
    match pipeline.spec.node.window:
        case m.Global():
            return ["on time"] * len(times)
        case m.Session(gap):
            ends = micros + gap
        case window:
            found = in_windows(window, pa.table({TIME: micros, _ROW: rows}))
            rows, ends = to_micros(found.column(_ROW)), to_micros(found.column(END))
    first, last = (np.full(len(times), bound, dtype=np.int64) for bound in (_MOST, -_MOST))
    np.minimum.at(first, rows, ends)
    np.maximum.at(last, rows, ends)
    return [
        "on time" if low < one else "expired" if low >= other + pipeline.spec.lateness else "late"
        for one, other in zip(first.tolist(), last.tolist(), strict=True)
    ]


def _low(graph: m.Graph, checkpoint: Folder, begun: Checkpoint) -> int | None:
    """Return the low watermark after a run's last step, or of the savepoint that it begins with; None if unknown."""
    path = history_of(checkpoint)
    reports = read_history(path, last=1) if path.is_file() else []
    if reports:
        return reports[-1].low_watermark
    if begun.follows is None:
        return None
    # each key group has the clocks, and they never go back: what is expired by them is so now
    clocks = inspect_state(graph, [(0, Savepoint.state(begun.start, 0))]).clocks
    low = MIN_TIME if clocks is None else clocks.low()
    return None if low == MIN_TIME else low


def _user() -> str:
    """Return the name of the user, or its number where it has no name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError since Python 3.13
        return str(os.getuid())


def _copies(pipeline: Redrivable, letters: Sequence[Letter], log: _Log) -> dict[int, list[Redriven]]:
    """Return the copies to append, by partition."""
    by, at = f"{_user()}@{socket.gethostname()}", time.time_ns() // 1000
    new: dict[int, list[Redriven]] = {}
    for letter in letters:
        if letter.outcome == "redriven":
            original = log.originals[letter.partition, letter.offset]
            copy = Redriven(
                pipeline=pipeline.name,
                offset=letter.offset,
                origin=letter.origin,
                attempt=letter.attempt,
                reason=letter.reason,
                by=by,
                at=at,
                log_time=original.log_time,
                value=original.value,
            )
            new.setdefault(letter.partition, []).append(copy)
    return new


def _note(pipeline: Redrivable, copies_: Mapping[Place, tuple[int, Redriven]]) -> None:
    """Write the trail: the copies of the dead letters at these places, as they are in the log."""
    if not copies_:
        return
    rows = [
        (
            pipeline.name,
            pipeline.source.label,
            partition,
            offset,
            one.offset,
            one.origin,
            one.attempt,
            one.reason,
            one.by,
            one.at,
        )
        for (partition, _), (offset, one) in sorted(copies_.items())
    ]
    columns = [
        pa.array(column, pa.int64() if isinstance(column[0], int) else None) for column in zip(*rows, strict=True)
    ]
    table = pa.Table.from_arrays(columns, REDRIVES.schema.names).cast(REDRIVES.schema)
    open_database(pipeline.sink).note_redrives(table)


def _noted(pipeline: Redrivable) -> set[Place]:
    """Return the places of dead letters that the trail has."""
    database = open_database(pipeline.sink)
    with database.snapshot() as snapshot:
        if not snapshot.columns(REDRIVES.name):
            return set()
        where = [Condition("pipeline", "=", pipeline.name), Condition("source", "=", pipeline.source.label)]
        shown = only_columns(REDRIVES, ["partition", "copy_of", "pipeline", "source"])
        rows = list(snapshot.rows(shown, ["partition", "copy_of"], where))
    return {place for batch in rows for place in _places(batch)}
