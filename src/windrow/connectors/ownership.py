"""Ownership of tables: which run may write, clear or promote them, and the guarantee that each step is written once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from windrow.connectors.database import Replayed
from windrow.connectors.sink import Follows, Run
from windrow.connectors.tables import Table, quote, utc_text
from windrow.engine.schema import DEAD, MICROS
from windrow.errors import InputError, SinkError
from windrow.expressions import SinkSpec

CHOICES = (
    "to rewrite it, add --fresh, which removes its rows; to resume, use the --checkpoint with which it was written "
    "(a run with --host memory or batch has none); or choose another table"
)

_WIDER = {("INTEGER", "NUMERIC"), ("INTEGER", "TEXT"), ("INTEGER", ""), ("NUMERIC", "")}
"""Pairs of types where a column of the first type can be changed to the second without loss."""
_KEPT = {("NUMERIC", "")}
"""Pairs of a type of earlier versions and its replacement, where the old type is kept; rows that do not fit into such a
column become dead letters."""
_DIGITS = re.compile(r"(?:DECIMAL|numeric)\((\d+),(\d+)\)")
_MOST_DIGITS = 38
"""Maximum number of digits of a decimal in a pipeline."""


def is_new(epoch: int, last: int | None, table: str) -> bool:
    """Return True if a step is the next to be committed, False if it was already committed.

    Raise SinkError if steps before it are missing.
    """
    expected = 0 if last is None else last + 1
    if epoch > expected or epoch < 0:
        msg = (
            f"table {table!r} received step {epoch} but expects step {expected}: the rows between are missing "
            f"(was the database restored from a backup, or the table dropped?); start over with --fresh"
        )
        raise SinkError(msg)
    return epoch == expected


EPOCHS_KEPT = 1_000
"""Minimum number of a run's latest epochs that are kept. Fewer than twice as many are ever stored."""


def last_to_forget(epoch: int) -> int | None:
    """Return the last epoch to delete from the fence when a step is committed; None for most steps.

    Old epochs can be deleted because all readers of the fence need only a run's last epoch: `is_new`, resuming a run,
    savepoints and replays.
    """
    return epoch - EPOCHS_KEPT if epoch >= EPOCHS_KEPT and epoch % EPOCHS_KEPT == 0 else None


def still_opened(opener: str, last: str | None, table: str) -> None:
    """Raise SinkError if another sink has opened the tables for the same run since this sink did."""
    if opener != last:
        msg = (
            f"table {table!r} was opened by another process of the same run, which has replaced this one; what was "
            "committed stays: run one process at a time with a checkpoint"
        )
        raise SinkError(msg)


@dataclass(frozen=True)
class Origin:
    """The origin of a table: the stream that its rows come from, and whether its changelog is written.

    A sink stores the origin beside the table. If the table's run has continued without the table, `left_after` is the
    last epoch of the run before that (-1 if there was none). In this case, the stream is empty if an older version
    wrote the table.
    """

    stream: str
    changelog: bool = True
    left_after: int | None = None

    @staticmethod
    def of(spec: SinkSpec) -> Origin:
        """Return the origin that a sink's table should have."""
        return Origin(spec.stream, spec.sink.changelog)

    def text(self) -> str:
        """Serialize the origin as JSON."""
        return json.dumps({"stream": self.stream, "changelog": self.changelog})

    @staticmethod
    def read(text: str | None) -> Origin | None:
        """Parse the result of `text`; None for a missing text."""
        return Origin(**json.loads(text)) if text else None


@dataclass(frozen=True)
class FoundTables:
    """What a database contains before a run opens it.

    `owner` is the run that owns the result table, and `owner_last` the last epoch of that run. `last` is the last epoch
    of the run that opens the database, and `elsewhere` is another result table that this run owns. `present` lists the
    pipeline's tables that exist, and `filled` those with rows. `origin` is the origin of the result table, None if an
    older version wrote it.
    """

    owner: Run | None
    owner_last: int | None
    last: int | None
    elsewhere: str | None
    present: Sequence[str]
    filled: Sequence[str]
    origin: Origin | None = None


