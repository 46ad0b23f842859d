"""Time buffer: records that are held until the low watermark has passed their event time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from windrow.core.columns import pack, to_micros, unpack
from windrow.core.schema import TIME
from windrow.core.state.store import BlobStore

BUFFER_KIND: Final = "held"


@dataclass
class TimeBuffer:
    """Held records: one blob for each step that added some, so a step touches only what it adds or releases.

    `least` is the least event time in each blob, by its number.
    """

    least: dict[int, int] = field(default_factory=dict)
    next: int = 0
    _changed: dict[int, pa.Table] = field(default_factory=dict, repr=False)

    def turn(self, records: pa.Table, low: int, state: BlobStore) -> pa.Table:
        """Add a step's records, and return all whose time the low watermark has passed; `close` stores the others."""
        given = {
            number: unpack(blob) for number in self._due(low) if (blob := state.get(BUFFER_KIND, number)) is not None
        }
        if records.num_rows:
            given[self.next] = records
            self.next += 1
        let_go = [records.slice(0, 0)]
        for number, table in given.items():
            passed = to_micros(table.column(TIME)) < low
            let_go.append(table.filter(pa.array(passed)))
            self._changed[number] = table.filter(pa.array(~passed))
        return pa.concat_tables(let_go)

    def put(self, records: pa.Table, state: BlobStore) -> None:
        """Add the records of another state's buffer."""
        self._changed[self.next] = records
        self.next += 1
        self.close(state)

    def close(self, state: BlobStore) -> None:
        """Write what changed."""
        for number, table in self._changed.items():
            if table.num_rows:
                self.least[number] = int(np.min(to_micros(table.column(TIME))))
                state.set(BUFFER_KIND, number, pack(table))
            elif self.least.pop(number, None) is not None:
                state.drop(BUFFER_KIND, number)
        self._changed = {}

    def encode(self) -> Any:  # noqa: ANN401 - plain JSON
        """Return plain JSON."""
        return {"least": list(self.least.items()), "next": self.next}

    @staticmethod
    def decode(fields: Any) -> TimeBuffer:  # noqa: ANN401 - plain JSON
        """Read what `encode` returned."""
        return TimeBuffer(dict(fields["least"]), fields["next"])

    def _due(self, low: int) -> list[int]:
        return [number for number, least in self.least.items() if least < low]
