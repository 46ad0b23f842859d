"""The probe of a run: all that the engine knows of telemetry.

A probe watches the steps of a task. Its observations leave the task as a blob that only its own kind reads: as an
`Observation` on its way to the last level, and from there with the output of a key group. No result depends on it, and
it has no state.
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
    """The step of a node's operator in the key group `group`.

    `input` and `clocks` are those of all nodes of the level. `raw` are the node's records of sources with their final
    watermarks, `given` all input of the operator: without those of `raw` that were expired by the lateness of their
    source. These are in `judged`, with the records that the operator has judged itself. `made` is its output.
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
    """Watches one step of one task: of an ingest, or of a key group at a level."""

    def read(self, batch: pa.RecordBatch, records: pa.Table) -> None:
        """Observe a batch of raw records, and its good records with their watermarks (ingest)."""
        ...

    def step(self, step: NodeStep) -> None:
        """Observe the step of an operator (each level)."""
        ...

    def output(self, group: int, given: StepInput, rows: Mapping[str, StepOutput]) -> None:
        """Observe the rows of each sink; the dead letters of `given` are those of all levels (the last level)."""
        ...

    def blob(self) -> bytes | None:
        """Return the observations, packed, or None."""
        ...


OpenProbe = Callable[[], Probe]
"""Opens the probe of a step."""


class NoProbe:
    """Observes nothing; the base class of probes that observe some parts of a step."""

    def read(self, batch: pa.RecordBatch, records: pa.Table) -> None:
        """Ignore a batch."""

    def step(self, step: NodeStep) -> None:
        """Ignore the step of an operator."""

    def output(self, group: int, given: StepInput, rows: Mapping[str, StepOutput]) -> None:
        """Ignore the rows of the sinks."""

    def blob(self) -> bytes | None:
        """Return nothing."""
        return None
