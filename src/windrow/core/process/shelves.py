"""The keys of a key group on shelves: each shelf is one blob, and grows no further than can be read in one go.

A shelf that has too many keys becomes two, by one more bit of the keys' hash; two that have few become one again
(extendible hashing: Fagin, Nievergelt, Pippenger and Strong, ACM TODS 4(3), 1979).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from windrow.core.packing import pack, unpack
from windrow.core.process.memory import NEVER
from windrow.core.state import State

MOST_KEYS = 1024
"""A shelf with more keys is split."""

KEYS: Final = "keys"
_DEEPEST: Final = 32
_SCHEMA: Final = pa.schema(
    [("key", pa.large_string()), ("due", pa.int64()), ("tick", pa.int64()), ("memory", pa.large_binary())]
)


class Item(NamedTuple):
    """A key's memory as it is stored, and when something is due in it: by event time, and by processing time."""

    due: int
    tick: int
    blob: bytes


@dataclass
class Shelf:
    """What is known of a shelf without taking it down."""

    keys: int = 0
    due: int = NEVER
    tick: int = NEVER


class Directory:
    """All shelves of a key group by number: a one, and below it the lowest bits of the hashes of its keys."""

    def __init__(self, shelves: dict[int, Shelf] | None = None) -> None:
        self.shelves = {1: Shelf()} if shelves is None else shelves

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return sum(shelf.keys for shelf in self.shelves.values())

    def find(self, key: str) -> int:
        """Return the number of the shelf that a key is on, or would be."""
        hashed = zlib.crc32(key.encode())
        shelves, bit = self.shelves, 1
        while (bit | (hashed & (bit - 1))) not in shelves:
            bit <<= 1
        return bit | (hashed & (bit - 1))

    def encode(self) -> Any:  # noqa: ANN401 - plain JSON
        """Return plain lists."""
        return [[number, shelf.keys, shelf.due, shelf.tick] for number, shelf in self.shelves.items()]

    @staticmethod
    def decode(rows: Any) -> Directory:  # noqa: ANN401 - plain JSON
        """Read what `encode` returned."""
        return Directory({number: Shelf(keys, due, tick) for number, keys, due, tick in rows})


class Open:
    """A shelf that was taken down: its table as it was stored, and the items that have been put in it since.

    Only the keys become Python values; what nobody asks for goes back as it came.
    """

    def __init__(self, stored: pa.Table) -> None:
        self.stored = stored
        self.rows = {key: row for row, key in enumerate(stored.column("key").to_pylist())}
        self.items: dict[str, Item | None] = {}
        self._memories = stored.column("memory").combine_chunks()

    def get(self, key: str) -> bytes | None:
        """Return a key's memory as it was stored before the step."""
        row = self.rows.get(key)
        return None if row is None else self._memories[row].as_py()

    def put(self, key: str, item: Item | None) -> None:
        """Store a key, or forget it."""
        self.items[key] = item

    def due(self, low: int, now: int | None) -> list[str]:
        """Return the stored keys for which something is due by then."""
        due = self.stored.column("due").to_numpy() <= low
        if now is not None:
            due |= self.stored.column("tick").to_numpy() <= now
        return self.stored.column("key").filter(pa.array(due)).to_pylist()  # type: ignore[no-any-return]

    def table(self) -> pa.Table:
        """Return the shelf as it is to be stored."""
        stays = np.ones(self.stored.num_rows, dtype=np.bool_)
        stays[[self.rows[key] for key in self.items if key in self.rows]] = False
        return pa.concat_tables([self.stored.filter(pa.array(stays)), _table(self.items)]).combine_chunks()


