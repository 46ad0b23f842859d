"""State store of a key group: a summary, and blobs by kind and bucket.

A host provides the `State` of a key group at a level; `MemoryState` is a dictionary. `OperatorState` is the part of it
that belongs to an operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

StoreKind = Literal["runs", "windows", "buckets", "keys", "buffer"]
"""How an operator stores blobs of a kind, which says what their bucket is.

Rows with the node's key as columns: in `runs` that are merged, a bucket a run; by the `windows` or slices that they
belong to; in `buckets` by a hash of the key; and in the `buffer` of records that wait for the watermark. Or entries
under `keys` as texts (`KeyedStore`).
"""


class BlobStore(Protocol):
    """Blobs by kind and bucket; operators define the bucket: a window's start, a hash of keys."""

    def get(self, kind: str, bucket: int) -> bytes | None:
        """Return a blob, or None."""
        ...

    def set(self, kind: str, bucket: int, blob: bytes) -> None:
        """Write or replace a blob."""
        ...

    def drop(self, kind: str, bucket: int) -> None:
        """Delete a blob, if it exists."""
        ...


class State(BlobStore, Protocol):
    """The state of a key group at a level: its blobs, and a summary that is read and written whole in each step."""

    def summary(self) -> bytes | None:
        """Return the summary, None in the first step."""
        ...

    def set_summary(self, blob: bytes) -> None:
        """Replace the summary."""
        ...


@dataclass
class OperatorState:
    """The state of the node `name` in a key group: its blobs, and its part of the summary (JSON, None at first)."""

    name: str
    blobs: BlobStore
    summary: Any = None

    def get(self, kind: str, bucket: int) -> bytes | None:
        """Return a blob, or None."""
        return self.blobs.get(scoped_kind(self.name, kind), bucket)

    def set(self, kind: str, bucket: int, blob: bytes) -> None:
        """Write or replace a blob."""
        self.blobs.set(scoped_kind(self.name, kind), bucket, blob)

    def drop(self, kind: str, bucket: int) -> None:
        """Delete a blob, if it exists."""
        self.blobs.drop(scoped_kind(self.name, kind), bucket)


class MemoryState:
    """A state store in a dictionary."""

    def __init__(self) -> None:
        self._summary: bytes | None = None
        self._blobs: dict[tuple[str, int], bytes] = {}

    def summary(self) -> bytes | None:
        """Return the summary, None in the first step."""
        return self._summary

    def set_summary(self, blob: bytes) -> None:
        """Replace the summary."""
        self._summary = blob

    def get(self, kind: str, bucket: int) -> bytes | None:
        """Return a blob, or None."""
        return self._blobs.get((kind, bucket))

    def set(self, kind: str, bucket: int, blob: bytes) -> None:
        """Write a blob."""
        self._blobs[kind, bucket] = blob

    def drop(self, kind: str, bucket: int) -> None:
        """Delete a blob."""
        self._blobs.pop((kind, bucket), None)

    def items(self) -> Iterator[tuple[tuple[str, int], bytes]]:
        """Iterate over the blobs, by kind and bucket."""
        return iter(self._blobs.items())

    def copy_to(self, other: State) -> None:
        """Copy everything into an empty store."""
        if self._summary is not None:
            other.set_summary(self._summary)
        for (kind, bucket), blob in self._blobs.items():
            other.set(kind, bucket, blob)

    @property
    def rows(self) -> int:
        """The number of blobs."""
        return len(self._blobs)

    @property
    def size(self) -> int:
        """Bytes of the summary and the blobs."""
        return len(self._summary or b"") + sum(map(len, self._blobs.values()))


def scoped_kind(name: str, kind: str) -> str:
    """Return the stored kind of blobs of a node; the node of a short form has no name."""
    return f"{name}/{kind}" if name else kind


def blobs_of(name: str, state: MemoryState) -> MemoryState:
    """Return the blobs of a node, by its own kinds."""
    found, prefix = MemoryState(), f"{name}/" if name else ""
    for (kind, bucket), blob in state.items():
        if kind.startswith(prefix):
            found.set(kind.removeprefix(prefix), bucket, blob)
    return found
