"""Keyed store: one entry for each key, in buckets that are read and written whole, with the times when keys are due.

Extendible hashing (Fagin, Nievergelt, Pippenger, Strong, ACM TODS 4(3), 1979): a bucket with too many keys is split in
two by one more bit of the keys' hash, and two with few keys are joined again. So a blob is never larger than can be
read at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from windrow.engine.columns import pack, unpack
from windrow.engine.state.store import BlobStore

NEVER: Final = 2**63 - 1
"""Later than everything."""

MAX_BUCKET_KEYS = 1024
"""A bucket with more keys is split."""

KEYED_KIND: Final = "keys"
_MAX_DEPTH: Final = 32
_BUCKET_SCHEMA: Final = pa.schema(
    [("key", pa.large_string()), ("due", pa.int64()), ("tick", pa.int64()), ("memory", pa.large_binary())]
)


class KeyedEntry(NamedTuple):
    """A key's state as it is stored, and when it is due: by event time, and by processing time."""

    due: int
    tick: int
    blob: bytes


@dataclass
class BucketInfo:
    """A bucket in the index: its number of keys, and when the first of them is due."""

    keys: int = 0
    due: int = NEVER
    tick: int = NEVER


class BucketIndex:
    """The buckets of a key group by number: a one, and below it the lowest bits of the hashes of its keys."""

    def __init__(self, buckets: dict[int, BucketInfo] | None = None) -> None:
        self.buckets = {1: BucketInfo()} if buckets is None else buckets

    @property
    def keys(self) -> int:
        """The number of keys."""
        return sum(bucket.keys for bucket in self.buckets.values())

    def find(self, key: str) -> int:
        """Return the number of the bucket that a key is in, or would be."""
        hashed = zlib.crc32(key.encode())
        buckets, bit = self.buckets, 1
        while (bit | (hashed & (bit - 1))) not in buckets:
            bit <<= 1
        return bit | (hashed & (bit - 1))

    def encode(self) -> Any:  # noqa: ANN401 - plain JSON
        """Return plain lists."""
        return [[number, bucket.keys, bucket.due, bucket.tick] for number, bucket in self.buckets.items()]

    @staticmethod
    def decode(rows: Any) -> BucketIndex:  # noqa: ANN401 - plain JSON
        """Read what `encode` returned."""
        return BucketIndex({number: BucketInfo(keys, due, tick) for number, keys, due, tick in rows})


class OpenBucket:
    """A bucket that a step has read: its table as it was stored, and the entries that have been put since.

    Only the keys become Python values; entries that are not read are written back unchanged.
    """

    def __init__(self, stored: pa.Table) -> None:
        self.stored = stored
        self.rows = {key: row for row, key in enumerate(stored.column("key").to_pylist())}
        self.items: dict[str, KeyedEntry | None] = {}
        self._memories = stored.column("memory").combine_chunks()

    def get(self, key: str) -> bytes | None:
        """Return a key's state as it was stored before the step, or None."""
        row = self.rows.get(key)
        return None if row is None else self._memories[row].as_py()

    def put(self, key: str, item: KeyedEntry | None) -> None:
        """Replace a key's entry, or drop it."""
        self.items[key] = item

    def due(self, low: int, now: int | None) -> list[str]:
        """Return the stored keys for which something is due by then."""
        due = self.stored.column("due").to_numpy() <= low
        if now is not None:
            due |= self.stored.column("tick").to_numpy() <= now
        return self.stored.column("key").filter(pa.array(due)).to_pylist()  # type: ignore[no-any-return]

    def table(self) -> pa.Table:
        """Return the bucket as it is to be stored."""
        stays = np.ones(self.stored.num_rows, dtype=np.bool_)
        stays[[self.rows[key] for key in self.items if key in self.rows]] = False
        return pa.concat_tables([self.stored.filter(pa.array(stays)), _entries_table(self.items)]).combine_chunks()


