"""Redrive of dead letters: appends copies of them to the log that they came from (`windrow.engine.decode.redriven`).

Each record is redriven only once, because the log itself holds the copies. One process at a time reads the log from the
first selected record on. It appends no copy of a record that is followed by one, even if an earlier process died after
appending the copy and before noting it in the table of redrives.
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
from windrow.engine.schema import END, HEADERS, MICROS, RAW, TIME
from windrow.engine.state.inspect import inspect_state
from windrow.errors import CheckpointError, InputError
from windrow.expressions import OperatorSpec, decoding_spec
from windrow.runtime.savepoint import Savepoint
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.telemetry.folders import Folder
from windrow.telemetry.history import history_of, read_history

Place = tuple[int, int]
"""A partition and an offset."""


Outcome = Literal["redriven", "already", "dead", "expired", "counted", "attempts", "lost"]
"""The outcome for a dead letter: it is redriven, or was before; or it is not, because it is still dead, would be
expired, was decoded by the current settings, was redriven too often, or is no longer in the log."""
Verdict = Literal["on time", "late", "expired", "unknown"]
_ROW: Final = "__row"
_MOST: Final = 2**63 - 1


@dataclass(frozen=True)
class Choice:
    """Selects the dead letters to redrive: those that meet all given conditions.

    `reasons` are prefixes of reasons, `since` is a log timestamp in microseconds, and `key` has typed values of key
    fields.
    """

    reasons: tuple[str, ...] = ()
    partition: int | None = None
    offsets: tuple[int, ...] = ()
    since: int | None = None
    key: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Letter:
    """A dead letter and its outcome.

    `attempt` is the number of this redrive of the record, and `origin` the offset of the original record. `verdict` is
    the forecast for its copy, and `copy` the copy's offset once it is in the log. `now` is the current reason if the
    record is still a dead letter.
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
    """The dead letters with one kind of reason: how many there are and were redriven, and the first full reason."""

    reason: str
    letters: int
    redriven: int
    example: str


def check_redrivable(graph: m.Graph) -> None:
    """Raise InputError if the dead letters of a graph cannot be redriven.

    This is the case if the log cannot be written, or if part of the graph may already have counted a rejected record.
    """
    if not graph.is_short or graph.rules:
        msg = (
            f"pipeline {graph.name!r} has {'rules' if graph.is_short else 'several streams'}: a "
            "record that one of them rejects may have been counted by others, so a copy would count twice; replay the "
            "log instead (windrow replay)"
        )
        raise InputError(msg)
    connector = source_connector(graph.sources[0].source)
    if not connector.appender:
        raise InputError(connector.not_written(graph.sources[0].source))


def _source(graph: m.Graph) -> m.Source:
    return graph.sources[0].source


def _sink(graph: m.Graph) -> m.Sink:
    return graph.sinks[0].sink


def list_letters(graph: m.Graph) -> tuple[list[Listed], int]:
    """Return the dead letters grouped by reason, most frequent first, and the number of rows of the late output.

    Raise InputError if no run has written them or if they cannot be redriven.
    """
    check_redrivable(graph)
    counts: Counter[str] = Counter()
    redriven: Counter[str] = Counter()
    examples: dict[str, str] = {}
    noted = _read_trail(graph)
    for row in _read_dead(graph, Choice()):
        word = _word(row.reason)
        counts[word] += 1
        redriven[word] += (row.partition, row.offset) in noted
        examples.setdefault(word, row.reason)
    database, late = open_database(_sink(graph)), beside(_sink(graph).table)[0]
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
    """Redrive the selected dead letters in order of partition and offset; with `dry_run` only return their outcomes.

    A record is redriven at most `attempts` times. Raise InputError if the graph's dead letters cannot be redriven.
    Raise CheckpointError if the run of the checkpoint decodes with other settings than the pipeline's; its message has
    the commands that resume the run with the pipeline in `file`. Errors of the source and the sink propagate.
    """
    check_redrivable(graph)
    begun = _read_checkpoint(graph, checkpoint, file)
    carried = begun.carried()
    since = {} if carried is None else carried.decoded_since
    limits = _Limits(since, attempts, _low_watermark(graph, checkpoint, begun))
    chosen = list(_read_dead(graph, choice))
    if not chosen:
        return []
    if dry_run:
        return _judge(graph, choice, chosen, _read_log(graph, chosen), limits)
    with open_appender(_source(graph), f"windrow-redrive-{graph.name}", PREFIX) as appender:
        # the appender excludes others, so all copies that they appended are in the log now
        log = _read_log(graph, chosen)
        letters = _judge(graph, choice, chosen, log, limits)
        new = _make_copies(graph, letters, log)
        appended = appender.append(
            {
                partition: [log.originals[partition, copy.offset].with_value(copy.encode()) for copy in copies_]
                for partition, copies_ in new.items()
            }
        )
        offsets = {
            (partition, copy.offset): (offset, copy)
            for partition, copies_ in new.items()
            for copy, offset in zip(copies_, appended[partition], strict=True)
        }
        # also copies that an earlier call appended, and did not note before it died
        found = log.copies | offsets
        places = ((letter.partition, letter.offset) for letter in letters)
        _note(graph, {place: found[place] for place in places if place in found})
    return [
        replace(letter, copy=offsets[letter.partition, letter.offset][0]) if letter.outcome == "redriven" else letter
        for letter in letters
    ]