def authorize(
    run: Run, tables: Sequence[Table], found: FoundTables, follows: Follows | None = None, origin: Origin | None = None
) -> bool:
    """Return True if the tables are handed over to `run` by the run that it follows.

    `tables` starts with the result table. Raise SinkError if the run may not write rows of `origin` to the tables.
    """
    is_handed_over = _authorize(run, tables, found, follows)
    if origin is not None and found.origin is not None and (is_handed_over or found.owner == run):
        _refuse_other_origin(tables[0].name, found, found.origin, origin)
    return is_handed_over


def _refuse_other_origin(table: str, found: FoundTables, before: Origin, now: Origin) -> None:
    """Raise SinkError if the table has steps and would get rows of a different stream, or lacks steps."""
    last = found.last if found.owner_last is None else found.owner_last
    if last is None:
        return
    if before.stream not in {"", now.stream}:
        msg = (
            f"table {table!r} has the rows of {before.stream!r}, and those of {now.stream!r} would be mixed with them: "
            f"write {before.stream!r} to it as before, or give {now.stream!r} another table and start over with --fresh"
        )
    elif before.left_after is not None and before.left_after < last:
        msg = (
            f"the run continued without table {table!r}, which lacks steps {before.left_after + 1} to {last}: "
            f"leave its sink out, or start over with --fresh"
        )
    elif now.changelog and not before.changelog:
        msg = (
            f"table {table!r} was written without its changelog, which would lack the steps up to {last}: keep "
            f"`changelog: false`, or start over with --fresh"
        )
    else:
        return
    raise SinkError(msg)


def _authorize(run: Run, tables: Sequence[Table], found: FoundTables, follows: Follows | None) -> bool:
    table = tables[0].name
    missing = [table.name for table in tables if table.name not in found.present]
    if follows is not None and found.owner != run and found.last is None:
        _may_follow(follows, table, found, missing)
        return True
    if found.owner == run:
        if found.last is not None and missing:
            msg = (
                f"table {missing[0]!r} is gone, but this run has committed steps 0 to {found.last} to it: "
                f"restore it, or start over with --fresh"
            )
            raise SinkError(msg)
    elif found.last is not None:
        if found.elsewhere is None and found.owner is None and not found.present:
            msg = (
                f"table {table!r} is new, and would lack steps 0 to {found.last}, which this run has committed: {_NEW}"
            )
        elif found.elsewhere is None:
            msg = (
                f"table {table!r} was handed over to another run, which resumes from a savepoint of this checkpoint's "
                f"run, or its tables were removed: continue with that run's --checkpoint, or start over with --fresh"
            )
        else:
            msg = (
                f"this checkpoint's run has committed steps 0 to {found.last} to other tables (of "
                f"{found.elsewhere!r}), and {table!r} would lack them: use the table that it began with; if `windrow "
                f"promote` replaced that table, resume from the replay's savepoint (run --from-savepoint) with "
                f"another --checkpoint, or promote {found.elsewhere!r} to undo that; or start over with --fresh"
            )
        raise SinkError(msg)
    elif found.owner is not None and found.present and (found.filled or found.owner_last is not None):
        if found.owner.pipeline == run.pipeline:
            msg = f"table {table!r} holds the rows of another run of pipeline {run.pipeline!r}: {CHOICES}"
        else:
            msg = f"table {table!r} belongs to pipeline {found.owner.pipeline!r}: choose another table"
        raise SinkError(msg)
    elif found.owner is None and found.filled:
        raise SinkError(_foreign(found.filled[0]))
    return False


_NEW = "leave its sink out, or read the log again into new tables (`windrow replay`, or --fresh)"
"""Advice for a table that the run has not written to before."""


