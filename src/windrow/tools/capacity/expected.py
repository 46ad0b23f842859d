"""Rates and state that a model expects of the nodes of a pipeline under a load."""

from __future__ import annotations

from dataclasses import dataclass

from windrow import model as m
from windrow.tools.capacity.load import Behind


@dataclass(frozen=True)
class Held:
    """State of one kind: rows, the blobs that they are in, and how many of both are written a second.

    The rows of results are alike, those of records (`are_records`) are not, and so take more when compressed.
    """

    kind: str
    rows: float
    blobs: float
    written_rows: float
    written_blobs: float
    are_records: bool = False


@dataclass(frozen=True)
class NodeExpected:
    """Rates of a node, a second: its input and output; and its state.

    `taken` are records, `pairs` those of a record and a window. `inserts` and `updates` are changes of rows, `deletes`
    rows that go; `late` and `expired` are pairs. `given` are records for the nodes behind it. `doubts` say why a figure
    is only within a factor of 2, `unknown` why the state cannot be planned.
    """

    node: m.KeyedNode | m.SinkNode
    taken: float
    pairs: float = 0.0
    held: tuple[Held, ...] = ()
    inserts: float = 0.0
    updates: float = 0.0
    deletes: float = 0.0
    late: float = 0.0
    expired: float = 0.0
    given: float = 0.0
    doubts: tuple[str, ...] = ()
    unknown: str | None = None
    changelog: float = 0.0
    """Rows of the changelog a second."""

    @property
    def rows(self) -> float:
        """The rows of state."""
        return sum(one.rows for one in self.held)

    @property
    def rows_made(self) -> float:
        """The rows of results a second."""
        return self.inserts + self.updates + self.deletes


@dataclass(frozen=True)
class Setting:
    """How a pipeline is run: seconds of a step, and key groups."""

    step: float
    groups: int


@dataclass(frozen=True)
class Inflow:
    """Records on their way to a node: how many a second, how far behind, and by which delay and lateness of theirs.

    `doubts` are those of the nodes that made them.
    """

    rate: float
    behind: Behind
    delay: float
    expired: float = 0.0
    doubts: tuple[str, ...] = ()
