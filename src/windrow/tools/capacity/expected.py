"""Values of the capacity model: the expected rates and state of the nodes of a pipeline under a load."""

from __future__ import annotations

from dataclasses import dataclass

from windrow import model as m
from windrow.tools.capacity.load import Behind


@dataclass(frozen=True)
class StateRows:
    """State of one kind: its rows, the blobs that hold them, and how many rows and blobs are written per second.

    Result rows resemble each other. Records (`are_records`) do not, so they compress less well.
    """

    kind: str
    rows: float
    blobs: float
    written_rows: float
    written_blobs: float
    are_records: bool = False


@dataclass(frozen=True)
class NodeExpected:
    """Expected input, output and state of a node; rates are per second.

    `taken` counts input records, and `pairs` the pairs of a record and a window. `inserts`, `updates` and `deletes` are
    changes of result rows, and `changelog` is the number of changelog rows written for them. `late` and `expired` count
    pairs. `output` counts records for downstream nodes. `doubts` say why a figure is accurate only within a factor of
    2, and `unknown` why the state cannot be planned.
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
        """Number of rows of state."""
        return sum(kind.rows for kind in self.state)

    @property
    def result_rows(self) -> float:
        """Number of result rows per second."""
        return self.inserts + self.updates + self.deletes


@dataclass(frozen=True)
class Input:
    """Records on their way to a node: their rate per second, their disorder, and the delay of their source in seconds.

    `expired` is the rate of records that the lateness of their source excludes; `doubts` come from the upstream nodes.
    """

    rate: float
    behind: Behind
    delay: float
    expired: float = 0.0
    doubts: tuple[str, ...] = ()
