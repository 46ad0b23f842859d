"""What a key group remembers from step to step."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Protocol

from windrow.core.clocks import Clocks
from windrow.core.micros import BEFORE_ALL


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

    @property
    def size(self) -> int:
        """How many bytes the summary and the blobs have."""
        return len(self._summary or b"") + sum(map(len, self._blobs.values()))


@dataclass
class Summary:
    """The small part of the state, read and written whole in each step.

    `open` holds the starts of windows that have something and have not fired, `waiting` those of them that late records
    wait for, `fired` those that have fired and can still be revised. `ended` is how far the event time had come when
    the input last ended: a window that began by then has fired, whether or not this key group had anything in it.
    """

    clocks: Clocks
    open: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    fired: set[int] = field(default_factory=set)
    ended: int = BEFORE_ALL

    def encode(self) -> bytes:
        """Write as JSON."""
        return json.dumps(
            {
                "clocks": self.clocks.encode(),
                "open": sorted(self.open),
                "waiting": sorted(self.waiting),
                "fired": sorted(self.fired),
                "ended": self.ended,
            }
        ).encode()

    @staticmethod
    def decode(blob: bytes) -> Summary:
        """Read what `encode` wrote."""
        fields = json.loads(blob)
        return Summary(
            Clocks.decode(fields["clocks"]),
            set(fields["open"]),
            set(fields["waiting"]),
            set(fields["fired"]),
            fields["ended"],
        )
