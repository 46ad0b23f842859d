"""The Delta sink. Each step is one commit per table, and the result tables are committed last."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from windrow.connectors import ownership
from windrow.connectors.database import Condition
from windrow.connectors.delta.admin import DeltaSnapshot
from windrow.connectors.delta.connector import DeltaSink
from windrow.connectors.delta.folder import DeltaFolder, Write, commit_files
from windrow.connectors.delta.merge import append, merge
from windrow.connectors.sink import Follows, Run, Sink
from windrow.connectors.step_folder import by_partition, refuse_folder, refuse_unwritable, try_parquet
from windrow.connectors.tables import in_order, layout, of_epoch, quote_all, storable_dead
from windrow.connectors.unfit import refused_rows, without_unfit, write_reason
from windrow.engine.changelog import StepOutput
from windrow.engine.schema import CLOCKS, NO_DEAD
from windrow.errors import SinkError
from windrow.expressions import SinkSpec

FolderWrite = tuple[DeltaFolder, Write]


class DeltaTables(Sink):
    """Result tables and their companions as Delta tables, each in a folder of its name, readable by any Delta reader.

    Exactly once: each table receives a step in one commit, with the epoch as its application transaction. Delta has no
    transactions across tables, so the companions are committed first and the result tables last, and the epoch of the
    result tables counts as that of the run. A run that dies between two commits writes the step again, and the tables
    that already have its epoch ignore it. A reader may therefore see a step in the changelog before it appears in the
    result table.

    A step is on disk (fsync) when `commit` returns. The driver writes the rows.
    """

    needs_rows = True

    def __init__(self, *specs: SinkSpec) -> None:
        self._tables = [DeltaResult(spec) for spec in specs]
        self._path = self._tables[0].sink.path
        self._pipeline = specs[0].pipeline
        self._run: Run | None = None
        self._is_open = False
        self.is_even = True
        self._id = str(uuid.uuid4())

    @property
    def _name(self) -> str:
        return self._tables[0].sink.table

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        self.close()
        # all tables are checked before one is changed
        handed_over = self._may_open(run, follows)
        # in the order of a step's commits: if a step is committed meanwhile, the claim of one of its tables conflicts
        # before the owner of a result table, to which the step belongs, has changed
        epochs = [follows.epoch if follows is not None and is_handed_over else None for is_handed_over in handed_over]
        for table, epoch in zip(self._tables, epochs, strict=True):
            for folder in table.companions:
                folder.claim(run, self._id, epoch)
        for table, epoch in zip(self._tables, epochs, strict=True):
            table.result.claim(run, self._id, epoch, table.origin)
        self._run, self._is_open = run, True
        last = self._last(run)
        self.is_even = {table.last_of_any(run) for table in self._tables} == {last}
        return last

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        self._may_open(run, follows)
        refuse_unwritable(Path(self._path).absolute())

    def _may_open(self, run: Run, follows: Follows | None) -> list[bool]:
        """Return whether each table is handed over to the run; raise SinkError unless the run may write them all."""
        refuse_folder(Path(self._path).absolute())
        found = [table.find(run) for table in self._tables]
        if self._run == run:
            ownership.still_opened(self._id, self._tables[0].result.opener, self._name)
        handed_over = [
            ownership.authorize(run, table.layout.own, there, follows, table.origin)
            for table, there in zip(self._tables, found, strict=True)
        ]
        for table in self._tables:
            ownership.refuse([mismatch for folder in table.folders for mismatch in folder.mismatches()])
        return handed_over

    def _last(self, run: Run) -> int | None:
        """Return the last epoch that is committed to all result tables."""
        last = [table.result.last(run) for table in self._tables]
        return None if None in last else min(epoch for epoch in last if epoch is not None)

    def journal(self) -> pa.Table:
        """Return the clock journal in epoch order, without interrupted steps; empty if nothing was committed."""
        result, clocks = self._tables[0].result, self._tables[0].clocks
        if not (result.read() and clocks.read()) or (last := result.last(result.owner)) is None:
            return CLOCKS.empty_table()
        rows = clocks.query(
            f"SELECT {quote_all(CLOCKS.names)} FROM delta WHERE epoch <= {last} "
            'ORDER BY epoch, partition, "offset", reason'
        )
        return pa.concat_tables([CLOCKS.empty_table(), *(pa.Table.from_batches([row]).cast(CLOCKS) for row in rows)])

    def clear(self) -> None:
        """Empty the pipeline's tables and delete their epochs; raise SinkError if another pipeline owns them.

        Former versions stay readable until they are vacuumed.
        """
        self.close()
        self._run = None
        for table in self._tables:
            ownership.may_clear(self._pipeline, table.sink.table, table.find(Run(self._pipeline, "")))
        for table in self._tables:
            for folder in table.folders:
                if folder.read():
                    folder.empty(self._pipeline)

    def commit(self, epoch: int, *outputs: StepOutput) -> list[pa.Table]:
        """Write a step, the result tables last; do nothing if its epoch was already committed."""
        run = self._run
        if run is None or not self._is_open:
            msg = "the sink is not open: call open() before commit()"
            raise SinkError(msg)
        for table in self._tables:
            table.result.read()
            self._check(table.result)
        if not ownership.is_new(epoch, self._last(run), self._name):
            return [NO_DEAD for _ in self._tables]
        steps = [table.step(epoch, output) for table, output in zip(self._tables, outputs, strict=True)]
        companions = [write for _, others, _ in steps for write in others]
        for folder, write in (*companions, *(result for result, _, _ in steps)):
            folder.commit(run, epoch, self._check, write)
        return [refused for _, _, refused in steps]

    def _check(self, folder: DeltaFolder) -> None:
        """Raise SinkError unless this sink was the last to open the table and its run still owns the table."""
        if self._run is None:
            raise TypeError(self._run)
        ownership.still_owned(self._run, folder.owner, folder.table.name)
        ownership.still_opened(self._id, folder.opener, folder.table.name)

    def close(self) -> None:
        self._is_open = False


class DeltaResult:
    """A result table and its companions as Delta tables."""

    def __init__(self, spec: SinkSpec) -> None:
        if not isinstance(spec.sink, DeltaSink):
            raise TypeError(spec.sink)
        self.sink, self.origin = spec.sink, ownership.Origin.of(spec)
        self.layout = layout(spec)
        self.folders = [DeltaFolder(self.sink.path, table) for table in self.layout.own]
        self.result, *self.companions = self.folders
        self._changes, self._late, self._dead, self.clocks = self.companions
        # the key of a record is its place in the log: it is inserted once
        self._may_append = spec.rows.kind == "records"

    def find(self, run: Run) -> ownership.FoundTables:
        """Describe the existing tables, their owner and epochs, before a run opens them."""
        present = [folder for folder in self.folders if folder.read()]
        owner = self.result.owner
        return ownership.FoundTables(
            owner=owner,
            owner_last=self.last_of_any(owner),
            last=self.result.last(run),
            elsewhere=None,
            present=[folder.table.name for folder in present],
            filled=[folder.table.name for folder in self.folders if folder.is_filled],
            origin=self.result.origin,
        )

    def last_of_any(self, run: Run | None) -> int | None:
        """Return a run's last epoch in any of the tables; after an interrupted step, companions may be one ahead."""
        return max((last for folder in self.folders if (last := folder.last(run)) is not None), default=None)

    def step(self, epoch: int, output: StepOutput) -> tuple[FolderWrite, list[FolderWrite], pa.Table]:
        """Return the writes of a step: that of the result table, and those of the companions that receive rows.

        Also return the dead letters of rows that cannot be written.
        """
        try:
            return *self._writes(epoch, output), NO_DEAD
        except Exception as exc:
            if write_reason(exc) is None:
                raise
            reasons = refused_rows(self._try_write, output.changes, write_reason)
            output, refused = without_unfit(self.result.table, output, reasons, self._stored, self.origin.stream)
            if not refused.num_rows:
                raise
        return *self._writes(epoch, output), refused

    def _writes(self, epoch: int, output: StepOutput) -> tuple[FolderWrite, list[FolderWrite]]:
        """Write the files of a step that do not depend on others; return the writes that commit them."""
        changes = output.changes
        rows = [
            (self._late, output.late),
            (self._dead, storable_dead(output.dead)),
            (self.clocks, of_epoch(epoch, output.clocks)),
        ]
        if self.sink.changelog:
            rows.insert(0, (self._changes, in_order(epoch, changes)))
        else:
            # before a companion is committed
            self._try_write(changes)
        appended = [(folder, append(folder, table)) for folder, table in rows if table.num_rows]
        return (self.result, self._apply(changes)), appended

    def _try_write(self, changes: pa.Table) -> None:
        """Raise the error with which changes cannot be written."""
        try_parquet(changes, self.result.table.lists)
        deque(by_partition(changes, self.sink.partition_by), maxlen=0)

    def _stored(self, where: Sequence[Condition]) -> pa.Table:
        """Return the rows of the result table that satisfy all conditions."""
        return DeltaSnapshot(self.sink.path).stored(self.result.table, where)

    def _apply(self, changes: pa.Table) -> Write:
        """Return a write that applies the changes of a step to the result table."""
        table = self.result.table
        if not changes.num_rows:
            return commit_files
        if self._may_append and pc.all(pc.equal(changes["op"], "insert")).as_py():
            return append(self.result, changes)
        return merge(table, changes)
