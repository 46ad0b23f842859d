"""The probe of a run, which is the engine's only interface to telemetry.

A probe watches the steps of a task. Its observations leave the task as a blob that only probes of the same kind can
read: as an `Observation` on the way to the last level, and from there with the output of a key group. Results never
depend on a probe, and it has no state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from windrow.engine.changelog import StepOutput
from windrow.engine.operators.base import Judged, OperatorOutput, StepInput
from windrow.engine.watermarks.tracker import ClockAdvance


@dataclass(frozen=True)
class NodeStep:
    """A step of a node's operator in the key group `group`.

    All nodes of the level share `input` and `clocks`. `raw` has the node's records from sources with their final
    watermarks. `given` is all input of the operator, without the records of `raw` that expired because of their
    source's lateness. `judged` has these expired records and those that the operator judged itself. `made` is the
    operator's output.
    """

    group: int
    node: str
    input: StepInput
    clocks: ClockAdvance
    raw: pa.Table
    given: pa.Table
    judged: tuple[Judged, ...]
    made: OperatorOutput


class Probe(Protocol):
    """Watches one step of one task, either of the ingest or of a key group at a level."""

    def read(self, batch: pa.RecordBatch, records: pa.Table) -> None:
        """Observe a batch of raw records, and its good records with their watermarks (in the ingest)."""
        ...

    def step(self, step: NodeStep) -> None:
        """Observe an operator's step (at every level)."""
        ...

    def output(self, group: int, given: StepInput, rows: Mapping[str, StepOutput]) -> None:
        """Observe the rows of each sink (at the last level); `given` has the dead letters of all levels."""
        ...

    def blob(self) -> bytes | None:
        """Return the packed observations, or None if there are none."""
        ...


OpenProbe = Callable[[], Probe]
"""Opens the probe of a step."""


class NoProbe:
    """Observes nothing; a base class for probes that observe only parts of a step."""

    def read(self, batch: pa.RecordBatch, records: pa.Table) -> None:
        """Ignore a batch."""

    def step(self, step: NodeStep) -> None:
        """Ignore the step of an operator."""

    def output(self, group: int, given: StepInput, rows: Mapping[str, StepOutput]) -> None:
        """Ignore the rows of the sinks."""

    def blob(self) -> bytes | None:
        """Return None, because nothing is observed."""
        return None
