"""Views of the tables that a run writes (revisions, dead letters, late output), and redriving of dead letters.

Tables are read in snapshots of the sink's database, which take no locks. `why` also reads the log. Only
`redrive_letters` writes.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.database import Condition, Database, Value, only_columns, present, read_value
from windrow.connectors.open_sinks import open_database
from windrow.connectors.tables import Layout, Table, layout, plain_rows
from windrow.engine.schema import key_fields, row_key
from windrow.errors import InputError
from windrow.expressions import sink_specs
from windrow.tools.dashboard.watch import Query, Seen, WatchedRun

_ROWS: Final = 200
"""Greatest number of rows of a view, the newest first."""
_CHANGES: Final = 1_000
"""Greatest number of changes of a key."""
_LATE: Final = 10_000
"""Rows of the late output that are searched for a key, as it has no key columns."""
_ATTEMPTS: Final = 3
_EXPLAINING: Final = threading.Lock()
"""Held while the log is read to explain a row."""
_STOPPING: Final = 2.0
"""Seconds that an explanation waits for another one that may be stopping."""
_NEWEST: Final = ("log_time", "offset", "partition")
"""The descending order of dead letters; without log timestamps they are ordered by offset."""


def revisions(seen: Seen, query: Query) -> dict[str, Any]:
    """Return the rows that were replaced or retracted, newest first, with their values before and after."""
    sinks, name, database, tables = _sink(seen.run, query)
    # delete < insert < update_after < update_before
    rows = _newest(database, tables.changes, ("epoch", "seq"), [Condition("op", ">", "insert")], limit=2 * _ROWS)
    deleted = _newest(database, tables.changes, ("epoch", "seq"), [Condition("op", "=", "delete")], limit=_ROWS)
    found = sorted([*rows, *deleted], key=lambda row: (row["epoch"], row["seq"]), reverse=True)
    own = {"epoch", "seq", "op", "pane", "revision"}
    key = [column for column in tables.result.key if column not in own]
    values = [column for column in tables.result.columns if column not in {*own, *key}]
    return {
        "sinks": sinks,
        "sink": name,
        "table": tables.changes.name,
        "key": key,
        "values": values,
        "revisions": _pair_changes(found, key, values)[:_ROWS],
    }


def _pair_changes(rows: list[dict[str, Any]], key: list[str], values: list[str]) -> list[dict[str, Any]]:
    """Return the changes of rows, each with the values it replaced if the changelog has them.

    `rows` must be newest first.
    """
    waiting: dict[tuple[Any, ...], dict[str, Any]] = {}
    changes: list[dict[str, Any]] = []
    for row in rows:
        place = tuple(row[column] for column in key)
        if row["op"] == "update_before":
            after = waiting.pop(place, None)
            if after is not None:
                after["before"] = {column: row[column] for column in values}
                after["changed"] = [value for value in values if after["after"] and row[value] != after["after"][value]]
            continue
        is_deleted = row["op"] == "delete"
        change = {
            "epoch": row["epoch"],
            "op": row["op"],
            "pane": row["pane"],
            "revision": row["revision"],
            "key": {column: row[column] for column in key},
            "before": {column: row[column] for column in values} if is_deleted else None,
            "after": None if is_deleted else {column: row[column] for column in values},
            "changed": [],
        }
        changes.append(change)
        if not is_deleted:
            waiting[place] = change
    return changes


def dead(seen: Seen, query: Query) -> dict[str, Any]:
    """Return the number of dead letters for each reason, and the newest ones that match `reason` and `partition`.

    `reason` is a prefix.
    """
    sinks, name, database, tables = _sink(seen.run, query)
    where = _of_partition(query)
    reasons = _reasons(database, tables.dead, where)
    start = query.get("reason", "")
    with closing(_newest(database, tables.dead, _NEWEST, where, limit=None if start else _ROWS, reason=start)) as rows:
        chosen = list(islice(rows, _ROWS))
    return {
        "sinks": sinks,
        "sink": name,
        "table": tables.dead.name,
        "total": reasons.total(),
        "reasons": [{"reason": reason, "letters": number} for reason, number in reasons.most_common()],
        "rows": chosen,
        "redrive": _redrive_command(seen.run, query),
    }


def _reasons(database: Database, table: Table, where: list[Condition]) -> Counter[str]:
    """Count dead letters by the part of their reason before the first colon.

    They are counted batch by batch, because there can be many.
    """
    found: Counter[str] = Counter()
    for batch in _batches(database, table, ("offset",), where, columns=("partition", "offset", "reason")):
        words = pc.list_element(pc.split_pattern(batch.column("reason"), ":", max_splits=1), 0)
        for row in pc.value_counts(words).to_pylist():
            found[row["values"]] += row["counts"]
    return found


def _redrive_command(run: WatchedRun, query: Query) -> dict[str, str | None]:
    """Return the command that redrives the selected dead letters, or the reason why they cannot be redriven."""
    from windrow.tools.redrive.copies import check_redrivable  # noqa: PLC0415 - the decoder only where it is needed

    try:
        check_redrivable(_pipeline(run))
    except InputError as exc:
        return {"command": None, "why_not": exc.message}
    words = ["windrow", "redrive", run.file or run.name, "--checkpoint", str(run.checkpoint)]
    for option in ("reason", "partition"):
        if query.get(option):
            words += [f"--{option}", query[option]]
    if not query.get("reason") and not query.get("partition"):
        words.append("--all")
    return {"command": shlex.join(words), "why_not": None}


def late(seen: Seen, query: Query) -> dict[str, Any]:
    """Return the newest rows of the late output (expired records), filtered by `partition`."""
    sinks, name, database, tables = _sink(seen.run, query)
    where = _of_partition(query)
    with database.snapshot() as snapshot:
        total = snapshot.count(present(snapshot, database, tables.late), where)
    rows = _newest(database, tables.late, ("offset", "partition"), where, limit=_ROWS)
    return {"sinks": sinks, "sink": name, "table": tables.late.name, "total": total, "rows": list(rows)}


def history_of_key(seen: Seen, query: Query) -> dict[str, Any]:
    """Return the history of a key: its rows, their changes in order, and its expired records.

    The query has a value ``key.NAME`` for each of the key's `fields`, and optionally the `window_start` in ISO 8601.
    """
    sinks, name, database, tables = _sink(seen.run, query)
    fields = _key_fields(seen.run, name)
    has_window = "window_start" in tables.result.columns
    view: dict[str, Any] = {"sinks": sinks, "sink": name, "table": tables.result.name}
    view |= {"fields": [field.name for field in fields], "has_window": has_window}
    view |= {"rows": [], "changes": [], "late": [], "late_why_not": None}
    if not fields or any(f"key.{field.name}" not in query for field in fields):
        return view
    values = {field.name: read_value(field, query[f"key.{field.name}"]) for field in fields}
    where = [Condition(field, "=", value) for field, value in values.items()]
    start = query.get("window_start", "")
    if start and has_window:
        where.append(Condition("window_start", "=", read_value(tables.result.schema.field("window_start"), start)))
    rows = list(_newest(database, tables.result, tables.result.key, where, limit=_ROWS))
    changes = list(_newest(database, tables.changes, ("epoch", "seq"), where, limit=_CHANGES))
    view |= {"rows": rows, "changes": changes[::-1]}
    late_rows = list(_newest(database, tables.late, ("offset", "partition"), [], limit=_LATE))
    records = [json.loads(row["record"]) for row in late_rows]
    if missing := [field for field in values if any(field not in record for record in records)]:
        why_not = f"expired records are stored without {', '.join(missing)}, so they cannot be matched to a key"
        return view | {"late_why_not": f"{why_not}; see all of them in Late records, or those of a row in Why?"}
    expired = [
        row
        for row, record in zip(late_rows, records, strict=True)
        if all(_is_value(field, record[field.name], values[field.name]) for field in fields)
        and (not start or m.parse_time(row["window_start"]) == m.parse_time(start))
    ]
    return view | {"late": expired[:_ROWS]}


def _is_value(field: pa.Field, found: Any, value: Value) -> bool:  # noqa: ANN401 - JSON
    """Return True if a value in the JSON of a record equals a value of a column."""
    if found is None:
        return False
    try:
        return read_value(field, str(found).lower() if isinstance(found, bool) else str(found)) == value
    except InputError:
        return False


def why(seen: Seen, query: Query, is_stopped: Callable[[], bool]) -> dict[str, Any]:
    """Explain a row by a replay of the log, which can take as long as reading the whole log.

    The query selects the row as in `history_of_key`, and by `window_end` and `revision` if several rows differ only in
    these. The explanation is None if the query lacks a value for one of the key's `fields`. Raise InputError while
    another row is being explained.
    """
    from windrow.tools.why.explain import explain_row  # noqa: PLC0415 - the same

    sinks, name, _, tables = _sink(seen.run, query)
    fields = _key_fields(seen.run, name)
    view = {"sinks": sinks, "sink": name, "table": tables.result.name, "fields": [field.name for field in fields]}
    if not fields or any(f"key.{field.name}" not in query for field in fields):
        return view | {"explanation": None}
    where = [Condition(field.name, "=", read_value(field, query[f"key.{field.name}"])) for field in fields]
    where += [
        Condition(column, "=", read_value(tables.result.schema.field(column), query[column]))
        for column in ("window_start", "window_end", "revision")
        if query.get(column) and column in tables.result.columns
    ]
    if not _EXPLAINING.acquire(timeout=_STOPPING):
        msg = "another row is being explained: try again when that is done"
        raise InputError(msg)
    try:
        # a run whose checkpoint cannot be read is explained up to the end of its log, and a note says so
        checkpoint = seen.run.checkpoint
        found = explain_row(
            _pipeline(seen.run), name, where, checkpoint=checkpoint, most=_ROWS, is_stopped=is_stopped, option=""
        )
    finally:
        _EXPLAINING.release()
    return view | {"explanation": found.plain()}


def _key_fields(run: WatchedRun, sink: str) -> list[pa.Field]:
    """Return the key fields of a sink's rows, or of their places; empty if they have no key."""
    rows = sink_specs(_pipeline(run))[sink].rows
    return key_fields(rows.key) if rows.has_panes else row_key(rows)


