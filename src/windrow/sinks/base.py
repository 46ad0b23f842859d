"""The sink contract: a step is written in one transaction, and no step twice."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from windrow.core.changelog import StepOutput


@dataclass(frozen=True)
class Run:
    """The identity of a run: the pipeline's name, and the id that its checkpoint got when it was created."""

    pipeline: str
    id: str

    @staticmethod
    def new(pipeline: str) -> Run:
        """Return a run that is no other."""
        return Run(pipeline, str(uuid.uuid4()))


@dataclass(frozen=True)
class Follows:
    """The run that another one resumes from, and the last epoch that it committed."""

    run: Run
    epoch: int


class Sink(Protocol):
    """A table and its companions. Exactly once: a step and its epoch are committed in one transaction.

    One that drops all that it is given has `needs_rows` False, and is given steps without rows.
    """

    needs_rows: bool

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Create what is missing; return the last epoch that this run committed, or None.

        A run that `follows` another one is given its tables, which must be at exactly that epoch, and goes on with the
        next; the other run is refused from then on. Opened again by their new owner, the tables are as they are.

        Raise SinkError if it cannot be reached or written, or if the tables hold another run's rows.
        """
        ...

    def journal(self) -> pa.Table:
        """Return the clock journal that is there (`windrow.core.schema.CLOCKS`), by epoch; whoever wrote the tables.

        It needs no `open`, and changes nothing; without tables it is empty.
        """
        ...

    def clear(self) -> None:
        """Forget all that this pipeline wrote to its table, for a fresh start; call it before `open`.

        Drops the tables and their epochs in one transaction. Raise SinkError if the tables are not the pipeline's.
        """
        ...

    def commit(self, epoch: int, output: StepOutput) -> None:
        """Write a step; an epoch that is already there changes nothing.

        Epochs count up from 0 without a gap; raise SinkError for one that leaves a gap, since rows would be missing.
        """
        ...

    def close(self) -> None:
        """Close connections; may be called more than once."""
        ...