def _may_follow(follows: Follows, table: str, found: FoundTables, missing: Sequence[str]) -> None:
    """Raise SinkError unless all tables exist, belong to the run that is followed, and are at its epoch."""
    if found.owner is None and not found.present:
        msg = (
            f"table {table!r} does not exist, but this run resumes from a savepoint: use the table that the savepoint "
            f"belongs to (a replay's is its shadow until it is promoted); a new one would lack the steps up to "
            f"{follows.epoch}: {_NEW}"
        )
        raise SinkError(msg)
    if found.owner != follows.run or missing:
        whose = f"table {missing[0]!r} does not exist" if missing else f"table {table!r} belongs to another run"
        msg = (
            f"{whose}, but this run resumes from a savepoint whose rows are in {table!r}: use the table that the "
            f"savepoint belongs to (a replay's is its shadow until it is promoted)"
        )
        raise SinkError(msg)
    if found.owner_last != follows.epoch:
        msg = (
            f"table {table!r} is at epoch {found.owner_last}, but the savepoint is at epoch {follows.epoch}: the rows "
            f"between would be written twice or be missing; take a savepoint at the table's epoch, or restore the "
            f"tables as of the savepoint"
        )
        raise SinkError(msg)


def may_clear(pipeline: str, table: str, found: FoundTables) -> None:
    """Raise SinkError unless the pipeline may drop the table and its companions."""
    if found.owner is None and found.filled:
        raise SinkError(_foreign(found.filled[0]))
    if found.owner is not None and found.owner.pipeline != pipeline and found.present:
        msg = f"table {table!r} belongs to pipeline {found.owner.pipeline!r}: choose another table"
        raise SinkError(msg)


def still_owned(run: Run, owner: Run | None, table: str) -> None:
    """Raise SinkError if the table was handed over to another run after this run started."""
    if owner != run:
        msg = (
            f"table {table!r} was taken over by another run while this one was writing, and this step is not in it: "
            f"{CHOICES}; if `windrow promote` replaced it by a replay, resume from the replay's savepoint "
            f"(run --from-savepoint, with another --checkpoint), or promote again to undo that"
        )
        raise SinkError(msg)


@dataclass(frozen=True)
class Existing:
    """The schema of an existing table.

    `types` maps each column to its type as the database spells it, `key` is the primary key, `required` are the columns
    that are NOT NULL, and `filled` are the columns for which the database has a value if none is given. `alter` returns
    the statements that change the type of a column, and make it nullable if it should be.
    """

    types: Mapping[str, str]
    key: Sequence[str]
    required: Collection[str]
    filled: Collection[str]
    alter: Callable[[Table, str, str], str]


class SchemaMismatch(NamedTuple):
    """A difference between an existing table and the expected schema, with the statements that fix it, if any."""

    what: str
    statements: str = ""
    advice: str = "alter it"


def schema_mismatches(table: Table, expected: Mapping[str, str], existing: Existing) -> Iterator[SchemaMismatch]:
    """Yield the differences between an existing table and the expected columns, types and primary key.

    A column is also a mismatch if it is NOT NULL but the pipeline can write null to it. Users may add columns that the
    pipeline does not write, which must be nullable or have a default.
    """
    actual, named = existing.types, quote(table.name)
    for name, type_ in expected.items():
        if name not in actual:
            statement = f"ALTER TABLE {named} ADD COLUMN {quote(name)} {type_}".rstrip()
            yield SchemaMismatch(f"table {table.name!r} has no column {name!r} ({type_ or 'untyped'})", statement)
        elif actual[name] != type_ and not _is_kept(actual[name], type_):
            what = f"column {name!r} of table {table.name!r} is {actual[name] or 'untyped'}, not {type_ or 'untyped'}"
            if _is_array(actual[name]) != _is_array(type_):
                form = "array" if _is_array(actual[name]) else "json"
                yield SchemaMismatch(what, advice=f"set `lists: {form}` in the sink")
                continue
            yield SchemaMismatch(what, existing.alter(table, name, type_) if _is_wider(type_, actual[name]) else "")
        elif name in existing.required and table.schema.field(name).nullable:
            what = f"column {name!r} of table {table.name!r} is NOT NULL, but the pipeline can write null there"
            yield SchemaMismatch(what, existing.alter(table, name, type_))
    for name in actual:
        if name not in expected and name in existing.required and name not in existing.filled:
            what = (
                f"table {table.name!r} has a column {name!r} that the pipeline does not write, and that is NOT NULL "
                f"without a default"
            )
            yield SchemaMismatch(what, f"ALTER TABLE {named} DROP COLUMN {quote(name)}")
    if table.key and set(existing.key) != set(table.key):
        key = ", ".join(existing.key) or "missing"
        yield SchemaMismatch(f"the primary key of table {table.name!r} is {key}, not {', '.join(table.key)}")


