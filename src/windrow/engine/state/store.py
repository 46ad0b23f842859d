"""State store of a key group: a summary, and blobs by kind and bucket.

A host provides the `State` of a key group at a level; `MemoryState` keeps it in a dictionary. `OperatorState` is the
part that belongs to one operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

StoreKind = Literal["runs", "windows", "buckets", "keys", "buffer"]
"""How an operator stores the blobs of a kind, which determines what a bucket is.

Rows with the node's key as columns are stored in `runs` that are merged (each bucket is a run), by the `windows` or
slices that they belong to, in `buckets` by a hash of the key, or in the `buffer` of records that wait for the
watermark. Entries under `keys`, which are texts, are stored in a `KeyedStore`.
"""


class BlobStore(Protocol):
    """Blobs by kind and bucket; operators define what a bucket is, such as a window's start or a hash of keys."""

    def get(self, kind: str, bucket: int) -> bytes | None:
        """Return a blob, or None if it does not exist."""
        ...

    def set(self, kind: str, bucket: int, blob: bytes) -> None:
        """Write or replace a blob."""
        ...

    def drop(self, kind: str, bucket: int) -> None:
        """Delete a blob if it exists."""
        ...


class State(BlobStore, Protocol):
    """The state of a key group at a level: its blobs, and a summary that each step reads and writes as a whole."""

    def summary(self) -> bytes | None:
        """Return the summary, or None in the first step."""
        ...

    def set_summary(self, blob: bytes) -> None:
        """Replace the summary."""
        ...


@dataclass
class OperatorState:
    """The state of the node `name` in a key group: its blobs, and its part of the summary.

    The summary consists of plain JSON values, and is None in the first step.
    """

    name: str
    blobs: BlobStore
    summary: Any = None

    def get(self, kind: str, bucket: int) -> bytes | None:
        """Return a blob, or None if it does not exist."""
        return self.blobs.get(scoped_kind(self.name, kind), bucket)

    def set(self, kind: str, bucket: int, blob: bytes) -> None:
        """Write or replace a blob."""
        self.blobs.set(scoped_kind(self.name, kind), bucket, blob)

    def drop(self, kind: str, bucket: int) -> None:
        """Delete a blob if it exists."""
        self.blobs.drop(scoped_kind(self.name, kind), bucket)


class MemoryState:
    """A state store in a dictionary."""

    def __init__(self) -> None:
        self._summary: bytes | None = None
        self._blobs: dict[tuple[str, int], bytes] = {}

    def summary(self) -> bytes | None:
        """Return the summary, or None in the first step."""
        return self._summary

    def set_summary(self, blob: bytes) -> None:
        """Replace the summary."""
        self._summary = blob

    def get(self, kind: str, bucket: int) -> bytes | None:
        """Return a blob, or None if it does not exist."""
        return self._blobs.get((kind, bucket))

    def set(self, kind: str, bucket: int, blob: bytes) -> None:
        """Write or replace a blob."""
        self._blobs[kind, bucket] = blob

    def drop(self, kind: str, bucket: int) -> None:
        """Delete a blob if it exists."""
        self._blobs.pop((kind, bucket), None)

    def items(self) -> Iterator[tuple[tuple[str, int], bytes]]:
        """Iterate over the blobs as ((kind, bucket), blob)."""
        return iter(self._blobs.items())

    def copy_to(self, other: State) -> None:
        """Copy the summary and all blobs to an empty store."""
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
        """The total size of the summary and the blobs in bytes."""
        return len(self._summary or b"") + sum(map(len, self._blobs.values()))


def scoped_kind(name: str, kind: str) -> str:
    """Return the kind under which a node's blobs are stored; the node of a pipeline's short form has no name."""
    return f"{name}/{kind}" if name else kind


def blobs_of(name: str, state: MemoryState) -> MemoryState:
    """Return the blobs of a node under their own kinds, without the node's name."""
    found, prefix = MemoryState(), f"{name}/" if name else ""
    for (kind, bucket), blob in state.items():
        if kind.startswith(prefix):
            found.set(kind.removeprefix(prefix), bucket, blob)
    return found
