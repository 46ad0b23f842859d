"""Messages to key groups: records, the progress of partitions, and control; and their encoding.

A packet is a message to a key group: a row, whatever the number of records in it. An adaptive watermark needs the event
times of all records, whatever their key, so every key group receives them: as offsets and times of one or two bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from windrow.engine.columns import MIN_TIME, Blob, Micros, pack, to_micros, unpack
from windrow.engine.tick import Tick


@dataclass(frozen=True)
class Records:
    """Good records (`windrow.engine.schema.record_schema`) for the node `to`, packed.

    Records of a source (`is_raw`) have the watermark at each as far as their own step has moved it; records that an
    operator emits have the final watermark.
    """

    to: str
    blob: Blob
    is_raw: bool = False


@dataclass(frozen=True)
class PartialPanes:
    """Panes (or slices) of salted keys for the node `to`, packed; the key group `sender` aggregated them."""

    to: str
    sender: int
    blob: Blob


@dataclass(frozen=True)
class DeadLetters:
    """Dead letters (`windrow.engine.schema.DEAD`), packed: of the node `to` and those below it, or of all if None."""

    to: str | None
    blob: Blob


@dataclass(frozen=True)
class Results:
    """Rows of the node `of` at an earlier level for the sinks: its changes, or its late output, packed.

    `late_records` and `duplicates` are counts of its operator, sent with the changes.
    """

    of: str
    table: Literal["changes", "late"]
    blob: Blob
    late_records: int = 0
    duplicates: int = 0


@dataclass(frozen=True)
class EventTimes:
    """Event times of all good records of a partition from the offset `first` on, whatever their key (`pack_times`).

    Only sent if the watermark's delay depends on them.
    """

    partition: int
    first: int
    blob: Blob


@dataclass(frozen=True)
class Progress:
    """The progress (`PartitionProgress`) of all partitions that a task has read in a step, packed.

    It is one message for all partitions, as a message for each would be too many rows: each goes to all key groups.
    """

    blob: Blob


class PartitionProgress(NamedTuple):
    """The end of a step in a partition, which read the offsets from `first` up to, not including, `next`.

    `watermark` is as far as the step's records moved it, `reached` the greatest event time in the step, `records` the
    number of good records.
    """

    partition: int
    watermark: int
    first: int
    next: int
    reached: int = MIN_TIME
    records: int = 0


@dataclass(frozen=True)
class Observation:
    """The observations of a task's probe in a step (`windrow.engine.probe`), for the output of the last level."""

    blob: Blob


@dataclass(frozen=True)
class RecordsLost:
    """Records of a partition were lost (`what` describes it); it resumes at the offset `first`."""

    partition: int
    first: int
    what: str


@dataclass(frozen=True)
class PartitionIdle:
    """A partition is idle by the journal of the replayed run, and the low watermark of its source at least `low`."""

    partition: int
    low: int


@dataclass(frozen=True)
class TimersEnded:
    """The end of the input fired a timer of the node `of`, which emitted a row at a time ahead of the records.

    Each key group sends the last such time to all key groups: windows that have begun by then fire with this step.
    """

    of: str
    time: int


@dataclass(frozen=True)
class LevelState:
    """The state of an earlier level of a batch run in its key group after the last step, for a savepoint; packed."""

    blob: Blob


@dataclass(frozen=True)
class EndOfInput:
    """The input is bounded, and has been read."""


Message = (
    Records
    | PartialPanes
    | DeadLetters
    | Results
    | EventTimes
    | Progress
    | Observation
    | RecordsLost
    | PartitionIdle
    | Tick
    | TimersEnded
    | LevelState
    | EndOfInput
)

_KINDS: Final[dict[str, Any]] = {kind.__name__: kind for kind in get_args(Message)}


class Packet(NamedTuple):
    """A message to one key group."""

    key_group: int
    message: Message


def encode_message(message: Message) -> tuple[str, str, Blob]:
    """Return a message as its kind, its fields in JSON, and its blob (empty if it has none)."""
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    blob = values.pop("blob", b"")
    return type(message).__name__, json.dumps(values), blob


def decode_message(kind: str, text: str, blob: Blob) -> Message:
    """Return the message that `encode_message` wrote."""
    values = json.loads(text)
    if "blob" in _KINDS[kind].__dataclass_fields__:
        values["blob"] = blob
    message: Message = _KINDS[kind](**values)
    return message


def pack_progress(progress: Sequence[PartitionProgress]) -> bytes:
    """Pack the progress of partitions: numbers of 64 bits, compressed, as they are similar."""
    return zlib.compress(np.array(progress, dtype="<i8").tobytes(), 1)


@lru_cache(maxsize=4)
def unpack_progress(blobs: tuple[bytes, ...]) -> tuple[PartitionProgress, ...]:
    """Unpack the progress that several tasks packed, ordered by partition.

    All key groups receive the same, and those of a task read it once.
    """
    numbers = np.frombuffer(b"".join(map(zlib.decompress, blobs)), dtype="<i8")
    rows = numbers.reshape(-1, len(PartitionProgress._fields)).tolist()
    return tuple(sorted(PartitionProgress(*row) for row in rows))


_UNITS = (1_000_000, 1_000, 1)
"""Seconds, milliseconds and microseconds, in which sources mostly give times."""
_WIDTHS = ((pa.uint8(), 1 << 8), (pa.uint16(), 1 << 16), (pa.uint32(), 1 << 32))


def pack_times(offsets: Micros, times: Micros) -> bytes:
    """Pack ascending offsets and the event times at them, all in microseconds.

    A time is stored as a multiple of a unit above the least time, an offset as the gap to the previous offset; both in
    the narrowest type that holds them. Without gaps, no offsets are stored.
    """
    least = int(times.min())
    above = times - least
    unit = next(unit for unit in _UNITS if not (above % unit).any())
    gaps = np.diff(offsets, prepend=offsets[0] - 1) - 1
    gap = _narrow(gaps) if gaps.any() else pa.nulls(len(gaps))
    metadata = {"first": str(offsets[0]), "least": str(least), "unit": str(unit)}
    return pack(pa.table({"gap": gap, "time": _narrow(above // unit)}).replace_schema_metadata(metadata))


def unpack_times(blob: bytes) -> tuple[Micros, Micros]:
    """Read the offsets and times that `pack_times` wrote."""
    table = unpack(blob)
    first, least, unit = (int(table.schema.metadata[name]) for name in (b"first", b"least", b"unit"))
    gap = table.column("gap")
    gaps = np.zeros(len(gap), dtype=np.int64) if pa.types.is_null(gap.type) else to_micros(gap)
    return first - 1 + np.cumsum(gaps + 1), least + to_micros(table.column("time")) * unit


def _narrow(values: Micros) -> pa.Array:
    most = int(values.max())
    width = next((width for width, above in _WIDTHS if most < above), pa.int64())
    return pa.array(values).cast(width)