class Shelves:
    """The shelves that one step takes down, and puts back with `close`."""

    def __init__(self, directory: Directory, state: State) -> None:
        self._directory = directory
        self._state = state
        self._open: dict[int, Open] = {}

    def of(self, key: str) -> Open:
        """Return the shelf of a key."""
        return self._shelf(self._directory.find(key))

    def fill(self, table: pa.Table) -> None:
        """Put keys that other shelves held on the one shelf of an empty directory, and close it."""
        self._open[1] = Open(table)
        self.close()

    def due(self, low: int, now: int | None) -> Iterator[str]:
        """Go through the keys for which something is due by then, by event time or by processing time."""
        for number, about in self._directory.shelves.items():
            if about.due <= low or (now is not None and about.tick <= now):
                yield from self._shelf(number).due(low, now)

    def close(self) -> None:
        """Write the shelves that were taken down; split those with too many keys, join those with few."""
        tables = {number: shelf.table() for number, shelf in self._open.items()}
        for number in sorted(tables, reverse=True):
            self._settle(number, tables)
        for number, table in tables.items():
            self._directory.shelves[number] = Shelf(
                table.num_rows, _least(table.column("due")), _least(table.column("tick"))
            )
            if table.num_rows:
                self._state.set(KEYS, number, pack(table))
            else:
                self._state.drop(KEYS, number)
        self._open = {}

    def _shelf(self, number: int) -> Open:
        shelf = self._open.get(number)
        if shelf is None:
            shelf = self._open[number] = Open(self._stored(number))
        return shelf

    def _stored(self, number: int) -> pa.Table:
        blob = self._state.get(KEYS, number) if self._directory.shelves[number].keys else None
        return _table({}) if blob is None else unpack(blob)

    def _settle(self, number: int, tables: dict[int, pa.Table]) -> None:
        """Split or join a shelf; both go on as long as need be."""
        table = tables.get(number)
        if table is None:
            return
        depth = number.bit_length() - 1
        if table.num_rows > MOST_KEYS and depth < _DEEPEST:
            self._replace([number], _divided(number, table), tables)
            for part in _children(number):
                self._settle(part, tables)
        elif depth and table.num_rows < MOST_KEYS // 4:
            sibling = number ^ (1 << (depth - 1))
            about = self._directory.shelves.get(sibling)
            keys = tables[sibling].num_rows if sibling in tables else about.keys if about else MOST_KEYS
            if keys + table.num_rows <= MOST_KEYS // 2:
                other = tables[sibling] if sibling in tables else self._stored(sibling)
                parent = (1 << (depth - 1)) | (number & ((1 << (depth - 1)) - 1))
                self._replace([number, sibling], {parent: pa.concat_tables([table, other]).combine_chunks()}, tables)
                self._settle(parent, tables)

    def _replace(self, old: Iterable[int], new: dict[int, pa.Table], tables: dict[int, pa.Table]) -> None:
        for number in old:
            tables.pop(number, None)
            del self._directory.shelves[number]
            self._state.drop(KEYS, number)
        tables |= new
        self._directory.shelves |= {number: Shelf() for number in new}


def _least(column: pa.ChunkedArray) -> int:
    return int(np.min(column.to_numpy(), initial=NEVER))


def _deeper(number: int, hashed: int) -> int:
    """Return the shelf below another for a hash."""
    depth = number.bit_length()
    return (1 << depth) | (hashed & ((1 << depth) - 1))


def _children(number: int) -> tuple[int, int]:
    depth = number.bit_length() - 1
    low = number ^ (1 << depth)
    return (1 << (depth + 1)) | low, (1 << (depth + 1)) | (1 << depth) | low


def _divided(number: int, table: pa.Table) -> dict[int, pa.Table]:
    shelves = np.array([_deeper(number, zlib.crc32(key.encode())) for key in table.column("key").to_pylist()])
    return {child: table.filter(pa.array(shelves == child)).combine_chunks() for child in _children(number)}


def _table(items: dict[str, Item | None]) -> pa.Table:
    there = {key: item for key, item in items.items() if item is not None}
    columns = list(zip(*there.values(), strict=True)) or [()] * 3
    return pa.table([list(there), *columns], schema=_SCHEMA)
