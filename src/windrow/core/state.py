"""What a key group remembers from step to step."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Protocol

from windrow.core.clocks import Clocks
from windrow.core.micros import BEFORE_ALL


class State(Protocol):
    """A key group's store: one summary, and two blobs a window at the most."""

    def summary(self) -> bytes | None:
        """Return the summary, None in the first step."""
        ...

    def set_summary(self, blob: bytes) -> None:
        """Replace the summary."""
        ...

    def panes(self, window: int) -> bytes | None:
        """Return the accumulators of the window that starts then, one row a key."""
        ...

    def set_panes(self, window: int, blob: bytes) -> None:
        """Replace them."""
        ...

    def drop_panes(self, window: int) -> None:
        """Forget them, if there are any."""
        ...

    def waiting(self, window: int) -> bytes | None:
        """Return the late records that wait for that window's on-time pane."""
        ...

    def set_waiting(self, window: int, blob: bytes) -> None:
        """Replace them."""
        ...

    def drop_waiting(self, window: int) -> None:
        """Forget them, if there are any."""
        ...


class MemoryState:
    """A store in dictionaries."""

    def __init__(self) -> None:
        self._summary: bytes | None = None
        self._panes: dict[int, bytes] = {}
        self._waiting: dict[int, bytes] = {}

    def summary(self) -> bytes | None:
        """Return the summary, None in the first step."""
        return self._summary

    def set_summary(self, blob: bytes) -> None:
        """Replace the summary."""
        self._summary = blob

    def panes(self, window: int) -> bytes | None:
        """Return a window's accumulators."""
        return self._panes.get(window)

    def set_panes(self, window: int, blob: bytes) -> None:
        """Replace a window's accumulators."""
        self._panes[window] = blob

    def drop_panes(self, window: int) -> None:
        """Forget a window's accumulators."""
        self._panes.pop(window, None)

    def waiting(self, window: int) -> bytes | None:
        """Return a window's waiting records."""
        return self._waiting.get(window)

    def set_waiting(self, window: int, blob: bytes) -> None:
        """Replace a window's waiting records."""
        self._waiting[window] = blob

    def drop_waiting(self, window: int) -> None:
        """Forget a window's waiting records."""
        self._waiting.pop(window, None)


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
