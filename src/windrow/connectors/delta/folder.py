"""A Delta table in its folder: whose it is, how far it is, and commits that only its last opener can make.

The table's properties say whose it is: `windrow.pipeline`, `windrow.run`, `windrow.opener` (an id of the sink that
opened it last), `windrow.key` (the primary key of a result table, as a JSON list) and `windrow.origin` (what a result
table is made of, as JSON). The application transaction
`windrow:PIPELINE:RUN` of Delta's protocol has the last epoch that the run committed; -1 is none.

The fence: a commit reads the newest version, checks properties and epoch there, and is the next version or none, since
a version is created only if it is not there (Delta's `PROTOCOL.md`, "Delta Log Entries"). By itself Delta Lake puts a
commit behind those of others where it sees no conflict; `max_commit_retries` 0 turns that off, as it does not see that
a compaction has replaced a file that the commit replaces. Each opener changes the properties in a commit of its own.
So a writer that was given up is refused by the check, or if it is past that, by the number of its version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from windrow.connectors.log.kept import sync_path
from windrow.connectors.ownership import Existing, Origin, SchemaMismatch, relaxed, schema_mismatches
from windrow.connectors.sink import Run
from windrow.connectors.tables import Table
from windrow.errors import SinkAddressError, SinkError, SinkUnavailableError

PIPELINE, RUN, OPENER, KEY = "windrow.pipeline", "windrow.run", "windrow.opener", "windrow.key"
ORIGIN = "windrow.origin"

Write = Callable[["DeltaFolder", deltalake.CommitProperties], None]
"""A change of a table as one commit, with these properties."""

ATTEMPTS = 10
"""How often a commit is tried while others, such as a compaction, commit to the table at the same time."""
_NONE = -1


class DeltaFolder:
    """A Delta table, which may not be there yet. It is read again with `read`; all else is of the version read last."""

    def __init__(self, root: str, table: Table) -> None:
        self.table = table
        self.path = Path(root).absolute() / table.name
        self.uri = str(self.path)
        self._found: deltalake.DeltaTable | None = None
        self._seen: tuple[int, int, int] | None = None

    def read(self) -> bool:
        """Read the newest version; return whether there is a table. Raise SinkError if that fails."""
        with translated(self.uri):
            # a folder that was removed looks unchanged to Delta, and one that was made anew to be further
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
        """Return what tells the log's file of a version from another one in its place; None if it is not there."""
        try:
            stat = self._log(version).stat()
        except FileNotFoundError:
            return None
        return version, stat.st_ino, stat.st_mtime_ns

    def _log(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020}.json"

    @property
    def delta(self) -> deltalake.DeltaTable:
        """The table; raise SinkError if it is not there."""
        if self._found is None:
            msg = (
                f"there is no Delta table {self.uri}: was it removed while the run was writing? Start over with --fresh"
            )
            raise SinkError(msg)
        return self._found

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties; empty if it is not there."""
        return {} if self._found is None else self._found.metadata().configuration

    @property
    def owner(self) -> Run | None:
        """The run that the table belongs to; without an id if it was emptied."""
        found = self.properties
        return Run(found[PIPELINE], found[RUN]) if PIPELINE in found else None

    @property
    def opener(self) -> str | None:
        """The id of the sink that has opened the table last."""
        return self.properties.get(OPENER)

    @property
    def origin(self) -> Origin | None:
        """What the table is made of; None if that is not written down."""
        return Origin.read(self.properties.get(ORIGIN))

    def last(self, run: Run | None) -> int | None:
        """Return the last epoch that a run committed to the table, or None."""
        if run is None or self._found is None:
            return None
        epoch = self._found.transaction_version(application(run))
        return None if epoch is None or epoch == _NONE else epoch

    @property
    def is_filled(self) -> bool:
        """Whether the table has rows; if there is none, whether its folder has other files, which a VACUUM removes."""
        if self._found is None:
            return self.path.is_dir() and any(path.name != "_delta_log" for path in self.path.iterdir())
        return self._found.count() > 0

    def query(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Run a query over the table `delta` in the SQL of DataFusion, which Delta Lake reads its tables with."""
        with translated(self.uri):
            found = deltalake.QueryBuilder().register("delta", self.delta).execute(sql)
            yield from pa.RecordBatchReader.from_stream(found)

    def mismatches(self) -> Iterator[SchemaMismatch]:
        """Go through how an existing table differs from the one that is expected; no SQL mends it."""
        if self._found is None:
            return
        if features := self._found.protocol().reader_features:
            what = f"table {self.table.name!r} has {', '.join(features)} of Delta, which windrow does not write"
            yield SchemaMismatch(what)
        key = json.loads(self.properties.get(KEY) or json.dumps(self._key))
        schema = self._found.schema()
        required = self._required - set(self._relaxed)
        there = Existing(_types(schema), key, required, lambda *_: "")
        expected = Table(self.table.name, self.table.schema, tuple(self._key))
        for schema_mismatch in schema_mismatches(
            expected, _types(deltalake.Schema.from_arrow(self.table.schema)), there
        ):
            yield schema_mismatch._replace(statements="")

    @property
    def _required(self) -> set[str]:
        return {field.name for field in self.delta.schema().fields if not field.nullable}

    @property
    def _relaxed(self) -> list[str]:
        return relaxed(self.table, self._required)

    @property
    def _key(self) -> Sequence[str]:
        """The primary key, of a table that has one to be merged by."""
        return () if "epoch" in self.table.key else self.table.key

    def claim(self, run: Run, opener: str, last: int | None, origin: Origin | None = None) -> None:
        """Give the table, which is created if it is not there, to a run that has committed `last`, or what it has.

        A result table has an `origin`.
        """
        last = self.last(run) if last is None else last
        given = {PIPELINE: run.pipeline, RUN: run.id, OPENER: opener, KEY: json.dumps(list(self._key))}
        given |= {} if origin is None else {ORIGIN: origin.text()}
        properties = _properties(run, _NONE if last is None else last)
        before = 0 if self._found is None else self._found.version()
        with translated(self.uri):
            if self._found is None:
                self._found = deltalake.DeltaTable.create(
                    self.uri,
                    self.table.schema,
                    configuration=given,
                    commit_properties=properties,
                    raise_if_key_not_exists=False,
                )
            else:
                for name in self._relaxed:
                    self._found.alter.drop_column_not_null(name)
                self._found.alter.set_table_properties(given, raise_if_not_exists=False, commit_properties=properties)
        self._sync(before)

    def empty(self, pipeline: str) -> None:
        """Remove all rows and former columns, after which the table is no run's; its versions go on.

        A process that has the table open is so refused as ever, where in a new folder its commits could mix with those
        of the new owner.
        """
        owner, before = self.owner or Run(pipeline, ""), self.delta.version()
        with translated(self.uri):
            # first, so that no run adds rows; the pipeline may empty it again if it is killed before it has no rows
            self.delta.alter.set_table_properties(
                {PIPELINE: pipeline, RUN: "", OPENER: "", KEY: "", ORIGIN: ""}, raise_if_not_exists=False
            )
            deltalake.write_deltalake(
                self.delta,
                self.table.schema.empty_table(),
                mode="overwrite",
                schema_mode="overwrite",
                commit_properties=_properties(owner, _NONE),
            )
        self._sync(before)

    def commit(self, run: Run, epoch: int, check: Callable[[DeltaFolder], None], write: Write) -> None:
        """Write a step in one commit with its epoch; a table that has the epoch stays as it is.

        `check` raises SinkError unless the table, as it is read, may be written. Where others commit at the same time,
        such as a compaction, it is tried again.
        """
        properties = _properties(run, epoch)
        for attempt in range(ATTEMPTS):
            self.read()
            check(self)
            last, before = self.last(run), self.delta.version()
            if last is not None and last >= epoch:
                return
            with translated(self.uri):
                try:
                    write(self, properties)
                except CommitFailedError as exc:
                    if attempt == ATTEMPTS - 1:
                        msg = (
                            f"{self.uri}: {ATTEMPTS} times another writer was faster ({exc}); what was committed "
                            f"before stays: let the run be the only one that writes this table"
                        )
                        raise SinkUnavailableError(msg) from exc
                else:
                    break
        self._sync(before)

    def _sync(self, before: int) -> None:
        """Make the versions from one on durable; their files are before.

        These are also those of others, and that of a process which was killed: a table has all of its versions or none.
        """
        self.read()
        logs = [self._log(version) for version in range(before, self.delta.version() + 1)]
        with translated(self.uri):
            for path in (*filter(Path.is_file, logs), logs[0].parent, self.path, self.path.parent):
                sync_path(path)