def _read_checkpoint(graph: m.Graph, folder: Folder, file: str) -> Checkpoint:
    """Return the checkpoint of the run that will read the copies.

    Raise CheckpointError if there is none or another pipeline wrote it.
    """
    found = Checkpoint.read(folder)
    if found is None:
        msg = (
            f"there is no checkpoint in {folder}: a copy counts only for a run that resumed from a savepoint with "
            "the corrected pipeline (windrow run --from-savepoint); a run that reads the log from its beginning counts "
            "the original records"
        )
        raise CheckpointError(msg)
    if differences := found.differences(graph):
        listed = "\n  ".join(differences)
        msg = (
            f"the run of the checkpoint {folder} does not decode with the pipeline {file}; it differs in\n  {listed}\n"
            "a copy counts only for a run that resumed with the corrected pipeline: give the checkpoint of that run "
            "with --checkpoint. If there is no such run yet, stop the run, undo the changes to "
            f"{file}, and write a savepoint:\n"
            f"  windrow savepoint {file} --checkpoint {folder} --to {folder}.savepoint\n"
            "then make the changes again, and resume with them:\n"
            f"  windrow run {file} --from-savepoint {folder}.savepoint --checkpoint {folder}.corrected\n"
            f"  windrow redrive {file} --checkpoint {folder}.corrected --all"
        )
        raise CheckpointError(msg)
    return found


def _word(reason: str) -> str:
    return reason.partition(":")[0]


class _Dead(NamedTuple):
    """A row of the dead-letter table."""

    partition: int
    offset: int
    reason: str


def _read_dead(graph: m.Graph, choice: Choice) -> Iterator[_Dead]:
    """Yield the dead letters that match all conditions except the key, in order of partition and offset.

    Copies that were not counted are skipped.
    """
    database, table = open_database(_sink(graph)), beside(_sink(graph).table)[1]
    shown = only_columns(table, ["source", "partition", "offset", "log_time", "reason"])
    where = [] if choice.partition is None else [Condition("partition", "=", choice.partition)]
    with database.snapshot() as snapshot:
        columns_of(snapshot, database, table)
        for batch in snapshot.rows(shown, ["partition", "offset"], where):
            columns = (batch.column(name).to_pylist() for name in ("source", "partition", "offset", "reason"))
            times = batch.column("log_time").cast(pa.int64()).to_pylist()
            for source, partition, offset, reason, log_time in zip(*columns, times, strict=True):
                if (
                    source == _source(graph).label
                    # rows of results have no place
                    and partition is not None
                    and _word(reason) != REDRIVEN
                    and (not choice.reasons or reason.startswith(choice.reasons))
                    and (not choice.offsets or offset in choice.offsets)
                    and (choice.since is None or (log_time is not None and log_time >= choice.since))
                ):
                    yield _Dead(partition, offset, reason)


