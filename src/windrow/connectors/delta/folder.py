"""A Delta table in its folder: its owner, its last epoch, and commits by only the last sink that opened it.

The table's properties record its owner: `windrow.pipeline`, `windrow.run`, `windrow.opener` (the id of the sink that
opened it last), `windrow.key` (the primary key of a result table, as a JSON list) and `windrow.origin` (the origin of a
result table, as JSON). In Delta's protocol, the version of the application transaction `windrow:PIPELINE:RUN` is the
last epoch that the run committed, or -1.

The fence: a commit reads the newest version and checks the properties and the epoch there. It then either becomes the
next version or fails, since a version file is created only if it does not exist (Delta's `PROTOCOL.md`, "Delta Log
Entries"). By default, Delta Lake moves a commit behind concurrent commits if it detects no conflict. Setting
`max_commit_retries` to 0 turns this off, because Delta Lake does not detect that a concurrent compaction has replaced a
file that the commit removes. Each sink that opens the table changes the properties in a commit of its own. An abandoned
writer therefore either fails the check or, if the new sink opens the table after the check, finds its version taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from windrow.connectors.log.segments import sync_path
from windrow.connectors.ownership import Existing, Origin, SchemaMismatch, relaxable, schema_mismatches
from windrow.connectors.sink import Run
from windrow.connectors.tables import Table
from windrow.errors import SinkAddressError, SinkError, SinkUnavailableError

PIPELINE, RUN, OPENER, KEY = "windrow.pipeline", "windrow.run", "windrow.opener", "windrow.key"
ORIGIN = "windrow.origin"

Write = Callable[["DeltaFolder", deltalake.CommitProperties], None]
"""Changes a table in a single commit with these properties."""

ATTEMPTS = 10
"""Attempts to commit while others, such as a compaction, commit to the table at the same time."""
_NONE = -1


class DeltaFolder:
    """A Delta table, which may not exist yet.

    All properties refer to the version that the last call to `read` loaded.
    """

    def __init__(self, root: str, table: Table) -> None:
        self.table = table
        self.path = Path(root).absolute() / table.name
        self.uri = str(self.path)
        self._found: deltalake.DeltaTable | None = None
        self._seen: tuple[int, int, int] | None = None

    def read(self) -> bool:
        """Load the newest version; return True if the table exists. Raise SinkError if it cannot be read."""
        with translate_errors(self.uri):
            # to Delta, a folder that was removed looks unchanged, and a folder that was created anew looks ahead
            if self._found is not None and self._seen is not None and self._identity(self._seen[0]) == self._seen:
                self._found.update_incremental()
            else:
                try:
                    self._found = deltalake.DeltaTable(self.uri)
                except TableNotFoundError:
                    self._found = None
            self._seen = None if self._found is None else self._identity(self._found.version())
        return self._found is not None

    def _identity(self, version: int) -> tuple[int, int, int] | None:
        """Identify the log file of a version by its inode and modification time; None if the file does not exist."""
        try:
            stat = self._log(version).stat()
        except FileNotFoundError:
            return None
        return version, stat.st_ino, stat.st_mtime_ns

    def _log(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020}.json"

    @property
    def delta(self) -> deltalake.DeltaTable:
        """The loaded table; raise SinkError if it does not exist."""
        if self._found is None:
            msg = (
                f"there is no Delta table {self.uri}: was it removed while the run was writing? Start over with --fresh"
            )
            raise SinkError(msg)
        return self._found

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties, empty if the table does not exist."""
        return {} if self._found is None else self._found.metadata().configuration

    @property
    def owner(self) -> Run | None:
        """The run that owns the table. Its id is empty if the table was emptied."""
        found = self.properties
        return Run(found[PIPELINE], found[RUN]) if PIPELINE in found else None

    @property
    def opener(self) -> str | None:
        """The id of the sink that opened the table last."""
        return self.properties.get(OPENER)

    @property
    def origin(self) -> Origin | None:
        """The table's origin, or None if it was not recorded."""
        return Origin.read(self.properties.get(ORIGIN))

    def last(self, run: Run | None) -> int | None:
        """Return the last epoch that a run committed to the table, or None if it committed none."""
        if run is None or self._found is None:
            return None
        epoch = self._found.transaction_version(application(run))
        return None if epoch is None or epoch == _NONE else epoch

    @property
    def is_filled(self) -> bool:
        """Whether the table has rows. If there is no table, whether its folder has files, which VACUUM would delete."""
        if self._found is None:
            return self.path.is_dir() and any(path.name != "_delta_log" for path in self.path.iterdir())
        return self._found.count() > 0

    def query(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Run a DataFusion SQL query, in which the table is called `delta`."""
        with translate_errors(self.uri):
            found = deltalake.QueryBuilder().register("delta", self.delta).execute(sql)
            yield from pa.RecordBatchReader.from_stream(found)

    def mismatches(self) -> Iterator[SchemaMismatch]:
        """Yield the differences between the existing table and the expected one, without SQL statements to fix them."""
        if self._found is None:
            return
        if features := self._found.protocol().reader_features:
            what = (
                f"table {self.table.name!r} uses the Delta features {', '.join(features)}, which windrow cannot write"
            )
            yield SchemaMismatch(what)
        partitions = tuple(self._found.metadata().partition_columns)
        if partitions != self.table.partition_by:
            what = (
                f"table {self.table.name!r} is partitioned by {', '.join(partitions) or 'nothing'}, not "
                f"{', '.join(self.table.partition_by) or 'nothing'}"
            )
            yield SchemaMismatch(what)
        key = json.loads(self.properties.get(KEY) or json.dumps(self._key))
        schema = self._found.schema()
        required = self._required - set(self._relaxable)
        there = Existing(_types(schema), key, required, (), lambda *_: "")
        expected = replace(self.table, key=tuple(self._key))
        for schema_mismatch in schema_mismatches(
            expected, _types(deltalake.Schema.from_arrow(self.table.stored)), there
        ):
            yield schema_mismatch._replace(statements="")

    @property
    def _required(self) -> set[str]:
        return {field.name for field in self.delta.schema().fields if not field.nullable}

    @property
    def _relaxable(self) -> list[str]:
        return relaxable(self.table, self._required)

    @property
    def _key(self) -> Sequence[str]:
        """The primary key by which rows are merged; empty for a table that is only appended to."""
        return () if "epoch" in self.table.key else self.table.key

    def claim(self, run: Run, opener: str, last: int | None, origin: Origin | None = None) -> None:
        """Make a run the owner of the table, creating the table if it does not exist.

        `last` is recorded as the run's last epoch; if it is None, the run keeps the epoch recorded in the table.
        `origin` is set for result tables only.
        """
        last = self.last(run) if last is None else last
        configuration = {PIPELINE: run.pipeline, RUN: run.id, OPENER: opener, KEY: json.dumps(list(self._key))}
        configuration |= {} if origin is None else {ORIGIN: origin.text()}
        properties = _properties(run, _NONE if last is None else last)
        before = 0 if self._found is None else self._found.version()
        with translate_errors(self.uri):
            if self._found is None:
                self._found = deltalake.DeltaTable.create(
                    self.uri,
                    self.table.stored,
                    partition_by=list(self.table.partition_by),
                    configuration=configuration,
                    commit_properties=properties,
                    raise_if_key_not_exists=False,
                )
            else:
                for name in self._relaxable:
                    self._found.alter.drop_column_not_null(name)
                self._found.alter.set_table_properties(
                    configuration, raise_if_not_exists=False, commit_properties=properties
                )
        self._sync(before)

    def empty(self, pipeline: str) -> None:
        """Remove all rows, former columns and the owner as new versions of the same table.

        Keeping the table's history means that a process which still has the table open is refused. In a new folder, its
        commits could mix with those of the new owner.
        """
        owner, before = self.owner or Run(pipeline, ""), self.delta.version()
        with translate_errors(self.uri):
            # first, so that no run adds rows; if killed before the next commit, the pipeline may empty the table again
            self.delta.alter.set_table_properties(
                {PIPELINE: pipeline, RUN: "", OPENER: "", KEY: "", ORIGIN: ""}, raise_if_not_exists=False
            )
            deltalake.write_deltalake(
                self.delta,
                self.table.stored.empty_table(),
                mode="overwrite",
                schema_mode="overwrite",
                partition_by=list(self.table.partition_by),
                commit_properties=_properties(owner, _NONE),
            )
        self._sync(before)

    def commit(self, run: Run, epoch: int, check: Callable[[DeltaFolder], None], write: Write) -> None:
        """Write a step and its epoch in one commit; do nothing if the table already has that epoch.

        `check` is called with the version just read, and raises SinkError if this sink may not write to the table. The
        commit is retried if another writer, such as a compaction, commits at the same time.
        """
        properties = _properties(run, epoch)
        for attempt in range(ATTEMPTS):
            self.read()
            check(self)
            last, before = self.last(run), self.delta.version()
            if last is not None and last >= epoch:
                return
            with translate_errors(self.uri):
                try:
                    write(self, properties)
                except CommitFailedError as exc:
                    if attempt == ATTEMPTS - 1:
                        msg = (
                            f"{self.uri}: another writer committed first {ATTEMPTS} times in a row ({exc}); what was "
                            f"committed before stays: let only this run write to the table"
                        )
                        raise SinkUnavailableError(msg) from exc
                else:
                    break
        self._sync(before)

    def _sync(self, before: int) -> None:
        """Flush the log files of the versions from `before` on to disk; their data files are already on disk.

        This includes versions committed by other writers or by a killed process, since a later version depends on them.
        """
        self.read()
        logs = [self._log(version) for version in range(before, self.delta.version() + 1)]
        with translate_errors(self.uri):
            for path in (*filter(Path.is_file, logs), logs[0].parent, self.path, self.path.parent):
                sync_path(path)


def commit_files(folder: DeltaFolder, properties: deltalake.CommitProperties, *files: AddAction | RemoveAction) -> None:
    """Commit added and removed files. Without files, the commit records only the epoch."""
    schema = folder.delta.schema()
    sync_path(folder.path)
    folder.delta.create_write_transaction(list(files), mode="append", schema=schema, commit_properties=properties)


def _properties(run: Run, epoch: int) -> deltalake.CommitProperties:
    """Return the properties of a commit that records an epoch and that either becomes the next version or fails."""
    return deltalake.CommitProperties(
        custom_metadata={"windrow.epoch": str(epoch)},
        max_commit_retries=0,
        app_transactions=[deltalake.Transaction(application(run), epoch)],
    )


def application(run: Run) -> str:
    """Return the id of the application transaction whose version is a run's last epoch."""
    return f"windrow:{run.pipeline}:{run.id}"


def _types(schema: deltalake.Schema) -> dict[str, str]:
    """Map each column to its type as Delta's protocol spells it, and an array to that of its elements with brackets."""
    fields = json.loads(schema.to_json())["fields"]
    return {field["name"]: _type(field["type"]) for field in fields}


def _type(given: str | dict[str, Any]) -> str:
    match given:
        case str():
            return given
        case {"type": "array", "elementType": element}:
            return f"{_type(element)}[]"
        case _:
            return json.dumps(given)


@contextmanager
def translate_errors(uri: str) -> Iterator[None]:
    """Convert errors of Delta Lake and the file system raised in the block to SinkError."""
    try:
        yield
    except CommitFailedError as exc:
        msg = (
            f"{uri} was changed by another writer at the same time ({exc}): run only one process at a time with a "
            f"checkpoint"
        )
        raise SinkUnavailableError(msg) from exc
    except (PermissionError, NotADirectoryError, FileExistsError) as exc:
        msg = f"{uri} cannot be written: {exc}; correct the sink's path, or give permission to write there"
        raise SinkAddressError(msg) from exc
    except (DeltaError, OSError) as exc:
        msg = f"{uri}: Delta Lake says: {exc}; what was committed before stays"
        raise SinkError(msg) from exc
