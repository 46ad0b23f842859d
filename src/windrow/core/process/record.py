"""Records as a user's function sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from windrow.core.process.codec import column
from windrow.core.records import OFFSET, PARTITION, TIME, WATERMARK


class Columns(dict[str, list[Any]]):
    """The fields of many records as Python values; a column that nobody asks for is never made."""

    def __init__(self, records: pa.Table) -> None:
        super().__init__()
        self._records = records
        self.table = records.drop_columns([PARTITION, OFFSET, TIME, WATERMARK])

    def coordinates(self, row: int) -> tuple[int, int]:
        """Return the partition and offset of a record."""
        return self._records.column(PARTITION)[row].as_py(), self._records.column(OFFSET)[row].as_py()

    def __missing__(self, name: str) -> list[Any]:
        """Make a column."""
        if name not in self.table.column_names:
            msg = f"a record has no field {name!r}; it has {', '.join(self.table.column_names)}"
            raise KeyError(msg)
        values = self[name] = column(self.table.column(name))
        return values


class Record(Mapping[str, Any]):
    """The fields of a record by name: str, bool, int, float, Decimal and datetime (UTC); a null is None."""

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: Columns, row: int) -> None:
        self._columns = columns
        self._row = row

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a field of any type
        """Return a field's value; raise KeyError if there is no such field."""
        return self._columns[name][self._row]

    def __iter__(self) -> Iterator[str]:
        """Go through the names of the fields."""
        return iter(self._columns.table.column_names)

    def __len__(self) -> int:
        """Return how many fields there are."""
        return self._columns.table.num_columns  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Record({dict(self)!r})"
