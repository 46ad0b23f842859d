"""Explains a result row: the records, verdicts and revisions behind it.

The row and its revisions are read from the tables. A replay of the log up to the offsets of the table
(`windrow.tools.why.row_replay`) finds the records of the row and computes it again. The memory that the replay needs
does not grow with the log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.connectors.database import Condition, Snapshot, Value, present
from windrow.connectors.open_sinks import open_database
from windrow.connectors.tables import Table, layout, plain_rows
from windrow.engine import schema
from windrow.engine.columns import to_micros
from windrow.engine.windows import window_bounds
from windrow.errors import CheckpointError, InputError
from windrow.runtime.replay import ReplayOptions, plan_replay
from windrow.telemetry.facts import PartitionName
from windrow.telemetry.folders import Folder
from windrow.tools.why.row_lineage import replay_row
from windrow.tools.why.row_replay import RECORDS, VERDICTS, ExplainedDeadLetter, ExplainedRecord
from windrow.tools.why.target import RowTarget, TargetRow, iso_time

_LISTED: Final = 5
"""Rows that an error lists."""
_ABOUT: Final = ("pane", "revision")


@dataclass(frozen=True)
class Revision:
    """A change of the row in the changelog, as plain JSON; an insert has no `before`, and a delete no `after`.

    For a session it may be a change of another row that was merged with it.
    """

    epoch: int
    pane: str
    revision: int
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


_TIMES: Final = ("event_time", "log_time", "watermark", "clock", "window_end")


@dataclass(frozen=True)
class Explanation:
    """Records, verdicts and revisions behind a row of `table`.

    `key` and `window` (microseconds) identify the row; `window` is None for a table by key. `row` is the row in the
    table, and `replayed` the row computed again from the log; each is plain JSON by column, or None. `differences`
    lists the values in which they differ. `records` are ordered by partition and offset. They are the first records
    that were on time and the first others, with room shared between the sources. `counts` has the number of all records
    for each verdict, and `counts_by_source` for each source and verdict. `dead` has the first of `dead_letters` dead
    letters. `offsets` are the next offset of each partition after the replay, and `low_watermark` is the low watermark
    of all sources there. `notes` say how far the log was read, and which records it no longer has.
    """

    table: str
    key: Mapping[str, Any]
    window: tuple[int, int] | None
    row: Mapping[str, Any] | None
    replayed: Mapping[str, Any] | None
    differences: tuple[str, ...]
    records: tuple[ExplainedRecord, ...]
    counts: Mapping[str, int]
    counts_by_source: Mapping[str, Mapping[str, int]]
    revisions: tuple[Revision, ...]
    dead: tuple[ExplainedDeadLetter, ...]
    dead_letters: int
    offsets: Mapping[PartitionName, int]
    low_watermark: int | None
    notes: tuple[str, ...]

    @property
    def counted(self) -> int:
        """The number of records that were counted in the row."""
        return sum(self.counts.get(verdict, 0) for verdict in ("on_time", "late", "taken"))

    def plain(self) -> dict[str, Any]:
        """Return the explanation as plain JSON with times in ISO 8601, None where a time is missing."""
        plain = asdict(self)
        plain["window"] = None if self.window is None else [iso_time(time) for time in self.window]
        plain["low_watermark"] = iso_time(self.low_watermark)
        for record in (*plain["records"], *plain["dead"]):
            record |= {name: iso_time(record[name]) for name in _TIMES if name in record}
        return plain


def explain_row(
    graph: m.Graph,
    sink: str,
    where: Sequence[Condition],
    *,
    checkpoint: Folder,
    is_default: bool = True,
    most: int = RECORDS,
    is_stopped: Callable[[], bool] = lambda: False,
    option: str = "--where ",
) -> Explanation:
    """Explain the row of the sink `sink` that meets all conditions; nothing is written.

    If no row does, but the conditions identify a missing row by its key and window, explain why it is missing.
    `checkpoint` belongs to the run that writes the table, and says up to which offsets the table is. If it is the
    default checkpoint and does not exist, the log is read to its end. `option` is written before conditions in error
    messages.

    Raise InputError if the conditions do not identify a single row, if neither the table nor the log has a trace of it,
    or if the table holds alerts, which carry their own evidence. Raise StoppedError if `is_stopped` becomes true.
    Errors of reading the log and the tables propagate.
    """
    target = RowTarget.of(graph, sink)
    row = _find(target, where, option)
    notes: list[str] = []
    options = ReplayOptions(checkpoint, default=is_default, host="memory")
    try:
        replay = plan_replay(graph, options)
    except CheckpointError as exc:
        if not is_default:
            raise
        notes.append(f"the log is read to its end, because the checkpoint does not say how far the table is: {exc}")
        replay = plan_replay(graph, replace(options, end="log"))
    graph = replay.pipeline
    host = replay_row(graph, target, row, replay.settings, most, is_stopped)
    replayed, others = host.result()
    differences = _differences(row.existing, replayed, target)
    differences += [f"the log has a session from {start} to {end}" for start, end in others]
    by_source = {
        source.name: {verdict: host.counts[number, verdict] for verdict in VERDICTS if host.counts[number, verdict]}
        for number, source in enumerate(graph.sources)
    }
    sums = {verdict: sum(counts.get(verdict, 0) for counts in by_source.values()) for verdict in VERDICTS}
    counts = {verdict: number for verdict, number in sums.items() if number}
    found = Explanation(
        table=target.table.name,
        key=row.plain_key,
        window=row.window,
        row=row.existing,
        replayed=replayed,
        differences=tuple(differences),
        records=tuple(_without_key(host.records, row.plain_key)),
        counts=counts,
        counts_by_source=by_source,
        revisions=_revisions(target, row),
        dead=tuple(host.dead),
        dead_letters=host.dead_letters,
        offsets={graph.partition_name(partition): offset for partition, offset in sorted(replay.end.items())},
        low_watermark=host.low,
        notes=(*notes, *replay.notes, *host.notes),
    )
    if row.existing is None and not (counts or found.dead_letters or found.revisions):
        read = ", ".join(f"{offset:,} of partition {name}" for name, offset in found.offsets.items()) or "none"
        more = "".join(f"; {note}" for note in found.notes)
        msg = (
            f"table {found.table!r} has no such row, and the log has no record of it (read up to these offsets: {read})"
            f"{more}"
        )
        raise InputError(msg)
    return found


def _without_key(records: Sequence[ExplainedRecord], key: Mapping[str, Any]) -> Iterator[ExplainedRecord]:
    """Yield records without the key values that are the same in all of them."""
    same = {name for name, value in key.items() if all(record.values.get(name, value) == value for record in records)}
    for record in records:
        yield replace(record, values={name: value for name, value in record.values.items() if name not in same})


def _find(target: RowTarget, where: Sequence[Condition], option: str) -> TargetRow:
    """Return the row that meets all conditions, or the missing row that they identify.

    Raise InputError if the conditions do not identify a single row.
    """
    database, table = open_database(target.sink.sink), target.table
    with database.snapshot() as snapshot:
        shown = present(snapshot, database, table)
        found = _read_rows(snapshot, shown, where)
        if found.num_rows == 1:
            return _target_row(target, found)
        names = [name for name in target.identity if name in shown.columns]
        named = {condition.column: condition.value for condition in where if condition.operator == "="}
        missing = [name for name in names if name not in named and name not in {"window_end", "revision"}]
        if found.num_rows:
            total = snapshot.count(shown, where)
            msg = f"{total:,} rows of {table.name!r} match; add conditions until only one is left, for example:"
        elif missing:
            same = [condition for condition in where if condition.column in target.key]
            found, total = _read_rows(snapshot, shown, same), snapshot.count(shown, same)
            msg = f"no row of {table.name!r} matches" + (", and no row has that key" if same and not total else "")
            msg += f". To explain a missing row, also give {option}{missing[0]}=VALUE"
            msg += ". Rows:" if total else ""
    if found.num_rows or missing:
        lines = [
            "  " + " ".join(f"{option}{name}={value}" for name, value in zip(names, row, strict=True))
            for row in plain_rows(found.select(names))
        ]
        more = [f"  ... and {total - len(lines):,} more"] if total > len(lines) else []
        raise InputError("\n".join([msg, *lines, *more]))
    key = {name: _scalar(named[name], shown.schema.field(name).type) for name in target.key}
    return TargetRow(key, _named_window(target, named, option), None, None, key)


def _read_rows(snapshot: Snapshot, table: Table, where: Sequence[Condition]) -> pa.Table:
    """Read the first rows that meet all conditions."""
    rows = list(snapshot.rows(table, table.order, where, limit=_LISTED))
    return pa.concat_tables(rows) if rows else table.schema.empty_table()


def _target_row(target: RowTarget, found: pa.Table) -> TargetRow:
    """Return the only row of `found` as a target."""
    (plain,) = plain_rows(found)
    key = {name: found.column(name)[0] for name in target.key}
    window = None
    if target.has_window:
        start, end = (int(to_micros(found.column(name))[0]) for name in m.WINDOW_BOUNDS)
        window = (start, end)
    existing = dict(zip(found.column_names, plain, strict=True))
    values = {name: found.column(name)[0] for name in found.column_names if existing[name] is not None}
    return TargetRow(key, window, existing.get("revision"), existing, values)


def _named_window(target: RowTarget, named: Mapping[str, Value], option: str) -> tuple[int, int] | None:
    """Return the window that the conditions specify by its start, or by start and end if the start is not enough."""
    window = target.window
    if not target.has_window:
        return None
    start, end = int(named["window_start"]), named.get("window_end")
    table = target.table.name
    if isinstance(window, m.Tumbling | m.Hopping | m.Calendar):
        starts, ends = window_bounds(window, np.array([start], dtype=np.int64))
        step = window.slide if isinstance(window, m.Hopping) else getattr(window, "size", 1)
        is_number = isinstance(window, m.Calendar) or (start - window.offset) % step == 0
        if not is_number or (int(starts[0]), end or int(ends[0])) != (start, int(ends[0])):
            to = "any time" if end is None else iso_time(int(end))
            msg = f"{table!r} has no window from {iso_time(start)} to {to}"
            raise InputError(msg)
        return start, int(ends[0])
    if end is None:
        msg = f"no row of {table!r} matches. To explain a missing row, also give {option}window_end=VALUE"
        raise InputError(msg)
    return start, int(end)


def _scalar(value: Value, type_: pa.DataType) -> pa.Scalar:
    return pa.scalar(value, pa.int64()).cast(type_) if pa.types.is_timestamp(type_) else pa.scalar(value, type_)


def _revisions(target: RowTarget, row: TargetRow) -> tuple[Revision, ...]:
    """Read the changes of the row from the changelog; for a session also those of sessions that overlap it."""
    database, table = open_database(target.sink.sink), layout(target.spec).changes
    conditions = row.conditions
    if row.window is not None:
        start, end = row.window
        is_session = isinstance(target.window, m.Session)
        conditions += [
            Condition("window_start", "<" if is_session else "=", end if is_session else start),
            Condition("window_end", ">" if is_session else "=", start if is_session else end),
        ]
    with database.snapshot() as snapshot:
        shown = present(snapshot, database, table)
        batches = list(snapshot.rows(shown, table.order, conditions))
    found: list[Revision] = []
    before: dict[str, Any] | None = None
    hidden = {"epoch", "seq", "op", *_ABOUT, *row.key}
    hidden |= set() if isinstance(target.window, m.Session) else set(m.WINDOW_BOUNDS)
    for values in (values for batch in batches for values in plain_rows(batch)):
        change = dict(zip(shown.columns, values, strict=True))
        content = {name: value for name, value in change.items() if name not in hidden}
        if change["op"] == "update_before":
            before = content
            continue
        after = None if change["op"] == "delete" else content
        was = content if after is None else before
        found.append(Revision(change["epoch"], change["pane"], change["revision"], was, after))
        before = None
    return tuple(found)


def _differences(row: Mapping[str, Any] | None, replayed: Mapping[str, Any] | None, target: RowTarget) -> list[str]:
    """Describe the values in which the row in the table and the row computed from the log differ."""
    if row is None or replayed is None:
        if row is replayed:
            return []
        return [f"the table has {'a row, but the log gives no row' if row else 'no row, but the log gives one'}"]
    values = [field.name for field in schema.value_fields(target.spec.rows)]
    return [
        f"{name} is {row[name]} in the table, but {replayed[name]} when computed from the log"
        for name in values
        if name in row and name in replayed and not _is_same(row[name], replayed[name])
    ]


def _is_same(value: object, other: object) -> bool:
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=1e-9)
    return value == other
