"""Runs: rows with event times that are kept until the watermark is so far past them, in blobs that never change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from windrow.core.columns import MAX_TIME, pack, to_micros, unpack
from windrow.core.schema import TIME
from windrow.core.state.store import BlobStore

_GROWTH: Final = 4
"""A run is merged with the one before unless that has more than so many times its rows."""


class Run(NamedTuple):
    """The least and the greatest event time in a run, and the number of its rows."""

    least: int
    greatest: int
    rows: int


@dataclass
class Runs:
    """Rows in runs: a step adds one, small ones are merged, and one goes when all of it is past.

    So a step writes little more than its own rows, and the runs are few: their rows grow like the powers of a number.
    `kind` is that of the blobs.
    """

    kind: str
    runs: dict[int, Run] = field(default_factory=dict)
    next: int = 0

    def read(self, state: BlobStore, least: int = -MAX_TIME, greatest: int = MAX_TIME) -> Iterator[pa.Table]:
        """Yield the runs that have rows in a range of event times, and perhaps others."""
        for number, run in self.runs.items():
            if run.least <= greatest and run.greatest >= least:
                yield self._table(number, state)

    def add(self, rows: pa.Table, after: int, state: BlobStore) -> None:
        """Add a run, and drop the runs, and the rows of runs that are merged, whose time is not `after` that."""
        for number, run in list(self.runs.items()):
            if run.greatest <= after:
                self._drop(number, state)
        if not rows.num_rows:
            return
        tables, count = [rows], rows.num_rows
        while self.runs:
            number, run = next(reversed(self.runs.items()))
            if run.rows > _GROWTH * count:
                break
            tables.append(self._table(number, state))
            count += run.rows
            self._drop(number, state)
        made = pa.concat_tables(reversed(tables))
        times = to_micros(made.column(TIME))
        if int(times.min()) <= after:
            made = made.filter(pa.array(times > after))
            times = to_micros(made.column(TIME))
        if made.num_rows:
            state.set(self.kind, self.next, pack(made.combine_chunks()))
            self.runs[self.next] = Run(int(times.min()), int(times.max()), made.num_rows)
            self.next += 1

    def encode(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {"runs": [[number, *run] for number, run in self.runs.items()], "next": self.next}

    @staticmethod
    def decode(kind: str, fields: Any) -> Runs:  # noqa: ANN401 - plain JSON, None at first
        """Read what `encode` returned."""
        if fields is None:
            return Runs(kind)
        return Runs(kind, {number: Run(*run) for number, *run in fields["runs"]}, fields["next"])

    def _table(self, number: int, state: BlobStore) -> pa.Table:
        blob = state.get(self.kind, number)
        if blob is None:
            msg = f"run {number} of {self.kind!r} is not in the state"
            raise LookupError(msg)
        return unpack(blob)

    def _drop(self, number: int, state: BlobStore) -> None:
        del self.runs[number]
        state.drop(self.kind, number)