class KeyedStore:
    """The buckets that one step reads, and writes with `close`."""

    def __init__(self, directory: BucketIndex, state: BlobStore) -> None:
        self._directory = directory
        self._state = state
        self._open: dict[int, OpenBucket] = {}

    def of(self, key: str) -> OpenBucket:
        """Return the bucket of a key."""
        return self._shelf(self._directory.find(key))

    def fill(self, table: pa.Table) -> None:
        """Put keys of other stores into the one bucket of an empty index, and close it."""
        self._open[1] = OpenBucket(table)
        self.close()

    def due(self, low: int, now: int | None) -> Iterator[str]:
        """Go through the keys for which something is due by then, by event time or by processing time."""
        for number, about in self._directory.buckets.items():
            if about.due <= low or (now is not None and about.tick <= now):
                yield from self._shelf(number).due(low, now)

    def close(self) -> None:
        """Write the buckets that were read; split those with too many keys, join those with few."""
        tables = {number: bucket.table() for number, bucket in self._open.items()}
        for number in sorted(tables, reverse=True):
            self._settle(number, tables)
        for number, table in tables.items():
            self._directory.buckets[number] = BucketInfo(
                table.num_rows, _least_time(table.column("due")), _least_time(table.column("tick"))
            )
            if table.num_rows:
                self._state.set(KEYED_KIND, number, pack(table))
            else:
                self._state.drop(KEYED_KIND, number)
        self._open = {}

    def _shelf(self, number: int) -> OpenBucket:
        bucket = self._open.get(number)
        if bucket is None:
            bucket = self._open[number] = OpenBucket(self._stored(number))
        return bucket

    def _stored(self, number: int) -> pa.Table:
        blob = self._state.get(KEYED_KIND, number) if self._directory.buckets[number].keys else None
        return _entries_table({}) if blob is None else unpack(blob)

    def _settle(self, number: int, tables: dict[int, pa.Table]) -> None:
        """Split or join a bucket, repeatedly if need be."""
        table = tables.get(number)
        if table is None:
            return
        depth = number.bit_length() - 1
        if table.num_rows > MAX_BUCKET_KEYS and depth < _MAX_DEPTH:
            self._replace([number], _split(number, table), tables)
            for part in _children(number):
                self._settle(part, tables)
        elif depth and table.num_rows < MAX_BUCKET_KEYS // 4:
            sibling = number ^ (1 << (depth - 1))
            about = self._directory.buckets.get(sibling)
            keys = tables[sibling].num_rows if sibling in tables else about.keys if about else MAX_BUCKET_KEYS
            if keys + table.num_rows <= MAX_BUCKET_KEYS // 2:
                other = tables[sibling] if sibling in tables else self._stored(sibling)
                parent = (1 << (depth - 1)) | (number & ((1 << (depth - 1)) - 1))
                self._replace([number, sibling], {parent: pa.concat_tables([table, other]).combine_chunks()}, tables)
                self._settle(parent, tables)

    def _replace(self, old: Iterable[int], new: dict[int, pa.Table], tables: dict[int, pa.Table]) -> None:
        for number in old:
            tables.pop(number, None)
            del self._directory.buckets[number]
            self._state.drop(KEYED_KIND, number)
        tables |= new
        self._directory.buckets |= {number: BucketInfo() for number in new}


def _least_time(column: pa.ChunkedArray) -> int:
    return int(np.min(column.to_numpy(), initial=NEVER))


def _child_of(number: int, hashed: int) -> int:
    """Return the bucket that a hash belongs to after a split."""
    depth = number.bit_length()
    return (1 << depth) | (hashed & ((1 << depth) - 1))


def _children(number: int) -> tuple[int, int]:
    depth = number.bit_length() - 1
    low = number ^ (1 << depth)
    return (1 << (depth + 1)) | low, (1 << (depth + 1)) | (1 << depth) | low


def _split(number: int, table: pa.Table) -> dict[int, pa.Table]:
    buckets = np.array([_child_of(number, zlib.crc32(key.encode())) for key in table.column("key").to_pylist()])
    return {child: table.filter(pa.array(buckets == child)).combine_chunks() for child in _children(number)}


def _entries_table(items: dict[str, KeyedEntry | None]) -> pa.Table:
    there = {key: item for key, item in items.items() if item is not None}
    columns = list(zip(*there.values(), strict=True)) or [()] * 3
    return pa.table([list(there), *columns], schema=_BUCKET_SCHEMA)