@dataclass(frozen=True)
class _Original:
    """A record as it was before it was first copied; `attempt` is the number of its redrives so far.

    The headers are None if they cannot be read.
    """

    log_time: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None
    attempt: int
    origin: int

    def with_value(self, value: bytes) -> NewRecord:
        """Return a record with the same key and headers."""
        return NewRecord(self.key, value, self.headers or ())


@dataclass(frozen=True)
class _Limits:
    """Limits for redriving records.

    `since` maps each partition to the first offset decoded with the current settings, `attempts` is the greatest number
    of attempts, and `low` the low watermark.
    """

    since: Mapping[int, int]
    attempts: int
    low: int | None


@dataclass(frozen=True)
class _Log:
    """The selected records in the log and all copies, each by the partition and offset of the record copied."""

    originals: dict[Place, _Original]
    copies: dict[Place, tuple[int, Redriven]]


def _read_log(graph: m.Graph, chosen: Sequence[_Dead]) -> _Log:
    """Read each partition from its first selected record on."""
    source = open_source(_source(graph)).with_headers()
    wanted: dict[int, list[int]] = {}
    for letter in chosen:
        wanted.setdefault(letter.partition, []).append(letter.offset)
    log = _Log({}, {})
    for partition, offsets_ in wanted.items():
        for batch in source.read_from(partition, min(offsets_)):
            offsets = to_micros(batch.column("offset"))
            own = {row: copy for row, copy in copies(batch).items() if copy.pipeline == graph.name}
            for row, copy in own.items():
                log.copies[partition, copy.offset] = int(offsets[row]), copy
            for row in np.flatnonzero(np.isin(offsets, offsets_)).tolist():
                log.originals[partition, int(offsets[row])] = _original(batch, row, own.get(row))
    return log


def _original(batch: pa.RecordBatch, row: int, copy: Redriven | None) -> _Original:
    log_time, key, value = (batch.column(name)[row] for name in ("log_time", "key", "value"))
    headers = batch.column(HEADERS.name)[row].as_py() if HEADERS.name in batch.schema.names else ()
    if copy is not None:
        return _Original(copy.log_time, key.as_py(), copy.value, headers, copy.attempt, copy.origin)
    micros, offset = log_time.cast(pa.int64()).as_py(), batch.column("offset")[row].as_py()
    return _Original(micros, key.as_py(), value.as_py(), headers, 0, offset)


def _judge(graph: m.Graph, choice: Choice, chosen: Sequence[_Dead], log: _Log, limits: _Limits) -> list[Letter]:
    """Return the outcomes of the selected dead letters.

    If `choice` has a key, skip those that are still malformed or have another key.
    """
    rows = [(*place, original) for letter in chosen if (original := log.originals.get(place := letter[:2]))]
    raw = pa.table(
        [
            [partition for partition, _, _ in rows],
            [offset for _, offset, _ in rows],
            pa.array([original.log_time for _, _, original in rows], pa.int64()).cast(MICROS),
            pa.array([original.key for _, _, original in rows], pa.binary()),
            pa.array([original.value for _, _, original in rows], pa.binary()),
        ],
        schema=RAW,
    ).append_column(HEADERS, pa.array([original.headers for _, _, original in rows], HEADERS.type))
    spec = decoding_spec(graph)
    decoded = Decoder(spec).decode(raw)
    still = {(row["partition"], row["offset"]): row["reason"] for row in decoded.dead.to_pylist()}
    good = _places(decoded.good)
    verdicts = dict(zip(good, _forecast(spec, decoded.good.column(2), limits.low), strict=True))
    with_key = set(compress(good, _has_key(decoded.good, choice)))
    found = []
    for dead in chosen:
        place = (dead.partition, dead.offset)
        if choice.key and place not in with_key:
            continue
        original = log.originals.get(place)
        letter = Letter(*dead, "lost")
        if original is not None:
            letter = replace(letter, attempt=original.attempt + 1, origin=original.origin)
        if place in log.copies:
            letter = replace(letter, outcome="already", copy=log.copies[place][0])
        elif place in still:
            letter = replace(letter, outcome="dead", now=still[place])
        elif original is not None:
            verdict = verdicts.get(place, "unknown")  # a mark without a record has no verdict
            outcome: Outcome = "redriven"
            if dead.offset >= limits.since.get(dead.partition, 0):
                outcome = "counted"
            elif letter.attempt > limits.attempts:
                outcome = "attempts"
            elif verdict == "expired":
                outcome = "expired"
            letter = replace(letter, outcome=outcome, verdict=verdict)
        found.append(letter)
    return found