def relaxable(table: Table, required: Collection[str]) -> list[str]:
    """Return the NOT NULL columns that a run makes nullable when it opens a table.

    These are the columns with the locations of dead letters, which were required in earlier versions.
    """
    return [name for name in ("partition", "offset") if name in required and table.schema.equals(DEAD)]


def _is_kept(actual: str, type_: str) -> bool:
    """Whether a column keeps the type that an earlier version gave it."""
    if _is_array(actual) and _is_array(type_):
        return _is_kept(actual.removesuffix(_ARRAY), type_.removesuffix(_ARRAY))
    return (actual, type_) in _KEPT or (actual == "numeric" and type_.startswith("numeric("))


_ARRAY = "[]"


def _is_array(type_: str) -> bool:
    return type_.endswith(_ARRAY)


def _is_wider(type_: str, than: str) -> bool:
    """Whether a type can represent all values of another type without loss.

    Of decimals with the most digits, those with more digits after the point have fewer before it. A database that
    alters the column refuses values that would not fit.
    """
    if _is_array(type_) and _is_array(than):
        return _is_wider(type_.removesuffix(_ARRAY), than.removesuffix(_ARRAY))
    digits = [(19, 0) if name.upper() == "BIGINT" else _digits(name) for name in (type_, than)]
    if (than, type_) in _WIDER or None in digits:
        return (than, type_) in _WIDER
    (whole, scale), (least, least_scale) = (digit for digit in digits if digit is not None)
    return scale >= least_scale and (whole >= least or whole + scale == _MOST_DIGITS)


def _digits(type_: str) -> tuple[int, int] | None:
    """Return the number of digits before and after the decimal point that a type declares; None for other types."""
    found = _DIGITS.fullmatch(type_)
    return None if found is None else (int(found[1]) - int(found[2]), int(found[2]))


def refuse(found: Sequence[SchemaMismatch]) -> None:
    """Raise SinkError if there are mismatches; include the statements that fix them if every mismatch has some."""
    if not found:
        return
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    statements = [mismatch.statements for mismatch in found]
    how = f" ({'; '.join(statements)})" if all(statements) else ""
    msg = f"{found[0].what}{more}: {found[0].advice}, choose another table, or start over with --fresh{how}"
    raise SinkError(msg)


def _foreign(table: str) -> str:
    return f"table {table!r} holds rows that windrow did not write: choose another table, or empty this one"


def may_promote(
    pipeline: str, tables: tuple[str, str], owners: tuple[Run | None, Run | None], replayed: Replayed | None
) -> None:
    """Raise an error unless the second table may replace the first. An owner is None if its table does not exist."""
    live, shadow = tables
    if owners[1] is None:
        msg = f"there is no table {shadow!r} to promote: create one with `windrow replay`, or set it with --from"
        raise InputError(msg)
    for table, owner in zip(tables, owners, strict=True):
        if owner is not None and owner.pipeline != pipeline:
            msg = f"table {table!r} belongs to pipeline {owner.pipeline!r}, not {pipeline!r}: choose another table"
            raise SinkError(msg)
    if replayed is None:
        return
    if not replayed.finished:
        msg = f"the replay into {shadow!r} has not finished: replay again with --fresh, then promote"
    elif replayed.since is not None:
        since = utc_text(pa.array([replayed.since], pa.int64()).cast(MICROS))[0]
        msg = (
            f"{shadow!r} has only windows that end after {since}, so {live!r} would lose the earlier windows: "
            f"replay from the beginning with --fresh, then promote"
        )
    elif replayed.begin is not None:
        msg = (
            f"{shadow!r} was replayed from given offsets and lacks the records before them, as {live!r} would then: "
            f"replay from the beginning with --fresh, then promote; if the log no longer has it, keep the live table"
        )
    else:
        return
    raise SinkError(msg)