def commit_files(folder: DeltaFolder, properties: deltalake.CommitProperties, *files: AddAction | RemoveAction) -> None:
    """Commit which files are added and removed, or if there are none the epoch alone."""
    schema = folder.delta.schema()
    sync_path(folder.path)
    folder.delta.create_write_transaction(list(files), mode="append", schema=schema, commit_properties=properties)


def _properties(run: Run, epoch: int) -> deltalake.CommitProperties:
    """Return what makes a commit the next version or none, after which a run has committed an epoch."""
    return deltalake.CommitProperties(
        custom_metadata={"windrow.epoch": str(epoch)},
        max_commit_retries=0,
        app_transactions=[deltalake.Transaction(application(run), epoch)],
    )


def application(run: Run) -> str:
    """Return the name of the application transaction that holds the last epoch of a run."""
    return f"windrow:{run.pipeline}:{run.id}"


def _types(schema: deltalake.Schema) -> dict[str, str]:
    """Return the types of columns as Delta's protocol spells them."""
    fields = json.loads(schema.to_json())["fields"]
    return {
        field["name"]: field["type"] if isinstance(field["type"], str) else json.dumps(field["type"])
        for field in fields
    }


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """Raise SinkError for errors of Delta and of the file system within."""
    try:
        yield
    except CommitFailedError as exc:
        msg = (
            f"{uri} was changed by another writer at the same time ({exc}): let one process at a time run with a "
            f"checkpoint"
        )
        raise SinkUnavailableError(msg) from exc
    except (PermissionError, NotADirectoryError, FileExistsError) as exc:
        msg = f"{uri} cannot be written: {exc}; correct the sink's path, or give permission to write there"
        raise SinkAddressError(msg) from exc
    except (DeltaError, OSError) as exc:
        msg = f"{uri}: Delta Lake says: {exc}; what was committed before stays"
        raise SinkError(msg) from exc
