"""What an aggregate is to an operator: columns of state, and SQL that makes, merges and ends them."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.core.duck import identifier


@dataclass(frozen=True)
class Accumulator:
    """One column of state: `begin` makes it of records, the function `merge` of accumulators.

    `around` is what is done to what `merge` gives, which stands for the ``{}`` in it.
    """

    column: str
    begin: str
    merge: str
    around: str = "{}"

    def merged(self, over: str = "") -> str:
        """Return the SQL that merges the column, over a window of rows if one is named."""
        return self.around.replace("{}", f"{self.merge}({identifier(self.column)}){over}")


@dataclass(frozen=True)
class Fold:
    """An aggregate: its accumulators, and the SQL that makes the result of them."""

    name: str
    accumulators: tuple[Accumulator, ...]
    finish: str


@dataclass(frozen=True)
class Input:
    """What an aggregate is over: a column as SQL, its DuckDB type with decimals unscaled, and what its values mean.

    `scale` is how many digits a decimal has behind the point, None for what is none.
    """

    sql: str
    type: str
    scale: int | None
    nullable: bool

    @property
    def is_double(self) -> bool:
        """Whether it is a number that sums take inexactly."""
        return self.type == "DOUBLE"

    @property
    def given(self) -> str:
        """The clause that leaves out records without a value."""
        return f" FILTER (WHERE {self.sql} IS NOT NULL)" if self.nullable else ""
