"""Runs: rows kept until the watermark has passed their event time by a given time, in blobs that never change."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from windrow.engine.columns import MAX_TIME, pack, to_micros, unpack
from windrow.engine.schema import TIME
from windrow.engine.state.migrate import RowsByKeyGroup, StoredState
from windrow.engine.state.store import BlobStore, MemoryState

Compaction = Callable[[pa.Table, bool], pa.Table]
"""Returns which of the given stored rows to keep; the flag says whether these are all stored rows."""

_GROWTH: Final = 4
"""A run is merged with the previous run unless the previous run has more than this number of times its rows."""


class Run(NamedTuple):
    """The least and greatest event time in a run, its number of rows, and its digest.

    The digest is that of the blob, after the first digits of the digest of the run that began the list.
    """

    least: int
    greatest: int
    rows: int
    digest: str


_CACHED_BYTES: Final = 256 << 20
"""Maximum size of the tables that a thread keeps in memory, in bytes."""
_UNSEEN: Final = 1 << 14
"""A list of runs is forgotten after this number of other lists, as its key group has moved to other processes."""
_LIST_DIGITS: Final = 8
"""Number of digits of a digest that all runs of a list share."""


class _Cache(threading.local):
    """The tables of the runs that this thread used most recently, by digest, because a state store is slow to read.

    Several processes run the steps of a key group, so a run in the cache of one process may be dropped by another
    process. The list of runs in the state reveals this: a run that was in the list, but no longer is, is not needed any
    more. As the digest is that of the content, no result depends on the cache.
    """

    def __init__(self) -> None:
        self._tables: OrderedDict[str, pa.Table] = OrderedDict()
        self._bytes = 0
        self._lists: dict[str, tuple[int, frozenset[str]]] = {}
        """For each list, when it was last seen (the count in `_seen`) and its digests, in the order of the former."""
        self._seen = 0

    def get(self, digest: str) -> pa.Table | None:
        table = self._tables.get(digest)
        if table is not None:
            self._tables.move_to_end(digest)
        return table

    def put(self, digest: str, table: pa.Table) -> None:
        if digest not in self._tables:
            self._tables[digest] = table
            self._bytes += table.nbytes
        while self._bytes > _CACHED_BYTES and len(self._tables) > 1:
            self.drop(next(iter(self._tables)))

    def drop(self, digest: str) -> None:
        table = self._tables.pop(digest, None)
        self._bytes -= 0 if table is None else table.nbytes

    def keep(self, digests: Sequence[str]) -> None:
        """Record what a list of runs is now; drop the tables of runs that are no longer in it."""
        self._seen += 1
        if digests:
            name = digests[0][:_LIST_DIGITS]
            self._forget(name, but=digests)
            self._lists[name] = self._seen, frozenset(digests)
        while self._lists and self._seen - self._lists[oldest := next(iter(self._lists))][0] > _UNSEEN:
            self._forget(oldest)

    def _forget(self, name: str, but: Collection[str] = ()) -> None:
        _, digests = self._lists.pop(name, (0, frozenset[str]()))
        for digest in digests.difference(but):
            self.drop(digest)


_cache = _Cache()


@dataclass
class Runs:
    """Rows in runs: a step adds a run, small runs are merged, and a run is dropped when all of its rows have expired.

    A step therefore writes little more than its own rows, and there are few runs, because their sizes grow
    geometrically. As runs never change, a process caches those that it has used. `kind` is the kind of the blobs.
    """

    kind: str
    runs: dict[int, Run] = field(default_factory=dict)
    next: int = 0

    def read(self, state: BlobStore, least: int = -MAX_TIME, greatest: int = MAX_TIME) -> Iterator[pa.Table]:
        """Yield the rows of each run that may have rows in a range of event times."""
        for number, run in self.runs.items():
            if run.least <= greatest and run.greatest >= least:
                yield self._table(number, state)

    def table(self, rows: pa.Schema, state: BlobStore, least: int = -MAX_TIME, greatest: int = MAX_TIME) -> pa.Table:
        """Return the rows of all runs that may have rows in a range of event times; `rows` is their schema."""
        return pa.concat_tables([rows.empty_table(), *self.read(state, least, greatest)])

    def add(self, rows: pa.Table, after: int, state: BlobStore, compact: Compaction | None = None) -> None:
        """Add a run, and drop runs and rows of merged runs whose time is not greater than `after`.

        The function `compact` returns the rows of merged runs to keep, given these rows and whether they are from all
        runs.
        """
        of_list = next(iter(self._digests), "")[:_LIST_DIGITS]
        for number, run in list(self.runs.items()):
            if run.greatest <= after:
                self._drop(number, state)
        if not rows.num_rows:
            return
        tables, count = [rows], rows.num_rows
        while self.runs:
            number, run = next(reversed(self.runs.items()))
            if run.rows > _GROWTH * count:
                break
            tables.append(self._table(number, state))
            count += run.rows
            self._drop(number, state)
        run_rows = pa.concat_tables(reversed(tables))
        if compact is not None:
            run_rows = compact(run_rows, not self.runs)
            if not run_rows.num_rows:
                return
        times = to_micros(run_rows.column(TIME))
        if int(times.min()) <= after:
            run_rows = run_rows.filter(pa.array(times > after))
            times = to_micros(run_rows.column(TIME))
        if run_rows.num_rows:
            run_rows = run_rows.combine_chunks()
            blob = pack(run_rows)
            digest = of_list + hashlib.blake2b(blob, digest_size=16).hexdigest()
            state.set(self.kind, self.next, blob)
            _cache.put(digest, run_rows)
            self.runs[self.next] = Run(int(times.min()), int(times.max()), run_rows.num_rows, digest)
            self.next += 1
        _cache.keep(self._digests)

    def encode(self) -> dict[str, Any]:
        """Encode the list of runs as plain JSON values."""
        return {"runs": [[number, *run] for number, run in self.runs.items()], "next": self.next}

    @staticmethod
    def decode(kind: str, fields: Any) -> Runs:  # noqa: ANN401 - plain JSON, None at first
        """Decode the output of `encode`."""
        if fields is None:
            return Runs(kind)
        found = Runs(kind, {number: Run(*run) for number, *run in fields["runs"]}, fields["next"])
        _cache.keep(found._digests)
        return found

    @property
    def _digests(self) -> list[str]:
        return [run.digest for run in self.runs.values()]

    def _table(self, number: int, state: BlobStore) -> pa.Table:
        digest = self.runs[number].digest
        table = _cache.get(digest)
        if table is not None:
            return table
        blob = state.get(self.kind, number)
        if blob is None:
            msg = f"run {number} of {self.kind!r} is not in the state"
            raise LookupError(msg)
        table = unpack(blob)
        _cache.put(digest, table)
        return table

    def _drop(self, number: int, state: BlobStore) -> None:
        _cache.drop(self.runs.pop(number).digest)
        state.drop(self.kind, number)


def migrate_runs(
    groups: RowsByKeyGroup, states: Sequence[StoredState], greatest: str | None = None
) -> list[StoredState]:
    """Migrate the states of an operator that keeps only runs; each row moves to the key group of its key.

    The summary may have an additional entry `greatest`; all key groups get the greatest of its values.
    """
    kinds = {kind for summary, _ in states for kind in summary if kind != greatest}
    known = [summary[greatest] for summary, _ in states if greatest in summary]
    more: dict[str, Any] = {greatest: max(known)} if greatest is not None and known else {}
    for _, state in states:
        for (kind, _), blob in state.items():
            groups.add((kind, 0), unpack(blob))
    made: list[StoredState] = []
    for tables in groups.tables():
        runs, store = {kind: Runs(kind) for kind in kinds}, MemoryState()
        for (kind, _), table in tables.items():
            runs[kind].add(table, -MAX_TIME, store)
        made.append(({kind: own.encode() for kind, own in runs.items()} | more, store))
    return made
