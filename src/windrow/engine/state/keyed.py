"""Keyed store: an entry for each key with the times when it is due, in buckets that are read and written as a whole.

It uses extendible hashing (Fagin, Nievergelt, Pippenger, Strong, ACM TODS 4(3), 1979): a bucket with too many keys is
split in two by another bit of the hashes of its keys, and two buckets with few keys are merged again. So every blob is
small enough to be read at once.
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
"""A time later than all others, for keys that are not due."""

MAX_BUCKET_KEYS = 1024
"""A bucket with more keys is split."""

KEYED_KIND: Final = "keys"
_MAX_DEPTH: Final = 32
_BUCKET_SCHEMA: Final = pa.schema(
    [("key", pa.large_string()), ("due", pa.int64()), ("tick", pa.int64()), ("memory", pa.large_binary())]
)


class KeyedEntry(NamedTuple):
    """The stored state of a key, with the event time and the processing time at which it is due."""

    due: int
    tick: int
    blob: bytes


@dataclass
class BucketInfo:
    """A bucket in the index: its number of keys, and the earliest times at which one of them is due."""

    keys: int = 0
    due: int = NEVER
    tick: int = NEVER


class BucketIndex:
    """The buckets of a key group by number, which is a 1 bit followed by the lowest bits of the hashes of the keys."""

    def __init__(self, buckets: dict[int, BucketInfo] | None = None) -> None:
        self.buckets = {1: BucketInfo()} if buckets is None else buckets

    @property
    def keys(self) -> int:
        """The total number of keys."""
        return sum(bucket.keys for bucket in self.buckets.values())

    @property
    def tick(self) -> int:
        """The earliest processing time at which a key is due."""
        return min(bucket.tick for bucket in self.buckets.values())

    def find(self, key: str) -> int:
        """Return the number of the bucket that a key belongs to, even if the key is not stored."""
        hashed = zlib.crc32(key.encode())
        buckets, bit = self.buckets, 1
        while (bit | (hashed & (bit - 1))) not in buckets:
            bit <<= 1
        return bit | (hashed & (bit - 1))

    def encode(self) -> Any:  # noqa: ANN401 - plain JSON
        """Encode the index as plain lists."""
        return [[number, bucket.keys, bucket.due, bucket.tick] for number, bucket in self.buckets.items()]

    @staticmethod
    def decode(rows: Any) -> BucketIndex:  # noqa: ANN401 - plain JSON
        """Decode the output of `encode`."""
        return BucketIndex({number: BucketInfo(keys, due, tick) for number, keys, due, tick in rows})


class OpenBucket:
    """A bucket that a step has read: the stored table, and the entries that the step has put into it.

    Only the keys are converted to Python values; entries that are not read are written back unchanged.
    """

    def __init__(self, stored: pa.Table) -> None:
        self.stored = stored
        self.rows = {key: row for row, key in enumerate(stored.column("key").to_pylist())}
        self.items: dict[str, KeyedEntry | None] = {}
        self._memories = stored.column("memory").combine_chunks()

    def get(self, key: str) -> bytes | None:
        """Return the state that a key had before the step, or None."""
        row = self.rows.get(key)
        return None if row is None else self._memories[row].as_py()

    def put(self, key: str, item: KeyedEntry | None) -> None:
        """Replace a key's entry, or drop it if `item` is None."""
        self.items[key] = item

    def due(self, low: int, now: int | None) -> list[str]:
        """Return the stored keys that are due at the event time `low` or the processing time `now`."""
        due = self.stored.column("due").to_numpy() <= low
        if now is not None:
            due |= self.stored.column("tick").to_numpy() <= now
        return self.stored.column("key").filter(pa.array(due)).to_pylist()  # type: ignore[no-any-return]

    def table(self) -> pa.Table:
        """Return the table to store."""
        stays = np.ones(self.stored.num_rows, dtype=np.bool_)
        stays[[self.rows[key] for key in self.items if key in self.rows]] = False
        return pa.concat_tables([self.stored.filter(pa.array(stays)), _entries_table(self.items)]).combine_chunks()


