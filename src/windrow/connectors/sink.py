"""The sink contract: a step is written in one transaction, and no step twice."""

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
        """Return a run that is no other."""
        return Run(pipeline, str(uuid.uuid4()))


@dataclass(frozen=True)
class Follows:
    """The run that another one resumes from, and the last epoch that it committed."""

    run: Run
    epoch: int


class Sink(Protocol):
    """Result tables in one database, each with its companions; most have one.

    Exactly once: a step and its epoch are committed in one transaction over all of the tables. A sink that drops its
    rows has `needs_rows` False, and is given steps without rows.

    The rows of a step can be more than fit into memory: their tables are then mapped from files that Spark's tasks have
    written. A sink takes them in batches, and changes in `windrow.connectors.tables.pieces`.

    One database is written by the driver alone. A sink that many processes can write to (a topic, a table of files)
    may have tasks write its rows, if it keeps these rules. A task writes where no reader looks yet, under a name made
    of the run, the epoch, the key group and an id of its own, since a task can run twice, also at the same time. It
    returns what names the written, a few KB, which comes to `commit` in the place of the rows. `commit` makes what
    these names stand for visible at once, together with the epoch, and only if the sink is still the last to have been
    opened. `open` removes what no epoch names; nothing is assumed about tasks of an older opener that still write.
    """

    needs_rows: bool
    is_even: bool
    """Whether all tables had the same steps when they were opened; False only where a commit is not over all tables."""

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Create what is missing; return the last epoch that this run committed, or None.

        A run that `follows` another one is given its tables, which must be at exactly that epoch, and goes on with the
        next; the other run is refused from then on. Opened again by their new owner, the tables are as they are.

        Who has opened the tables last may write them: another process that has them open for the same run, such as a
        driver that was given up, is refused at its next commit, and when it opens them again.

        Raise SinkError if it cannot be reached or written, or if the tables hold another run's rows.
        """
        ...

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        """Raise what `open` would raise, as far as that is known without writing; nothing is created or locked."""
        ...

    def journal(self) -> pa.Table:
        """Return the clock journal of the first table (`windrow.engine.schema.CLOCKS`), by epoch; whoever wrote it.

        It needs no `open`, and changes nothing; without tables it is empty.
        """
        ...

    def clear(self) -> None:
        """Forget all that this pipeline wrote to its table, for a fresh start; call it before `open`.

        Drops the tables and their epochs in one transaction. Raise SinkError if the tables are not the pipeline's.
        """
        ...

    def commit(self, epoch: int, *outputs: StepOutput) -> Sequence[pa.Table] | None:
        """Write a step, an output for each result table in order; an epoch that is already there changes nothing.

        Return the dead letters of rows that a table cannot hold, by table, which are written in the place of the rows;
        None if there can be none.

        Epochs count up from 0 without a gap; raise SinkError for one that leaves a gap, since rows would be missing.
        """
        ...

    def close(self) -> None:
        """Close connections; may be called more than once."""
        ...


class SinkGroup:
    """The sinks of a run: each with the names of the graph's sinks that its tables are of, in order.

    Each database has a transaction and a fence of its own, and they are committed in order. A run that dies between two
    computes the step again, and those that have it already ignore it.
    """

    def __init__(self, *sinks: tuple[Sequence[str], Sink]) -> None:
        self._sinks = sinks
        self.is_even = True
        """Whether all tables had the same steps when they were opened; else some have one more."""

    @staticmethod
    def of(sink: Sink | SinkGroup) -> SinkGroup:
        """Return a group, or a sink as the only one of a short form."""
        return sink if isinstance(sink, SinkGroup) else SinkGroup(([""], sink))

    @property
    def needs_rows(self) -> bool:
        """Whether any of them needs rows."""
        return any(sink.needs_rows for _, sink in self._sinks)

    def __iter__(self) -> Iterator[tuple[Sequence[str], Sink]]:
        return iter(self._sinks)

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Open all; return the last epoch that this run committed to every one of them, or None."""
        last = [sink.open(run, follows) for _, sink in self._sinks]
        self.is_even = len(set(last)) == 1 and all(sink.is_even for _, sink in self._sinks)
        return None if None in last else min(epoch for epoch in last if epoch is not None)

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        """Raise what `open` would raise, as `Sink.preflight` does."""
        for _, sink in self._sinks:
            sink.preflight(run, follows)

    def journal(self) -> pa.Table:
        """Return the clock journal of the first."""
        return self._sinks[0][1].journal()

    def clear(self) -> None:
        """Clear all, as `Sink.clear` does."""
        for _, sink in self._sinks:
            sink.clear()

    def commit(self, epoch: int, outputs: Mapping[str, StepOutput]) -> dict[str, dict[str, int]]:
        """Write a step, with the output of each of the graph's sinks by name, as `Sink.commit` does.

        Return how many rows the table of a sink cannot hold, by the sink's name and the kind of the reason.
        """
        refused: dict[str, pa.Table] = {}
        for names, sink in self._sinks:
            found = sink.commit(epoch, *(outputs[name] for name in names))
            refused |= zip(names, found or (), strict=False)
        return {name: reason_kinds([dead]) for name, dead in refused.items() if dead.num_rows}

    def close(self) -> None:
        """Close all."""
        for _, sink in self._sinks:
            sink.close()
