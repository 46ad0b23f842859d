"""What a key group remembers from step to step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class State(Protocol):
    """A key group's store: one summary, and blobs by kind and bucket.

    What a bucket is (a window's start, a hash of keys) is for the operator to say.
    """

    def summary(self) -> bytes | None:
        """Return the summary, None in the first step."""
        ...

    def set_summary(self, blob: bytes) -> None:
        """Replace the summary."""
        ...

    def get(self, kind: str, bucket: int) -> bytes | None:
        """Return a blob, None if there is none."""
        ...

    def set(self, kind: str, bucket: int, blob: bytes) -> None:
        """Put a blob in the place of what is there, if anything is."""
        ...

    def drop(self, kind: str, bucket: int) -> None:
        """Forget a blob, if there is one."""
        ...


class MemoryState:
    """A store in a dictionary."""

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
        """Return a blob, None if there is none."""
        return self._blobs.get((kind, bucket))

    def set(self, kind: str, bucket: int, blob: bytes) -> None:
        """Replace a blob."""
        self._blobs[kind, bucket] = blob

    def drop(self, kind: str, bucket: int) -> None:
        """Forget a blob."""
        self._blobs.pop((kind, bucket), None)

    def items(self) -> Iterator[tuple[tuple[str, int], bytes]]:
        """Go through the blobs, by kind and bucket."""
        return iter(self._blobs.items())

    def copy_to(self, other: State) -> None:
        """Put all that is here into a store that holds nothing."""
        if self._summary is not None:
            other.set_summary(self._summary)
        for (kind, bucket), blob in self._blobs.items():
            other.set(kind, bucket, blob)

    @property
    def size(self) -> int:
        """How many bytes the summary and the blobs have."""
        return len(self._summary or b"") + sum(map(len, self._blobs.values()))
