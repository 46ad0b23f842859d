"""Why a row of a result is what it is: the records, the verdicts and the revisions behind it.

The row and its revisions are in the tables; its records are found by a replay of the log
(`windrow.tools.why.row_replay`), up to where the table stands, and make the row again. What the replay holds does not
grow with the log.
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
from windrow.tools.why.row_replay import (
    RECORDS,
    VERDICTS,
    WINDOW_COLUMNS,
    ExplainedDeadLetter,
    ExplainedRecord,
    RowTarget,
    TargetRow,
    iso_time,
)

_OTHERS: Final = 5
"""Rows that an error lists."""
_ABOUT: Final = ("pane", "revision")


@dataclass(frozen=True)
class Revision:
    """A change of the row in the changelog: None `before` an insert, and `after` a delete. The fields are plain JSON.

    Of a session it may be a change of another row that was merged with it.
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

    `key` and `window` (microseconds) are the row's; a table by key has no window, which is None.
    `row` is what the table has, and `replayed` what the records of the log make, each None if there is none; both are
    plain JSON by column. `differences` say in which values they differ. `records` are in the order of partitions and
    offsets, the first of those on time and the first others, of which each source has its share; `counts` are of all
    of them by verdict, `counts_by_source` by the name of the source and verdict. `dead` are the first of
    `dead_letters`. `offsets` are the next of each partition behind what was read, `low_watermark` is that of all
    sources there. `notes` say what else to know: how far the log was read, and what it no longer has.
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
        """How many records are in the row."""
        return sum(self.counts.get(verdict, 0) for verdict in ("on_time", "late", "taken"))

    def plain(self) -> dict[str, Any]:
        """Return it as plain JSON; times are in ISO 8601, and None before all time."""
        made = asdict(self)
        made["window"] = None if self.window is None else [iso_time(time) for time in self.window]
        made["low_watermark"] = iso_time(self.low_watermark)
        for one in (*made["records"], *made["dead"]):
            one |= {name: iso_time(one[name]) for name in _TIMES if name in one}
        return made


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

    If no row does, but the conditions name one (its key, and its window), the explanation is of why there is none.
    `checkpoint` is that of the run that writes the table: it says how far the table is. If it is the default one and
    not there, the log is read to its end. `option` is what errors write before a condition.

    Raise InputError if the conditions do not name one row, there is nothing of it in the log either, or the table
    has alerts, which carry their evidence; StoppedError if `is_stopped` becomes true; and what reading the log and the
    tables raises.
    """
    target = RowTarget.of(graph, sink)
    row = _find(target, where, option)
    offsets_notes: list[str] = []
    options = ReplayOptions(checkpoint, default=is_default, host="memory")
    try:
        replay = plan_replay(graph, options)
    except CheckpointError as exc:
        if not is_default:
            raise
        offsets_notes.append(f"the log is read to its end, as the checkpoint does not say how far the table is: {exc}")
        replay = plan_replay(graph, replace(options, end="log"))
    graph = replay.pipeline
    host = replay_row(replay.pipeline, target, row, replay.settings, most, is_stopped)
    replayed, others = host.result()
    differences = _differences(row.there, replayed, target)
    differences += [f"the log makes a session from {other[0]} to {other[1]}" for other in others]
    by_source = {
        source.name: {verdict: host.counts[number, verdict] for verdict in VERDICTS if host.counts[number, verdict]}
        for number, source in enumerate(graph.sources)
    }
    sums = {verdict: sum(one.get(verdict, 0) for one in by_source.values()) for verdict in VERDICTS}
    counts = {verdict: number for verdict, number in sums.items() if number}
    found = Explanation(
        table=target.table.name,
        key=row.plain_key,
        window=row.window,
        row=row.there,
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
        notes=(*offsets_notes, *replay.notes, *host.notes),
    )
    if row.there is None and not (counts or found.dead_letters or found.revisions):
        read = ", ".join(f"{offset:,} of partition {name}" for name, offset in found.offsets.items()) or "none"
        more = "".join(f"; {note}" for note in found.notes)
        msg = f"table {found.table!r} has no such row, and the log no record of it (read up to offsets: {read}){more}"
        raise InputError(msg)
    return found


def _without_key(records: Sequence[ExplainedRecord], key: Mapping[str, Any]) -> Iterator[ExplainedRecord]:
    """Yield records without the values that are the key's in all of them."""
    same = {name for name, value in key.items() if all(record.values.get(name, value) == value for record in records)}
    for record in records:
        yield replace(record, values={name: value for name, value in record.values.items() if name not in same})


