"""Time buffer: records that are held until the low watermark has passed the time in one of their columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.engine.columns import pack, to_micros, unpack
from windrow.engine.schema import TIME
from windrow.engine.state.store import BlobStore

BUFFER_KIND: Final = "held"

Mask = npt.NDArray[np.bool_]


@dataclass
class TimeBuffer:
    """Held records, with a blob for each step that added records, so a step accesses only the blobs that it changes.

    The mapping `least` has the earliest time in each blob, by the blob's number. `column` is the column with the times,
    and `kind` is the kind of the blobs.
    """

    least: dict[int, int] = field(default_factory=dict)
    next: int = 0
    column: str = TIME
    kind: str = BUFFER_KIND
    _changed: dict[int, pa.Table] = field(default_factory=dict, repr=False)

    def turn(
        self, records: pa.Table, bound: int, state: BlobStore, released: Callable[[pa.Table], Mask] | None = None
    ) -> pa.Table:
        """Add the records of a step, and return the records whose time is before `bound`; `close` stores the others.

        If `released` is given, return the records in its mask instead, which must be before the bound.
        """
        due = [number for number, least in self.least.items() if least < bound]
        tables = {number: unpack(blob) for number in due if (blob := state.get(self.kind, number)) is not None}
        if records.num_rows:
            tables[self.next] = records
            self.next += 1
        passed = [records.slice(0, 0)]
        for number, table in tables.items():
            is_passed = to_micros(table.column(self.column)) < bound if released is None else released(table)
            passed.append(table.filter(pa.array(is_passed)))
            self._changed[number] = table.filter(pa.array(~is_passed))
        return pa.concat_tables(passed)

    def put(self, records: pa.Table, state: BlobStore) -> None:
        """Add records from the buffer of another state."""
        self._changed[self.next] = records
        self.next += 1
        self.close(state)

    def close(self, state: BlobStore) -> None:
        """Write the blobs that have changed."""
        for number, table in self._changed.items():
            if table.num_rows:
                self.least[number] = int(np.min(to_micros(table.column(self.column))))
                state.set(self.kind, number, pack(table))
            elif self.least.pop(number, None) is not None:
                state.drop(self.kind, number)
        self._changed = {}

    def encode(self) -> Any:  # noqa: ANN401 - plain JSON
        """Encode the buffer's index as plain JSON values."""
        return {"least": list(self.least.items()), "next": self.next}

    @staticmethod
    def decode(fields: Any, column: str = TIME, kind: str = BUFFER_KIND) -> TimeBuffer:  # noqa: ANN401 - plain JSON
        """Decode the output of `encode`."""
        return TimeBuffer(dict(fields["least"]), fields["next"], column, kind)
