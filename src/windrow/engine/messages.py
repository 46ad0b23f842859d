"""Messages to key groups (records, the progress of partitions, and control messages) and their encoding.

A packet is a message to one key group, sent as a single row no matter how many records it holds. An adaptive watermark
needs the event times of all records, whatever their keys, so every key group receives them, as offsets and times of one
or two bytes each. A guarded clock (`windrow.engine.watermarks.guard`) needs those of a few records.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from windrow.engine.columns import MIN_TIME, Blob, Mask, Micros, pack, to_micros, unpack
from windrow.engine.tick import Tick


@dataclass(frozen=True)
class Records:
    """Packed good records (`windrow.engine.schema.record_schema`) for the node `to`.

    The watermark of a source's records (`is_raw`) takes only the records of the same step into account; the level that
    receives them raises it to at least the watermark before the step. Records that an operator emits have the final
    watermark.
    """

    to: str
    blob: Blob
    is_raw: bool = False


@dataclass(frozen=True)
class PartialPanes:
    """Packed panes (or slices) of salted keys for the node `to`, aggregated by the key group `sender`."""

    to: str
    sender: int
    blob: Blob


@dataclass(frozen=True)
class DeadLetters:
    """Packed dead letters (`windrow.engine.schema.DEAD`) for the sinks below the node `to`, or for all sinks."""

    to: str | None
    blob: Blob


@dataclass(frozen=True)
class Results:
    """Packed rows of the node `of` at an earlier level for the sinks: either its changes or its late output.

    The counts `late_records` and `duplicates` come from its operator and are sent with the changes.
    """

    of: str
    table: Literal["changes", "late"]
    blob: Blob
    late_records: int = 0
    duplicates: int = 0


@dataclass(frozen=True)
class EventTimes:
    """Event times of a partition's good records from the offset `first` on, whatever their keys (`pack_times`).

    This message is sent only if the watermark's delay or a guarded clock depends on the event times.
    """

    partition: int
    first: int
    blob: Blob


@dataclass(frozen=True)
class Progress:
    """The packed progress (`PartitionProgress`) of all partitions that a task has read in a step.

    One message covers all partitions, because every message goes to all key groups as a row of its own.
    """

    blob: Blob


class PartitionProgress(NamedTuple):
    """The progress of a partition in a step that read the offsets from `first` up to, but not including, `next`.

    The `watermark` takes only the records of the step into account. `reached` is the greatest event time in the step,
    and `records` the number of good records.
    """

    partition: int
    watermark: int
    first: int
    next: int
    reached: int = MIN_TIME
    records: int = 0


@dataclass(frozen=True)
class Observation:
    """What a task's probe observed in a step (`windrow.engine.probe`), forwarded to the output of the last level."""

    blob: Blob


@dataclass(frozen=True)
class RecordsLost:
    """Records of a partition were lost, as described by `what`; the partition resumes at the offset `first`."""

    partition: int
    first: int
    what: str


@dataclass(frozen=True)
class PartitionIdle:
    """A partition was idle in the run that is replayed, and the low watermark of its source was `low`.

    The clock journal of that run is the source of this message; the low watermark becomes at least `low`.
    """

    partition: int
    low: int


@dataclass(frozen=True)
class TimersEnded:
    """At the end of the input, a timer of the node `of` emitted a row that is later than all records.

    Each key group sends the time of its latest row of this kind to all key groups. Windows that begin by the latest of
    these times fire in this step.
    """

    of: str
    time: int


@dataclass(frozen=True)
class TickDue:
    """The operators of an earlier level do nothing at ticks before this processing time, unless records come."""

    micros: int


@dataclass(frozen=True)
class LevelState:
    """The packed state of a key group at an earlier level of a batch run after the last step, for a savepoint."""

    blob: Blob


@dataclass(frozen=True)
class EndOfInput:
    """The input is bounded and has been read completely."""


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
    | TickDue
    | LevelState
    | EndOfInput
)

