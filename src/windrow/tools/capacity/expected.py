"""Values of the capacity model: rates and state that it expects of the nodes of a pipeline under a load."""

from __future__ import annotations

from dataclasses import dataclass

from windrow import model as m
from windrow.tools.capacity.load import Behind


@dataclass(frozen=True)
class StateRows:
    """State of one kind: its rows, the blobs that hold them, and how many of both are written a second.

    Rows of results are alike; those of records (`are_records`) are not, so they take more bytes when compressed.
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

    `taken` are records, `pairs` those of a record and a window. `inserts`, `updates` and `deletes` are changes of rows,
    `changelog` is the number of its rows for them; `late` and `expired` are pairs. `output` are records for downstream
    nodes. `doubts` say why a figure is only within a factor of 2, `unknown` why the state cannot be planned.
    """

    node: m.KeyedNode | m.SinkNode
    taken: float
    pairs: float = 0.0
    state: tuple[StateRows, ...] = ()
    inserts: float = 0.0
    updates: float = 0.0
    deletes: float = 0.0
    late: float = 0.0
    expired: float = 0.0
    output: float = 0.0
    doubts: tuple[str, ...] = ()
    unknown: str | None = None
    changelog: float = 0.0

    @property
    def rows(self) -> float:
        """The rows of state."""
        return sum(kind.rows for kind in self.state)

    @property
    def result_rows(self) -> float:
        """The rows of results a second."""
        return self.inserts + self.updates + self.deletes


@dataclass(frozen=True)
class Input:
    """Records on their way to a node: how many a second, how far behind, with the delay of their source (seconds).

    `expired` are those a second that the lateness of their source left out; `doubts` are those of the upstream nodes.
    """

    rate: float
    behind: Behind
    delay: float
    expired: float = 0.0
    doubts: tuple[str, ...] = ()