class KeyedStore:
    """The buckets that a step reads, and that `close` writes."""

    def __init__(self, directory: BucketIndex, state: BlobStore) -> None:
        self._directory = directory
        self._state = state
        self._open: dict[int, OpenBucket] = {}

    def of(self, key: str) -> OpenBucket:
        """Return the bucket of a key."""
        return self._bucket(self._directory.find(key))

    def fill(self, table: pa.Table) -> None:
        """Put the entries of other stores into the only bucket of an empty index, and close it."""
        self._open[1] = OpenBucket(table)
        self.close()

    def due(self, low: int, now: int | None) -> Iterator[str]:
        """Yield the keys that are due at the event time `low` or the processing time `now`."""
        for number, bucket in self._directory.buckets.items():
            if bucket.due <= low or (now is not None and bucket.tick <= now):
                yield from self._bucket(number).due(low, now)

    def close(self) -> None:
        """Write the buckets that were read; split buckets with too many keys, and merge buckets with few keys."""
        tables = {number: bucket.table() for number, bucket in self._open.items()}
        for number in sorted(tables, reverse=True):
            self._balance(number, tables)
        for number, table in tables.items():
            self._directory.buckets[number] = BucketInfo(
                table.num_rows, _least_time(table.column("due")), _least_time(table.column("tick"))
            )
            if table.num_rows:
                self._state.set(KEYED_KIND, number, pack(table))
            else:
                self._state.drop(KEYED_KIND, number)
        self._open = {}

    def _bucket(self, number: int) -> OpenBucket:
        bucket = self._open.get(number)
        if bucket is None:
            bucket = self._open[number] = OpenBucket(self._load(number))
        return bucket

    def _load(self, number: int) -> pa.Table:
        blob = self._state.get(KEYED_KIND, number) if self._directory.buckets[number].keys else None
        return _entries_table({}) if blob is None else unpack(blob)

    def _balance(self, number: int, tables: dict[int, pa.Table]) -> None:
        """Split or merge a bucket, repeatedly if necessary."""
        table = tables.get(number)
        if table is None:
            return
        depth = number.bit_length() - 1
        if table.num_rows > MAX_BUCKET_KEYS and depth < _MAX_DEPTH:
            children = (1 << (depth + 1)) | (number ^ (1 << depth)), (1 << (depth + 1)) | number
            bits = (1 << (depth + 1)) - 1
            hashes = (zlib.crc32(key.encode()) for key in table.column("key").to_pylist())
            buckets = np.array([(1 << (depth + 1)) | (hashed & bits) for hashed in hashes])
            parts = {child: table.filter(pa.array(buckets == child)).combine_chunks() for child in children}
            self._replace([number], parts, tables)
            for child in children:
                self._balance(child, tables)
        elif depth and table.num_rows < MAX_BUCKET_KEYS // 4:
            sibling = number ^ (1 << (depth - 1))
            bucket = self._directory.buckets.get(sibling)
            keys = tables[sibling].num_rows if sibling in tables else bucket.keys if bucket else MAX_BUCKET_KEYS
            if keys + table.num_rows <= MAX_BUCKET_KEYS // 2:
                other = tables[sibling] if sibling in tables else self._load(sibling)
                parent = (1 << (depth - 1)) | (number & ((1 << (depth - 1)) - 1))
                self._replace([number, sibling], {parent: pa.concat_tables([table, other]).combine_chunks()}, tables)
                self._balance(parent, tables)

    def _replace(self, old: Iterable[int], new: dict[int, pa.Table], tables: dict[int, pa.Table]) -> None:
        for number in old:
            tables.pop(number, None)
            del self._directory.buckets[number]
            self._state.drop(KEYED_KIND, number)
        tables |= new
        self._directory.buckets |= {number: BucketInfo() for number in new}


def _least_time(column: pa.ChunkedArray) -> int:
    return int(np.min(column.to_numpy(), initial=NEVER))


def _entries_table(items: dict[str, KeyedEntry | None]) -> pa.Table:
    entries = {key: item for key, item in items.items() if item is not None}
    columns = list(zip(*entries.values(), strict=True)) or [()] * 3
    return pa.table([list(entries), *columns], schema=_BUCKET_SCHEMA)
