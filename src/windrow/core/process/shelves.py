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

_KIND: Final = "keys"
_DEEPEST: Final = 32


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
        number = 1
        while number not in self.shelves:
            number = _deeper(number, hashed)
        return number

    def encode(self) -> Any:  # noqa: ANN401 - plain JSON
        """Return plain lists."""
        return [[number, shelf.keys, shelf.due, shelf.tick] for number, shelf in self.shelves.items()]

    @staticmethod
    def decode(rows: Any) -> Directory:  # noqa: ANN401 - plain JSON
        """Read what `encode` returned."""
        return Directory({number: Shelf(keys, due, tick) for number, keys, due, tick in rows})


class Shelves:
    """The shelves that one step takes down, and puts back with `close`."""

    def __init__(self, directory: Directory, state: State) -> None:
        self._directory = directory
        self._state = state
        self._open: dict[int, dict[str, Item]] = {}

    def get(self, key: str) -> Item | None:
        """Return what is stored of a key."""
        return self._shelf(self._directory.find(key)).get(key)

    def put(self, key: str, item: Item | None) -> None:
        """Store a key, or forget it."""
        shelf = self._shelf(self._directory.find(key))
        if item is None:
            shelf.pop(key, None)
        else:
            shelf[key] = item

    def due(self, low: int, now: int | None) -> Iterator[str]:
        """Go through the keys for which something is due by then, by event time or by processing time."""
        for number, about in self._directory.shelves.items():
            if about.due <= low or (now is not None and about.tick <= now):
                for key, item in self._shelf(number).items():
                    if item.due <= low or (now is not None and item.tick <= now):
                        yield key

    def close(self) -> None:
        """Write the shelves that were taken down."""
        for number in sorted(self._open, reverse=True):
            self._settle(number)
        for number, items in self._open.items():
            self._directory.shelves[number] = Shelf(
                len(items),
                min((item.due for item in items.values()), default=NEVER),
                min((item.tick for item in items.values()), default=NEVER),
            )
            if items:
                self._state.set(_KIND, number, pack(_table(items)))
            else:
                self._state.drop(_KIND, number)
        self._open = {}

    def _shelf(self, number: int) -> dict[str, Item]:
        items = self._open.get(number)
        if items is None:
            blob = self._state.get(_KIND, number) if self._directory.shelves[number].keys else None
            items = self._open[number] = {} if blob is None else dict(_items(unpack(blob)))
        return items

    def _settle(self, number: int) -> None:
        """Split a shelf with too many keys, and join one with few to its sibling; both go on as long as need be."""
        items = self._open.get(number)
        if items is None:
            return
        depth = number.bit_length() - 1
        if len(items) > MOST_KEYS and depth < _DEEPEST:
            self._replace([number], _divided(number, items))
            for part in _children(number):
                self._settle(part)
        elif depth and len(items) < MOST_KEYS // 4:
            sibling = number ^ (1 << (depth - 1))
            if sibling in self._directory.shelves and self._size(sibling) + len(items) <= MOST_KEYS // 2:
                parent = (1 << (depth - 1)) | (number & ((1 << (depth - 1)) - 1))
                self._replace([number, sibling], {parent: items | self._shelf(sibling)})
                self._settle(parent)

    def _size(self, number: int) -> int:
        return len(self._open[number]) if number in self._open else self._directory.shelves[number].keys

    def _replace(self, old: Iterable[int], new: dict[int, dict[str, Item]]) -> None:
        for number in old:
            del self._open[number], self._directory.shelves[number]
            self._state.drop(_KIND, number)
        self._open |= new
        self._directory.shelves |= {number: Shelf() for number in new}


def _deeper(number: int, hashed: int) -> int:
    """Return the shelf below another for a hash."""
    depth = number.bit_length()
    return (1 << depth) | (hashed & ((1 << depth) - 1))


def _children(number: int) -> tuple[int, int]:
    depth = number.bit_length() - 1
    low = number ^ (1 << depth)
    return (1 << (depth + 1)) | low, (1 << (depth + 1)) | (1 << depth) | low


def _divided(number: int, items: dict[str, Item]) -> dict[int, dict[str, Item]]:
    parts: dict[int, dict[str, Item]] = {child: {} for child in _children(number)}
    for key, item in items.items():
        parts[_deeper(number, zlib.crc32(key.encode()))][key] = item
    return parts


def _table(items: dict[str, Item]) -> pa.Table:
    dues, ticks, blobs = zip(*items.values(), strict=True)
    return pa.table(
        {
            "key": pa.array(items, pa.large_string()),
            "due": pa.array(np.array(dues, dtype=np.int64)),
            "tick": pa.array(np.array(ticks, dtype=np.int64)),
            "memory": pa.array(blobs, pa.large_binary()),
        }
    )


def _items(table: pa.Table) -> Iterator[tuple[str, Item]]:
    keys, dues, ticks, blobs = (column.to_pylist() for column in table.columns)
    for key, due, tick, blob in zip(keys, dues, ticks, blobs, strict=True):
        yield key, Item(due, tick, blob)
