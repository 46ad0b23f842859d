"""The records of a story: their bytes, and the fields that they have in common."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from windrow.api.yaml.node import YamlMapping, YamlNode
from windrow.errors import Place
from windrow.model import EventTime, Punctuated
from windrow.testing.transcript.cells import Cell, read_cell, read_log_time, read_time
from windrow.testing.transcript.each import each

PARTITION = "p"
RAW = "raw"
LOG_TIME = "_log_time"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class Written:
    """A record as the story writes it: its cells by field, or its raw text."""

    partition: int
    cells: Mapping[str, Cell]
    raw: str | None
    place: Place

    @property
    def value(self) -> bytes:
        """The record's bytes."""
        if self.raw is not None:
            return self.raw.encode()
        text = ", ".join(f"{json.dumps(name)}: {cell.json}" for name, cell in self.cells.items())
        return f"{{{text}}}".encode()


def read_records(spot: YamlNode, time: EventTime) -> tuple[Written, ...]:
    """Read a list of records that is not empty; raise PipelineError for what is wrong with it."""
    written = each(spot.items(), lambda item: _record(item, time))
    if not written:
        msg = f"{spot.called} must have a record"
        raise spot.error(msg)
    return written


def _record(spot: YamlNode, time: EventTime) -> Written:
    fields = YamlMapping(spot)
    partition = fields.optional(PARTITION, _partition, 0)
    raw = fields.optional(RAW, _raw, None)
    readers = {time.field: read_time, time.sent: read_time, mark_field(time): read_time, LOG_TIME: read_log_time}
    cells = {
        name: fields.attempt(readers.get(name, read_cell), entry)
        for name, entry in fields
        if name not in {PARTITION, RAW}
    }
    if RAW in fields and cells:
        fields.problem(spot.error(f"{spot.called} is raw, and a raw record has no other keys than {PARTITION!r}"))
    fields.check()
    if not cells and raw.value is None:
        msg = f"{spot.called} has no field"
        raise spot.error(msg)
    return Written(partition.value, {name: cell.value for name, cell in cells.items()}, raw.value, spot.place)


def _partition(spot: YamlNode) -> int:
    return partition_number(spot.text(), spot)


def partition_number(text: str, spot: YamlNode) -> int:
    """Read the number of a partition."""
    if not _NUMBER.fullmatch(text):
        msg = f"{spot.called}: {text!r} is not the number of a partition (0, 1, 2 ...)"
        raise spot.error(msg)
    return int(text)


def _raw(spot: YamlNode) -> str:
    if not spot.is_scalar or "\n" in spot.node.value:
        msg = f"{spot.called} must be a text of one line"
        raise spot.error(msg)
    text: str = spot.node.value
    return text


def read_marks(spot: YamlNode, time: EventTime, partitions: Sequence[int]) -> tuple[Written, ...]:
    """Read a watermark for all `partitions`, or a mapping of partitions to watermarks."""
    name = mark_field(time)
    if name is None:
        msg = f"{spot.called} needs a source with marks: `time: {{field: {time.field}, punctuated: FIELD}}`"
        raise spot.error(msg)
    if spot.is_scalar:
        cell = read_time(spot)
        return tuple(Written(partition, {name: cell}, None, spot.place) for partition in partitions)
    marks = read_mark_mapping(spot)
    if not marks:
        msg = f"{spot.called} must have a partition"
        raise spot.error(msg)
    return tuple(Written(partition, {name: cell}, None, spot.place) for partition, cell in marks.items())


def read_mark_mapping(spot: YamlNode) -> dict[int, Cell]:
    """Read ``{0: "10:05"}``."""
    fields = YamlMapping(spot)
    numbers = [fields.attempt(partial(partition_number, name), entry) for name, entry in fields]
    cells = [fields.attempt(read_time, entry) for _, entry in fields]
    fields.check()
    return {number.value: cell.value for number, cell in zip(numbers, cells, strict=True)}


def mark_field(time: EventTime) -> str | None:
    """Return the name of the punctuation's field, if the source has one."""
    return time.watermark.field if isinstance(time.watermark, Punctuated) else None
