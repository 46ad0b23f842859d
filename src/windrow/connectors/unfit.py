"""Rows that cannot be written to a table. Each becomes a dead letter, and the previous row of its key is deleted.

Such a row does not fit the types of the table's columns, it is refused by the database (for example by a constraint),
or its conversion fails. All of these depend only on the values of the row, so the remaining changelog does not depend
on how the log is divided into steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.database import Condition
from windrow.connectors.tables import Table, plain_rows
from windrow.engine.changelog import StepOutput
from windrow.engine.columns import nullable
from windrow.engine.halving import Failure, compute_in_halves, internal_reason
from windrow.engine.schema import DEAD

Stored = Callable[[Sequence[Condition]], pa.Table]
"""Returns the rows of the result table that satisfy all conditions."""

_PLACE = ("source", "partition", "offset")
_ABOUT = ("pane", "revision")


Reason = Callable[[Exception], str | None]
"""Returns the reason of the dead letter for the row that causes an error; None if no row causes it."""


class RefusedError(Exception):
    """A sink cannot hold a row because of its values; the message is the reason of the dead letter."""


def write_reason(error: Exception) -> str | None:
    """Return the reason of the dead letter for a row whose conversion fails; None if no row causes the error."""
    return str(error) if isinstance(error, RefusedError) else internal_reason("write", error)


def refused_rows(write: Callable[[pa.Table], object], changes: pa.Table, reason: Reason) -> pa.Array:
    """Return the reason why the row of each change cannot be written; null for rows that can be.

    The function `write` tries to write the rows of some changes and keeps nothing. If it fails, each half of the rows
    is tried again, down to single rows. An error without any rows is raised.
    """
    write(changes.slice(0, 0))
    reasons: list[str | None] = []
    for rows, result in compute_in_halves(write, changes, lambda error: reason(error) is not None):
        reasons += [reason(result.error) if isinstance(result, Failure) else None] * len(rows)
    return pa.array(reasons, pa.string())


def writable(write: Callable[[pa.Table], object], output: StepOutput) -> StepOutput:
    """Return a step without the changes that cannot be written."""
    reasons = refused_rows(write, output.changes, write_reason)
    return replace(output, changes=output.changes.filter(reasons.is_null()))


def without_unfit(
    table: Table, output: StepOutput, reasons: pa.Array, stored: Stored, stream: str
) -> tuple[StepOutput, pa.Table]:
    """Replace the rows of a step that do not fit into the result table by dead letters.

    Return the step with these dead letters added, and the dead letters themselves. `reasons` has the reason why the row
    of each change does not fit, null if it fits. `stream` is the stream of the rows. A row that does not fit is
    replaced by the deletion of the previous row of its key, if there is one.
    """
    unfit = reasons.is_valid().to_numpy(zero_copy_only=False)
    is_new = pc.is_in(output.changes["op"], pa.array(["insert", "update_after"])).to_numpy()
    rows = pa.array(np.flatnonzero(unfit & is_new))
    letters = _dead_letters(table, output.changes.take(rows), reasons.take(rows).to_pylist(), stream)
    changes = _remaining(table, output.changes, unfit, stored)
    return replace(output, changes=changes, dead=pa.concat_tables([output.dead, letters])), letters


def without_refused(table: Table, output: StepOutput, reasons: pa.Array, stream: str) -> tuple[StepOutput, pa.Table]:
    """Replace the rows of a step that cannot be written by dead letters, for a sink whose rows cannot be looked up.

    Arguments and result are those of `without_unfit`. In mode accumulate, the changes do not include the previous row.
    Its deletion then has no values besides those of the key, and also follows a row that was refused itself. It may
    have to be left out, too (see `writable`): a key that cannot be written never was.
    """
    changes, refused = output.changes, reasons.is_valid().to_numpy(zero_copy_only=False)
    is_insert, is_before, is_after = (
        pc.equal(changes["op"], op).to_numpy() for op in ("insert", "update_before", "update_after")
    )
    rows = pa.array(np.flatnonzero(refused & (is_insert | is_after)))
    letters = _dead_letters(table, changes.take(rows), reasons.take(rows).to_pylist(), stream)
    # an update_before is directly followed by its update_after
    follows = is_after & np.append(False, is_before[:-1])
    is_first = follows & ~refused & np.append(False, refused[:-1])
    is_last = is_before & ~refused & np.append(refused[1:], False)
    is_blind = is_after & refused & ~follows
    made = {
        "op": pc.if_else(
            pa.array(is_first), "insert", pc.if_else(pa.array(is_last | is_blind), "delete", changes["op"])
        )
    }
    following = pa.array(np.minimum(np.arange(len(refused)) + 1, len(refused) - 1))
    for name in _ABOUT:
        made[name] = pc.if_else(pa.array(is_last), changes[name].take(following), changes[name])
    schema = changes.schema
    if is_blind.any():
        schema = nullable(schema)
        for field in schema:
            if field.name not in {*made, *table.key}:
                made[field.name] = pc.if_else(pa.array(is_blind), pa.scalar(None, field.type), changes[field.name])
    changes = pa.table([made.get(name, changes[name]) for name in schema.names], schema=schema)
    changes = changes.filter(pa.array(~refused | is_blind))
    return replace(output, changes=changes, dead=pa.concat_tables([output.dead, letters])), letters


class LateLetters(NamedTuple):
    """Rows of the late output that can be written, and the dead letters of the others."""

    rows: pa.Table
    letters: pa.Table


def late_letters(late: pa.Table, reasons: pa.Array) -> LateLetters:
    """Divide rows of the late output; `reasons` has the reason why each row cannot be written, or null."""
    refused = late.filter(reasons.is_valid())
    letters = _dead_letters(Table("", late.schema, _PLACE), refused, reasons.drop_null().to_pylist(), "")
    return LateLetters(late.filter(reasons.is_null()), letters)


def with_plain_reasons(dead: pa.Table, which: pa.Array) -> pa.Table:
    r"""Escape the characters beyond ASCII in the reasons of some dead letters, as in ``\u6f22``.

    A reason may quote a record, and the encoding of a database may lack its characters.
    """
    reasons = [
        reason.encode("ascii", "backslashreplace").decode() if is_refused else reason
        for reason, is_refused in zip(dead["reason"].to_pylist(), which.to_pylist(), strict=True)
    ]
    at = dead.schema.get_field_index("reason")
    return dead.set_column(at, dead.schema.field(at), pa.array(reasons, pa.string()))


def _remaining(table: Table, changes: pa.Table, unfit: np.ndarray, stored: Stored) -> pa.Table:
    """Return the remaining changes, plus the deletions of rows whose successor does not fit.

    A deletion has the pane and revision of the row that does not fit. An `update_after` whose `update_before` was
    removed becomes an insert.
    """
    ops = np.array(changes["op"].to_pylist(), dtype=object)
    chosen = np.arange(changes.num_rows)
    kept = np.ones(changes.num_rows, dtype=np.bool_)
    tables, count = [changes], changes.num_rows
    for key, places in _by_key(table, changes, unfit):
        before = _as_changes(stored(key), changes.schema)
        current = count if before.num_rows else None
        tables.append(before)
        count += before.num_rows
        for place, following in pairwise([*places, None]):
            if ops[place] == "update_before":
                if current is None and following is not None:
                    ops[following] = "insert"
                kept[place] = current is not None and not unfit[following]
            elif ops[place] == "delete" or unfit[place]:
                kept[place] = current is not None
                if current is not None and unfit[place]:
                    ops[place], chosen[place] = "delete", current
                current = None
            else:
                current = place
    made = pa.concat_tables(tables).take(pa.array(chosen[kept]))
    about = changes.select(list(_ABOUT)).filter(pa.array(kept))
    columns = {"op": pa.array(ops[kept].tolist(), pa.string()), **{name: about[name] for name in _ABOUT}}
    for name, values in columns.items():
        at = changes.schema.get_field_index(name)
        made = made.set_column(at, changes.schema.field(at), values)
    return made


def _by_key(table: Table, changes: pa.Table, unfit: np.ndarray) -> Iterator[tuple[list[Condition], list[int]]]:
    """Yield each key with a row that does not fit, as conditions, and the positions of all its changes in order."""
    keys = changes.select(list(table.key))
    some = keys.filter(pa.array(unfit))
    # rows that have such a value in each column: few more than the rows of these keys
    masks = (pc.is_in(keys[name], some[name].combine_chunks()).to_numpy() for name in table.key)
    places = np.flatnonzero(np.logical_and.reduce(list(masks)))
    found: dict[tuple[Any, ...], list[int]] = {values: [] for values in _values(some)}
    for place, values in zip(places.tolist(), _values(keys.take(pa.array(places))), strict=True):
        if values in found:
            found[values].append(place)
    for values, changed in found.items():
        yield [Condition(name, "=", value) for name, value in zip(table.key, values, strict=True)], changed


def _values(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield rows as tuples of values; times are in microseconds."""
    columns = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rows.columns)
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _as_changes(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert rows of the result table to deletions. Without pane columns, the pane is on_time and the revision 0."""
    about = {"op": "delete", "pane": "on_time", "revision": 0}
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.repeat(pa.scalar(about[field.name], field.type), rows.num_rows)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _dead_letters(table: Table, rows: pa.Table, reasons: Sequence[str], stream: str) -> pa.Table:
    """Return the dead letters of rows. Records keep their location; for other rows, the reason has window and key."""
    names = [name for name in table.columns if name not in _ABOUT]
    letters = []
    for values, reason in zip(plain_rows(rows.select(names)), reasons, strict=True):
        row = dict(zip(names, values, strict=True))
        has_place = set(_PLACE) <= set(table.key)
        place = {name: row[name] for name in _PLACE} if has_place else {"source": stream}
        at = "" if has_place else f": at {_identity(table, row)}"
        raw = json.dumps(row, ensure_ascii=False).encode()
        letters.append(place | {"reason": f"{reason}{at}", "raw": raw})
    return pa.Table.from_pylist(letters, DEAD)


def _identity(table: Table, row: dict[str, Any]) -> str:
    """Describe a row by its window and key."""
    start, end = m.WINDOW_BOUNDS
    window = [f"window {row[start]} to {row[end]}"] if start in table.key else []
    key = [f"{name}={row[name]}" for name in table.key if name in row and name not in m.WINDOW_BOUNDS]
    return ", ".join([*window, *key])
