"""A good record, judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from windrow.testing.oracle.answer import Value


@dataclass(frozen=True, eq=False)
class Record:
    """A record's coordinates, its event time, the watermark that it is judged by, and its fields.

    `inputs` has for each aggregate the value it takes, None if it takes none of this record.
    """

    partition: int
    offset: int
    time: int
    watermark: float
    fields: Mapping[str, Value]
    inputs: tuple[Value, ...]