def redrive_letters(run: WatchedRun, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Redrive the dead letters that `asked` selects by `reason` and `partition`, or `all`.

    Unless `dry_run` is false, only return the outcomes that they would have. Raise InputError if nothing is selected;
    errors of `windrow.tools.redrive.copies.redrive` propagate.
    """
    from windrow.tools.redrive.copies import Choice, redrive  # noqa: PLC0415 - the same

    reason, partition = asked.get("reason") or "", asked.get("partition")
    is_partition = partition is None or (type(partition) is int and 0 <= partition < m.MAX_PARTITIONS)
    if not isinstance(reason, str) or not is_partition:
        msg = "reason must be a text, and partition the number of a partition"
        raise InputError(msg)
    if not reason and partition is None and asked.get("all") is not True:
        msg = "choose a reason or a partition, or all"
        raise InputError(msg)
    choice = Choice((reason,) if reason else (), partition)
    is_dry = asked.get("dry_run") is not False
    letters = redrive(_pipeline(run), choice, run.checkpoint, attempts=_ATTEMPTS, dry_run=is_dry)
    return {
        "dry_run": is_dry,
        "outcomes": Counter(letter.outcome for letter in letters),
        "letters": [vars(letter) for letter in letters[:_ROWS]],
        "total": len(letters),
    }


def _pipeline(run: WatchedRun) -> m.Graph:
    if run.pipeline is None:
        msg = f"the pipeline of {run.name} is unknown, and so are its tables: give its file on the command line"
        raise InputError(msg)
    return run.pipeline


def _sink(run: WatchedRun, query: Query) -> tuple[list[str], str, Database, Layout]:
    """Return the names of all sinks, and the name, database and tables of the sink that the query selects."""
    specs = sink_specs(_pipeline(run))
    name = query.get("sink") or next(iter(specs))
    if name not in specs:
        named = f"choose one of {', '.join(specs)}" if any(specs) else "it has a single sink, so leave this out"
        msg = f"the pipeline has no sink {name!r}: {named}"
        raise InputError(msg)
    spec = specs[name]
    if not isinstance(spec.sink, m.TableSink):
        msg = f"the sink {spec.sink.section} {spec.sink.table} has no tables to show"
        raise InputError(msg)
    return list(specs), name, open_database(spec.sink), layout(spec)


def _newest(
    database: Database,
    table: Table,
    order: tuple[str, ...],
    where: list[Condition],
    *,
    limit: int | None,
    reason: str = "",
) -> Generator[dict[str, Any]]:
    """Yield rows as JSON values in descending order, only those whose reason begins with `reason` if it is given."""
    for batch in _batches(database, table, order, where, limit=limit):
        chosen = batch.filter(pc.starts_with(batch.column("reason"), reason)) if reason else batch
        for row in plain_rows(chosen):
            yield dict(zip(chosen.column_names, row, strict=True))


def _batches(
    database: Database,
    table: Table,
    order: tuple[str, ...],
    where: list[Condition],
    *,
    limit: int | None = None,
    columns: tuple[str, ...] = (),
) -> Generator[pa.Table]:
    """Yield batches of rows from a snapshot in descending order, with all columns or only `columns`."""
    with database.snapshot() as snapshot:
        shown = present(snapshot, database, table)
        by = [name for name in order if name in shown.columns]
        if columns:
            shown = only_columns(shown, columns)
        yield from snapshot.rows(shown, by, where, descending=by, limit=limit)


def _of_partition(query: Query) -> list[Condition]:
    text = query.get("partition", "")
    if not text:
        return []
    if not text.isdecimal() or int(text) >= m.MAX_PARTITIONS:
        msg = f"partition={text!r} is not the number of a partition"
        raise InputError(msg)
    return [Condition("partition", "=", int(text))]
