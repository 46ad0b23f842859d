"""What a key group remembers of its sessions: atoms in buckets of keys, and when there is something to do in each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from windrow.core.clocks import Clocks
from windrow.core.micros import BEFORE_ALL
from windrow.core.operators.session_atoms import FIRED, ON_TIME, UNSEEN, Atoms, atoms
from windrow.core.operators.session_keys import number_keys
from windrow.core.operators.session_moment import Moment, Numbers, Rules
from windrow.core.packing import pack, unpack
from windrow.core.state import State

BUCKETS: Final = 64
"""A step touches the buckets of its keys, so a small one reads and writes little whatever the number of keys."""
_KIND: Final = "sessions"
_FIELDS: Final = "__fields"
_NEVER: Final = 2**63 - 1


class Bucket(NamedTuple):
    """What the summary knows of a bucket: when to look at it, and how many sessions are open in it.

    `due` is the least low watermark at which something fires or goes; `since` the least processing time from which
    an early pane waits.
    """

    due: int
    since: int
    open: int


@dataclass
class SessionSummary:
    """The small part of the state; `first_tick` is the first processing time that was known.

    Sessions that end by `gone` were forgotten when lateness was shorter than it is now.
    """

    clocks: Clocks
    first_tick: int | None = None
    buckets: dict[int, Bucket] = field(default_factory=dict)
    gone: int = BEFORE_ALL

    def pressing(self, moment: Moment) -> set[int]:
        """Return the buckets in which time alone may make something happen."""
        return {
            number
            for number, bucket in self.buckets.items()
            if bucket.due <= moment.low
            or (moment.end and bucket.open)
            or (moment.due is not None and bucket.since <= moment.due)
        }

    def encode(self) -> bytes:
        """Write as JSON."""
        return json.dumps(
            {
                "clocks": self.clocks.encode(),
                "first_tick": self.first_tick,
                "buckets": [[number, *bucket] for number, bucket in sorted(self.buckets.items())],
                "gone": self.gone,
            }
        ).encode()

    @staticmethod
    def decode(blob: bytes) -> SessionSummary:
        """Read what `encode` wrote."""
        fields = json.loads(blob)
        return SessionSummary(
            Clocks.decode(fields["clocks"]),
            fields["first_tick"],
            {number: Bucket(*rest) for number, *rest in fields["buckets"]},
            fields.get("gone", BEFORE_ALL),
        )


@dataclass(frozen=True)
class Loaded:
    """The atoms of some buckets and their accumulators; the keys of these and of the step, and the bucket of each."""

    atoms: Atoms
    values: pa.Table
    keys: pa.Table
    buckets: Numbers


class StoredSessions:
    """Reads and writes atoms by bucket: a table of key, accumulators and the fields of atoms each."""

    def __init__(self, rules: Rules, no_keys: pa.Table, no_values: pa.Table) -> None:
        self._rules = rules
        self._keys = no_keys.column_names
        self._values = no_values.column_names
        self._no_rows = pa.table(
            {
                **dict(zip(no_keys.column_names, no_keys.columns, strict=True)),
                **dict(zip(no_values.column_names, no_values.columns, strict=True)),
                _FIELDS: _to_column(atoms(0)),
            }
        )

    def load(
        self, state: State, summary: SessionSummary, touched: Iterable[int], keys: pa.Table, buckets: Numbers
    ) -> Loaded:
        """Read some buckets; the keys of a step keep their numbers."""
        tables, numbers, lengths = [self._no_rows], [], []
        for bucket in sorted(touched):
            blob = state.get(_KIND, bucket)
            if blob is not None:
                tables.append(unpack(blob))
                numbers.append(bucket)
                lengths.append(tables[-1].num_rows)
        rows = pa.concat_tables(tables)
        of, together = number_keys(pa.concat_tables([keys, rows.select(self._keys)]))
        of = of[keys.num_rows :]
        bucket_of = np.concatenate([buckets, np.zeros(together.num_rows - len(buckets), dtype=np.int64)])
        bucket_of[of] = np.repeat(np.array(numbers, dtype=np.int64), lengths)
        loaded = _from_column(rows.column(_FIELDS))
        loaded["key"] = of
        if summary.first_tick is not None:
            # what came before the first tick counts from it
            loaded["since"] = np.maximum(loaded["since"], summary.first_tick)
        return Loaded(loaded, rows.select(self._values), together, bucket_of)

    def save(self, state: State, summary: SessionSummary, touched: Iterable[int], left: Loaded) -> None:
        """Write what is left in some buckets, and note when there is something to do in them."""
        buckets = left.buckets[left.atoms["key"]]
        order = np.argsort(buckets, kind="stable")
        there, firsts = np.unique(buckets[order], return_index=True)
        lengths = np.diff(firsts, append=len(order))
        its_atoms = left.atoms[order]
        keys = left.keys.take(pa.array(np.ascontiguousarray(its_atoms["key"])))
        values = left.values.take(pa.array(order))
        rows = pa.table([*keys.columns, *values.columns, _to_column(its_atoms)], names=self._no_rows.column_names)
        rows = rows.combine_chunks()
        for bucket in set(touched) - set(there.tolist()):
            summary.buckets.pop(bucket, None)
            state.drop(_KIND, bucket)
        looks = self._look(its_atoms, firsts, summary.clocks.low)
        for bucket, first, length, look in zip(there.tolist(), firsts.tolist(), lengths.tolist(), looks, strict=True):
            state.set(_KIND, bucket, pack(rows.slice(first, length)))
            summary.buckets[bucket] = look

    def put(self, state: State, summary: SessionSummary, bucket: int, rows: pa.Table, *, now: bool) -> None:
        """Store a bucket's rows as another state held them; with `now` the next step looks at them, whatever is due."""
        low = summary.clocks.low
        (look,) = self._look(_from_column(rows.column(_FIELDS)), np.array([0]), low)
        state.set(_KIND, bucket, pack(rows.select(self._no_rows.column_names)))
        summary.buckets[bucket] = look._replace(due=low) if now else look

    def _look(self, its_atoms: Atoms, firsts: Numbers, low: int) -> list[Bucket]:
        """Return when there is something to do in each bucket; `firsts` is where their atoms begin."""
        if len(firsts) == 0:
            return []
        ends = its_atoms["closes"] + self._rules.gap
        is_open = (its_atoms["role"] == ON_TIME) & (ends > low)
        goes = its_atoms["end"] + self._rules.gap + self._rules.lateness
        # a row that could go but for an open session beside it is looked at when that fires
        goes = np.where((its_atoms["seen"] != UNSEEN) & (goes > low), goes, _NEVER)
        due = np.minimum(np.where(is_open, ends, _NEVER), goes)
        since = np.where(is_open & (its_atoms["seen"] == UNSEEN), its_atoms["since"], _NEVER)
        unfired = (is_open & (its_atoms["seen"] != FIRED)).astype(np.int64)
        columns = (
            np.minimum.reduceat(due, firsts),
            np.minimum.reduceat(since, firsts),
            np.add.reduceat(unfired, firsts),
        )
        return [Bucket(*one) for one in zip(*(column.tolist() for column in columns), strict=True)]


def bucket_of(keys: pa.Table) -> Numbers:
    """Return the bucket of each of some keys, by a hash of their text: it is the same on every machine."""
    plain = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in keys.columns)
    texts = zip(*(map(str, column.to_pylist()) for column in plain), strict=True)
    return np.array([crc32("\0".join(text).encode()) % BUCKETS for text in texts], dtype=np.int64)


def _to_column(given: Atoms) -> pa.Array:
    """Return atoms as one column of bytes: a table of a few rows costs what its columns cost."""
    given = given.copy()
    given["key"] = 0  # it is the step's number of it
    return pa.Array.from_buffers(pa.binary(given.itemsize), len(given), [None, pa.py_buffer(given)])


def _from_column(column: pa.ChunkedArray) -> Atoms:
    """Read what `_to_column` wrote."""
    array = column.combine_chunks()
    kind = atoms(0).dtype
    read = np.frombuffer(array.buffers()[1] or b"", dtype=kind)
    return read[array.offset : array.offset + len(array)].copy()