def _has_key(good: pa.Table, choice: Choice) -> npt.NDArray[np.bool_]:
    """Return a mask of the good records whose key is the selected one."""
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


def _forecast(spec: OperatorSpec[m.ResultNode], times: pa.ChunkedArray, low: int | None) -> list[Verdict]:
    """Return the verdict at a low watermark for records with the given event times.

    A record in several windows is on time or expired only if it is so in all of them.
    """
    if not isinstance(spec.node, m.WindowNode) or low is None or not len(times):
        return ["unknown"] * len(times)
    micros = to_micros(times)
    rows = np.arange(len(times))
    match spec.node.window:
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
        "on time" if low < earliest else "expired" if low >= latest + spec.lateness else "late"
        for earliest, latest in zip(first.tolist(), last.tolist(), strict=True)
    ]


def _low_watermark(graph: m.Graph, checkpoint: Folder, begun: Checkpoint) -> int | None:
    """Return the low watermark after a run's last step, or that of the savepoint it began from; None if unknown."""
    path = history_of(checkpoint)
    reports = read_history(path, last=1) if path.is_file() else []
    if reports:
        return reports[-1].low_watermark
    if begun.follows is None:
        return None
    # each key group has the clocks, and they never go back: records that they expire are expired now
    clocks = inspect_state(graph, [(0, Savepoint.state(begun.start, 0))]).clocks
    low = MIN_TIME if clocks is None else clocks.low()
    return None if low == MIN_TIME else low


def _user() -> str:
    """Return the user's name, or the user ID if it has no name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError since Python 3.13
        return str(os.getuid())


def _make_copies(graph: m.Graph, letters: Sequence[Letter], log: _Log) -> dict[int, list[Redriven]]:
    """Return the copies to append to each partition."""
    by, at = f"{_user()}@{socket.gethostname()}", time.time_ns() // 1000
    new: dict[int, list[Redriven]] = {}
    for letter in letters:
        if letter.outcome == "redriven":
            original = log.originals[letter.partition, letter.offset]
            copy = Redriven(
                **{name: getattr(letter, name) for name in ("offset", "origin", "attempt", "reason")},
                pipeline=graph.name,
                by=by,
                at=at,
                log_time=original.log_time,
                value=original.value,
            )
            new.setdefault(letter.partition, []).append(copy)
    return new


def _note(graph: m.Graph, copies_: Mapping[Place, tuple[int, Redriven]]) -> None:
    """Write copies that are in the log to the table of redrives.

    `copies_` maps the place of each dead letter to the offset of its copy and the copy.
    """
    if not copies_:
        return
    names = ("offset", "origin", "attempt", "reason", "by", "at")
    rows = [
        (graph.name, _source(graph).label, partition, offset, *(getattr(copy, name) for name in names))
        for (partition, _), (offset, copy) in sorted(copies_.items())
    ]
    columns = [
        pa.array(column, pa.int64() if isinstance(column[0], int) else None) for column in zip(*rows, strict=True)
    ]
    table = pa.Table.from_arrays(columns, REDRIVES.schema.names).cast(REDRIVES.schema)
    open_database(_sink(graph)).note_redrives(table)


def _read_trail(graph: m.Graph) -> set[Place]:
    """Return the places of dead letters that the table of redrives lists."""
    with open_database(_sink(graph)).snapshot() as snapshot:
        if not snapshot.columns(REDRIVES.name):
            return set()
        where = [Condition("pipeline", "=", graph.name), Condition("source", "=", _source(graph).label)]
        shown = only_columns(REDRIVES, ["partition", "copy_of", "pipeline", "source"])
        rows = list(snapshot.rows(shown, ["partition", "copy_of"], where))
    return {place for batch in rows for place in _places(batch)}
