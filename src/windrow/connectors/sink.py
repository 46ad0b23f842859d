"""The contract of a sink: each step is written in one transaction, once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from windrow.engine.changelog import StepOutput, reason_kinds


@dataclass(frozen=True)
class Run:
    """The identity of a run: the pipeline's name, and the id that its checkpoint got when it was created."""

    pipeline: str
    id: str

    @staticmethod
    def new(pipeline: str) -> Run:
        """Return a run with a new id."""
        return Run(pipeline, str(uuid.uuid4()))


@dataclass(frozen=True)
class Follows:
    """The run that another one resumes from, and the last epoch that it committed."""

    run: Run
    epoch: int


class Sink(Protocol):
    """Result tables in one database, each with its companions; most sinks have one result table.

    Exactly once: a step and its epoch are committed in one transaction over all tables. A sink that drops its rows has
    `needs_rows` False and receives steps without rows.

    The rows of a step may not fit into memory: their tables are then mapped from files that Spark's tasks have written.
    A sink reads them in batches, and changes in `windrow.connectors.tables.pieces`.

    The driver alone writes to a database. A sink that many processes can write to (a topic, a table of files) may let
    tasks write its rows under these rules. A task writes where no reader looks yet, under a name made of the run, the
    epoch, the key group and an id of its own, since a task can run twice, even at the same time. It returns the names
    of its files, a few KB, which `commit` receives in place of the rows. `commit` publishes them all at once, together
    with the epoch, and only if the sink is still the last one that was opened. `open` removes files that no epoch
    names, and assumes nothing about tasks of a former opener that still write.
    """

    needs_rows: bool
    is_even: bool
    """Whether all tables had the same steps when they were opened; False only if commits do not span all tables."""

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Create what is missing; return the last epoch that this run committed, or None.

        A run that `follows` another one takes over its tables, which must be at exactly that epoch, and continues with
        the next; the other run is refused from then on. Opened again by their new owner, the tables are unchanged.

        Only the last opener of the tables may write to them: another process that has them open for the same run, such
        as an abandoned driver, is refused at its next commit, and when it opens them again.

        Raise SinkError if the database cannot be reached or written, or if the tables hold another run's rows.
        """
        ...

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        """Raise what `open` would raise, as far as it can be known without writing; create and lock nothing."""
        ...

    def journal(self) -> pa.Table:
        """Return the clock journal of the first table (`windrow.engine.schema.CLOCKS`), by epoch, of any run.

        It needs no `open` and changes nothing; without tables it is empty.
        """
        ...

    def clear(self) -> None:
        """Drop the tables and their epochs in one transaction, for a fresh start; call it before `open`.

        Raise SinkError if the tables are not the pipeline's.
        """
        ...

    def commit(self, epoch: int, *outputs: StepOutput) -> Sequence[pa.Table] | None:
        """Write a step, an output for each result table in order; an epoch that is already there changes nothing.

        Return the dead letters of rows that a table cannot hold, by table, which are written instead of the rows; None
        if there can be none.

        Epochs count up from 0 without a gap; raise SinkError for one that leaves a gap, since rows would be missing.
        """
        ...

    def close(self) -> None:
        """Close connections; may be called more than once."""
        ...


class SinkGroup:
    """The sinks of a run, each with the names of the graph's sinks whose tables it writes, in order.

    Each database has a transaction and a fence of its own, and they are committed in order. A run that dies between two
    commits computes the step again, and sinks that have it ignore it.
    """

    def __init__(self, *sinks: tuple[Sequence[str], Sink]) -> None:
        self._sinks = sinks
        self.is_even = True
        """Whether all tables had the same steps when they were opened; otherwise some have one more."""

    @staticmethod
    def of(sink: Sink | SinkGroup) -> SinkGroup:
        """Return a group; a single sink is that of a short form."""
        return sink if isinstance(sink, SinkGroup) else SinkGroup(([""], sink))

    @property
    def needs_rows(self) -> bool:
        """Whether any sink needs rows."""
        return any(sink.needs_rows for _, sink in self._sinks)

    def __iter__(self) -> Iterator[tuple[Sequence[str], Sink]]:
        return iter(self._sinks)

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Open all sinks; return the last epoch that this run committed to all of them, or None."""
        last = [sink.open(run, follows) for _, sink in self._sinks]
        self.is_even = len(set(last)) == 1 and all(sink.is_even for _, sink in self._sinks)
        return None if None in last else min(epoch for epoch in last if epoch is not None)

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        """Raise what `open` would raise."""
        for _, sink in self._sinks:
            sink.preflight(run, follows)

    def journal(self) -> pa.Table:
        """Return the clock journal of the first sink."""
        return self._sinks[0][1].journal()

    def clear(self) -> None:
        """Clear all sinks."""
        for _, sink in self._sinks:
            sink.clear()

    def commit(self, epoch: int, outputs: Mapping[str, StepOutput]) -> dict[str, dict[str, int]]:
        """Write a step, with the output of each of the graph's sinks by name.

        Return the number of rows that the table of a sink cannot hold, by the sink's name and the kind of the reason.
        """
        refused: dict[str, pa.Table] = {}
        for names, sink in self._sinks:
            found = sink.commit(epoch, *(outputs[name] for name in names))
            refused |= zip(names, found or (), strict=False)
        return {name: reason_kinds([dead]) for name, dead in refused.items() if dead.num_rows}

    def close(self) -> None:
        """Close all sinks."""
        for _, sink in self._sinks:
            sink.close()
