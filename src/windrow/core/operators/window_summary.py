"""What a window aggregate remembers beside its panes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from windrow.core.clocks import Clocks
from windrow.core.micros import BEFORE_ALL


@dataclass
class WindowSummary:
    """The small part of the state, read and written whole in each step; windows are known by their start.

    `open` holds the windows that have something of their own and have not fired, `waiting` those of them that late
    records wait for, `fired` those that have fired and can still be revised. `ended` is how far the event time had come
    when the input last ended: a window that began by then has fired, whether or not this key group had anything in it.
    `low` is the low watermark of the step before. `slices` holds by level the starts of the slices that windows are
    made of, `pending` by window the processing time from which on it waits for an early pane. Windows that end by
    `gone` were forgotten when lateness was shorter than it is now.
    """

    clocks: Clocks
    open: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    fired: set[int] = field(default_factory=set)
    ended: int = BEFORE_ALL
    low: int = BEFORE_ALL
    slices: dict[int, set[int]] = field(default_factory=dict)
    pending: dict[int, int] = field(default_factory=dict)
    gone: int = BEFORE_ALL

    def encode(self) -> bytes:
        """Write as JSON."""
        return json.dumps(
            {
                "clocks": self.clocks.encode(),
                "open": sorted(self.open),
                "waiting": sorted(self.waiting),
                "fired": sorted(self.fired),
                "ended": self.ended,
                "low": self.low,
                "slices": [[level, sorted(starts)] for level, starts in sorted(self.slices.items()) if starts],
                "pending": sorted(self.pending.items()),
                "gone": self.gone,
            }
        ).encode()

    @staticmethod
    def decode(blob: bytes) -> WindowSummary:
        """Read what `encode` wrote."""
        fields = json.loads(blob)
        return WindowSummary(
            Clocks.decode(fields["clocks"]),
            set(fields["open"]),
            set(fields["waiting"]),
            set(fields["fired"]),
            fields["ended"],
            fields["low"],
            {level: set(starts) for level, starts in fields["slices"]},
            dict(fields["pending"]),
            fields.get("gone", BEFORE_ALL),
        )