_KINDS: Final[dict[str, Any]] = {kind.__name__: kind for kind in get_args(Message)}


class Packet(NamedTuple):
    """A message to one key group."""

    key_group: int
    message: Message


def encode_message(message: Message) -> tuple[str, str, Blob]:
    """Encode a message as its kind, its fields in JSON, and its blob, which is empty if it has none."""
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    blob = values.pop("blob", b"")
    return type(message).__name__, json.dumps(values), blob


def decode_message(kind: str, text: str, blob: Blob) -> Message:
    """Decode the output of `encode_message`."""
    values = json.loads(text)
    if "blob" in _KINDS[kind].__dataclass_fields__:
        values["blob"] = blob
    message: Message = _KINDS[kind](**values)
    return message


def pack_progress(progress: Sequence[PartitionProgress]) -> bytes:
    """Pack the progress of partitions as 64-bit integers, compressed because these numbers are similar."""
    return zlib.compress(np.array(progress, dtype="<i8").tobytes(), 1)


@lru_cache(maxsize=4)
def unpack_progress(blobs: tuple[bytes, ...]) -> tuple[PartitionProgress, ...]:
    """Unpack the progress from several tasks, in order of partition.

    The result is cached, as all key groups of a task receive the same messages.
    """
    numbers = np.frombuffer(b"".join(map(zlib.decompress, blobs)), dtype="<i8")
    rows = numbers.reshape(-1, len(PartitionProgress._fields)).tolist()
    return tuple(sorted(PartitionProgress(*row) for row in rows))


_UNITS = (1_000_000, 1_000, 1)
"""Seconds, milliseconds and microseconds, which are the usual units of times in sources."""
_WIDTHS = ((pa.uint8(), 1 << 8), (pa.uint16(), 1 << 16), (pa.uint32(), 1 << 32))


class PackedTimes(NamedTuple):
    """Ascending offsets, their event times in microseconds, and the mask of times that are known not to be leaps."""

    offsets: Micros
    times: Micros
    ordinary: Mask


def pack_times(given: PackedTimes) -> bytes:
    """Pack event times.

    A time is stored as a multiple of a unit above the least time, and an offset as the gap to the previous offset, each
    in the narrowest type that holds them all. If there are no gaps, no offsets are stored.
    """
    offsets, times, ordinary = given
    least = int(times.min())
    above = times - least
    unit = next(unit for unit in _UNITS if not (above % unit).any())
    gaps = np.diff(offsets, prepend=offsets[0] - 1) - 1
    gap = _narrow(gaps) if gaps.any() else pa.nulls(len(gaps))
    metadata = {"first": str(offsets[0]), "least": str(least), "unit": str(unit)}
    columns = {"gap": gap, "time": _narrow(above // unit), "ordinary": pa.array(ordinary)}
    return pack(pa.table(columns).replace_schema_metadata(metadata))


def unpack_times(blob: bytes) -> PackedTimes:
    """Return the event times that `pack_times` packed."""
    table = unpack(blob)
    first, least, unit = (int(table.schema.metadata[name]) for name in (b"first", b"least", b"unit"))
    gap = table.column("gap")
    gaps = np.zeros(len(gap), dtype=np.int64) if pa.types.is_null(gap.type) else to_micros(gap)
    offsets, times = first - 1 + np.cumsum(gaps + 1), least + to_micros(table.column("time")) * unit
    return PackedTimes(offsets, times, table.column("ordinary").to_numpy())


def join_times(several: Iterable[PackedTimes]) -> PackedTimes:
    """Concatenate event times."""
    return PackedTimes(*(np.concatenate(columns) for columns in zip(_NO_TIMES, *several, strict=True)))


_NO_TIMES: Final = PackedTimes(np.array([], dtype=np.int64), np.array([], dtype=np.int64), np.array([], dtype=np.bool_))


def _narrow(values: Micros) -> pa.Array:
    most = int(values.max())
    width = next((width for width, above in _WIDTHS if most < above), pa.int64())
    return pa.array(values).cast(width)