def _find(target: RowTarget, where: Sequence[Condition], option: str) -> TargetRow:
    """Return the row that meets all conditions, or that they name; raise InputError if they name none."""
    database, table = open_database(target.sink.sink), target.table
    with database.snapshot() as snapshot:
        shown = present(snapshot, database, table)
        found = _rows(snapshot, shown, where)
        if found.num_rows == 1:
            return _row(target, found)
        names = [name for name in target.identity if name in shown.columns]
        named = {one.column: one.value for one in where if one.operator == "="}
        missing = [name for name in names if name not in named and name not in {"window_end", "revision"}]
        if found.num_rows:
            total = snapshot.count(shown, where)
            msg = f"one row is explained, and {total:,} of {table.name!r} are like that: name one of them, as by"
        elif missing:
            same = [one for one in where if one.column in target.key]
            found, total = _rows(snapshot, shown, same), snapshot.count(shown, same)
            msg = f"no row of {table.name!r} is like that" + (", and none has that key" if same and not total else "")
            msg += f"; of a row that is not there name {missing[0]}, too, with {option}{missing[0]}=VALUE"
            msg += "; there are:" if total else ""
    if found.num_rows or missing:
        raise InputError("\n".join([msg, *_listed(found.select(names), total, option)]))
    key = {name: _scalar(named[name], shown.schema.field(name).type) for name in target.key}
    return TargetRow(key, _named_window(target, named, option), None, None, key)


def _rows(snapshot: Snapshot, table: Table, where: Sequence[Condition]) -> pa.Table:
    """Read the first rows that meet all conditions."""
    rows = list(snapshot.rows(table, table.order, where, limit=_OTHERS))
    return pa.concat_tables(rows) if rows else table.schema.empty_table()


def _row(target: RowTarget, found: pa.Table) -> TargetRow:
    """Return the row that was found."""
    (plain,) = plain_rows(found)
    key = {name: found.column(name)[0] for name in target.key}
    window = None
    if target.has_window:
        start, end = (int(to_micros(found.column(name))[0]) for name in WINDOW_COLUMNS)
        window = (start, end)
    there = dict(zip(found.column_names, plain, strict=True))
    values = {name: found.column(name)[0] for name in found.column_names if there[name] is not None}
    return TargetRow(key, window, there.get("revision"), there, values)


def _named_window(target: RowTarget, named: Mapping[str, Value], option: str) -> tuple[int, int] | None:
    """Return the window that conditions name by its start, and its end where that is not known by it."""
    window = target.window
    if not target.has_window:
        return None
    start, end = int(named["window_start"]), named.get("window_end")
    table = target.table.name
    if isinstance(window, m.Tumbling | m.Hopping | m.Calendar):
        # of windows that start here
        number = np.array([start], dtype=np.int64)
        starts, ends = window_bounds(window, number)
        step = window.slide if isinstance(window, m.Hopping) else getattr(window, "size", 1)
        is_number = isinstance(window, m.Calendar) or (start - window.offset) % step == 0
        if not is_number or (int(starts[0]), end or int(ends[0])) != (start, int(ends[0])):
            to = "any time" if end is None else iso_time(int(end))
            msg = f"no window of {table!r} is from {iso_time(start)} to {to}"
            raise InputError(msg)
        return start, int(ends[0])
    if end is None:
        msg = f"no row of {table!r} is like that; of one that is not there name the end, too: {option}window_end=VALUE"
        raise InputError(msg)
    return start, int(end)


def _listed(rows: pa.Table, total: int, option: str) -> list[str]:
    """Return rows as lines of conditions."""
    lines = [
        "  " + " ".join(f"{option}{name}={value}" for name, value in zip(rows.column_names, row, strict=True))
        for row in plain_rows(rows)
    ]
    return [*lines, *([f"  ... and {total - len(lines):,} more"] if total > len(lines) else [])]


def _scalar(value: Value, type_: pa.DataType) -> pa.Scalar:
    return pa.scalar(value, pa.int64()).cast(type_) if pa.types.is_timestamp(type_) else pa.scalar(value, type_)


def _revisions(target: RowTarget, row: TargetRow) -> tuple[Revision, ...]:
    """Read the changes of the row, and of a session those that overlap it, from the changelog."""
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
    hidden |= set() if isinstance(target.window, m.Session) else {"window_start", "window_end"}
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
    """Say in which values the row of the table and that of the log differ."""
    if row is None or replayed is None:
        if row is replayed:
            return []
        return [
            f"the table {'has no row' if row is None else 'has a row'}, and the log makes {'none' if row else 'one'}"
        ]
    values = [value_field.name for value_field in schema.value_fields(target.spec.rows)]
    return [
        f"{name} is {row[name]} in the table, and {replayed[name]} by the records of the log"
        for name in values
        if name in row and name in replayed and not _is_same(row[name], replayed[name])
    ]


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other
