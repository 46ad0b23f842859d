"""Records that break what reads them: one of each kind that is known, among purchases of `bench/soak.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_MEGABYTE = 900_000
"""Characters of a large record: the broker takes one of 1 MiB, with what is around it."""
_RAW: dict[str, bytes | None] = {
    "tombstone": None,
    "empty": b"",
    "blank": b" ",
    "null": b"null",
    "array": b"[1, 2]",
    "text": b'"text"',
    "number": b"17",
    "cut off": b'{"user_id": "u0", "event_time": 17672',
    "trailing comma": b'{"user_id": "u0", }',
    "two objects": b'{"user_id": "u0"} {}',
    "not UTF-8": b'{"user_id": "\xff"}',
    "not a number": b'{"user_id": NaN}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "nested deeply": b"[" * 3000 + b"]" * 3000,
    "zeros": bytes(300),
    "large and malformed": b"x" * _MEGABYTE,
}
_WRONG: dict[str, tuple[Any, ...]] = {
    "user_id": (7, True, [], {}, "nul\0", "half a pair \ud800", "long " * 1000),
    "event_time": ("x", "2026-02-30", 1.5, True, [], -1, 0, 10**15, 10**18, 10**25, 1e300, -(10**18)),
    "amount": ("x", 1.005, 1e300, 10**25, True, [], {}, "1e3", " 7", -1, "1.50"),
    "n": ("x", 1.5, 2**63, -(2**63), 10**25, True, []),
    "note": (7, True, [], {}, "nul\0", "é", "x", "9" * 30, "y" * _MEGABYTE),
}
"""Values that a field cannot have, or that only just fit."""


def poison(prefix: str, now: int) -> dict[str, bytes | None]:
    """Return a record of each kind by its name; `now` is in milliseconds, and users that are good begin with `prefix`.

    Good records whose results are hard to hold are among them: a sum beyond 64 bits, a formula that fails for a row.
    """
    return dict(_RAW) | {name: _bytes(record) for name, record in _records(prefix, now)}


def _records(prefix: str, now: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield records as fields."""
    good: dict[str, Any] = {"user_id": f"{prefix}good", "event_time": now, "amount": 1.25}
    for name in good:
        yield f"without {name}", {other: value for other, value in good.items() if other != name}
        yield f"{name} null", good | {name: None}
    for name, values in _WRONG.items():
        for number, value in enumerate(values):
            # with an event time that moves no clock: whether a record with a long key does is another question
            late = {"user_id": f"{prefix}{name}-{number}", "event_time": now - 30_000}
            yield f"{name} {number}", good | late | {name: value}
    yield "another large field", good | {"user_id": f"{prefix}large", "more": "x" * _MEGABYTE}
    for number in (1, 2):
        yield f"sum beyond 64 bits {number}", good | {"user_id": f"{prefix}sum", "n": 2**63 - 1, "amount": number}
    for number, note in enumerate(("5", "x", "y", "7")):
        yield f"number {note!r}", good | {"user_id": f"{prefix}noted", "note": note, "amount": number}
        yield f"late number {note!r}", good | {"user_id": f"{prefix}late", "note": note, "event_time": now - 30_000}
    for note in ("5", "x"):
        yield f"expired number {note!r}", good | {"user_id": f"{prefix}n", "note": note, "event_time": now - 3_600_000}
    yield "future", good | {"event_time": now + 2 * 3_600_000}


def _bytes(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()
