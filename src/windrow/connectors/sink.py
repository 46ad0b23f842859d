"""The interface of a sink: each step is written exactly once, in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from windrow.engine.changelog import StepOutput, reason_kinds


@dataclass(frozen=True)
class Run:
    """The identity of a run: the name of its pipeline, and the id that was generated with its checkpoint."""

    pipeline: str
    id: str

    @staticmethod
    def new(pipeline: str) -> Run:
        """Return a run of a pipeline with a new id."""
        return Run(pipeline, str(uuid.uuid4()))


@dataclass(frozen=True)
class Follows:
    """The run from which another run resumes, and the last epoch that it committed."""

    run: Run
    epoch: int


class Sink(Protocol):
    """Result tables in one database, each with its companions. Most sinks have a single result table.

    Exactly once: a step and its epoch are committed in one transaction across all tables. If `needs_rows` is False, the
    sink discards rows, so it receives steps without them.

    The rows of a step may not fit into memory. In this case, their tables are memory-mapped from files that Spark tasks
    have written. A sink reads them in batches, and changes with `windrow.connectors.tables.pieces`.

    Only the driver writes to a database. A sink that many processes can write to (a topic, a table of files) may let
    tasks write its rows under the following rules. A task writes to a place where no reader looks yet. The name of this
    place contains the run, the epoch, the key group and a unique id, since a task can run twice, even concurrently. The
    task returns the names of its files, a few KB, which `commit` receives instead of the rows. `commit` publishes them
    all at once, together with the epoch, and only if the sink is still the last one that was opened. `open` removes
    files that do not belong to a committed epoch, and must expect that tasks of a previous opener are still writing.
    """

    needs_rows: bool
    is_even: bool
    """Whether all tables had the same steps when they were opened; False only if commits do not span all tables."""

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Create missing tables; return the last epoch that this run committed, or None.

        A run that `follows` another run takes over its tables, which must be at exactly that epoch, and continues with
        the next epoch. The other run is refused from then on. If the new owner opens the tables again, they do not
        change.

        Only the process that opened the tables last may write to them. Any other process that has them open for the
        same run, such as an abandoned driver, is refused when it next commits or opens them.

        Raise SinkError if the database cannot be reached or written to, or if the tables contain another run's rows.
        """
        ...

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        """Raise the errors of `open` that can be detected without writing; create and lock nothing."""
        ...

    def journal(self) -> pa.Table:
        """Return the clock journal of the first table (`windrow.engine.schema.CLOCKS`), ordered by epoch, of any run.

        The sink need not be open, and nothing is changed. If the table does not exist, the journal is empty.
        """
        ...

    def clear(self) -> None:
        """Drop the tables and their epochs in one transaction, for a fresh start. Must be called before `open`.

        Raise SinkError if the tables belong to another pipeline.
        """
        ...

    def commit(self, epoch: int, *outputs: StepOutput) -> Sequence[pa.Table] | None:
        """Write a step, with one output for each result table in order; do nothing if its epoch was already committed.

        Return, for each table, the dead letters of rows that the table cannot hold, which are written instead of these
        rows. Return None if there can be none.

        Epochs increase from 0 without gaps. Raise SinkError if epochs before this one are missing, since rows would be
        missing.
        """
        ...

    def close(self) -> None:
        """Close all connections. May be called more than once."""
        ...


class SinkGroup:
    """The sinks of a run. Each is paired with the names of the graph's sinks whose tables it writes, in order.

    Each database has its own transaction and fence, and the databases commit one after the other. A run that dies
    between two commits computes the step again, and sinks that have already committed it ignore it.
    """

    def __init__(self, *sinks: tuple[Sequence[str], Sink]) -> None:
        self._sinks = sinks
        self.is_even = True
        """Whether all tables had the same steps when they were opened; otherwise, some tables are one step ahead."""

    @staticmethod
    def of(sink: Sink | SinkGroup) -> SinkGroup:
        """Return a group of sinks; a single sink becomes a group with one unnamed sink."""
        return sink if isinstance(sink, SinkGroup) else SinkGroup(([""], sink))

    @property
    def needs_rows(self) -> bool:
        """Whether any of the sinks needs the rows of a step."""
        return any(sink.needs_rows for _, sink in self._sinks)

    def __iter__(self) -> Iterator[tuple[Sequence[str], Sink]]:
        return iter(self._sinks)

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Open all sinks; return the last epoch that this run committed to all of them, or None."""
        last = [sink.open(run, follows) for _, sink in self._sinks]
        self.is_even = len(set(last)) == 1 and all(sink.is_even for _, sink in self._sinks)
        return None if None in last else min(epoch for epoch in last if epoch is not None)

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        """Raise the errors of `open` that can be detected without writing."""
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
        """Write a step; `outputs` has the output for each of the graph's sinks by name.

        Return the number of rows that the table of each sink cannot hold, by sink name and kind of reason.
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
