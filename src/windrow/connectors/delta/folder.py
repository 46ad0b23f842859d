"""A Delta table in its folder: its owner, its last epoch, and commits that only its last opener can make.

The table's properties name its owner: `windrow.pipeline`, `windrow.run`, `windrow.opener` (the id of the sink that
opened it last), `windrow.key` (the primary key of a result table, as a JSON list) and `windrow.origin` (the origin of a
result table, as JSON). The application transaction `windrow:PIPELINE:RUN` of Delta's protocol has the last epoch that
the run committed, or -1.

The fence: a commit reads the newest version, checks properties and epoch there, and is the next version or none, since
a version is created only if it does not exist (Delta's `PROTOCOL.md`, "Delta Log Entries"). By default Delta Lake puts
a commit after those of others if it detects no conflict; `max_commit_retries` 0 turns that off, as it does not detect
that a compaction has replaced a file that the commit replaces. Each opener changes the properties in a commit of its
own. So an abandoned writer is refused by the check or, after it, by the number of its version.
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

from windrow.connectors.log.segments import sync_path
from windrow.connectors.ownership import Existing, Origin, SchemaMismatch, relaxable, schema_mismatches
from windrow.connectors.sink import Run
from windrow.connectors.tables import Table
from windrow.errors import SinkAddressError, SinkError, SinkUnavailableError

PIPELINE, RUN, OPENER, KEY = "windrow.pipeline", "windrow.run", "windrow.opener", "windrow.key"
ORIGIN = "windrow.origin"

Write = Callable[["DeltaFolder", deltalake.CommitProperties], None]
"""A change of a table as one commit, with these properties."""

ATTEMPTS = 10
"""Attempts of a commit while others, such as a compaction, commit to the table at the same time."""
_NONE = -1


class DeltaFolder:
    """A Delta table, which may not exist yet. `read` loads the newest version; all else is of the version read last."""

    def __init__(self, root: str, table: Table) -> None:
        self.table = table
        self.path = Path(root).absolute() / table.name
        self.uri = str(self.path)
        self._found: deltalake.DeltaTable | None = None
        self._seen: tuple[int, int, int] | None = None

    def read(self) -> bool:
        """Read the newest version; return whether there is a table. Raise SinkError if that fails."""
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
        """Return the identity of the log's file of a version; None if there is no such file."""
        try:
            stat = self._log(version).stat()
        except FileNotFoundError:
            return None
        return version, stat.st_ino, stat.st_mtime_ns

    def _log(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020}.json"

    @property
    def delta(self) -> deltalake.DeltaTable:
        """The table; raise SinkError if it does not exist."""
        if self._found is None:
            msg = (
                f"there is no Delta table {self.uri}: was it removed while the run was writing? Start over with --fresh"
            )
            raise SinkError(msg)
        return self._found

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties; empty if it does not exist."""
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
        """The table's origin; None if it is not recorded."""
        return Origin.read(self.properties.get(ORIGIN))

    def last(self, run: Run | None) -> int | None:
        """Return the last epoch that a run committed to the table, or None."""
        if run is None or self._found is None:
            return None
        epoch = self._found.transaction_version(application(run))
        return None if epoch is None or epoch == _NONE else epoch

    @property
    def is_filled(self) -> bool:
        """Whether the table has rows; without a table, whether its folder has other files, which VACUUM removes."""
        if self._found is None:
            return self.path.is_dir() and any(path.name != "_delta_log" for path in self.path.iterdir())
        return self._found.count() > 0

    def query(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Run a query over the table `delta` in the SQL of DataFusion."""
        with translate_errors(self.uri):
            found = deltalake.QueryBuilder().register("delta", self.delta).execute(sql)
            yield from pa.RecordBatchReader.from_stream(found)

    def mismatches(self) -> Iterator[SchemaMismatch]:
        """Yield how an existing table differs from the expected one; no SQL fixes it."""
        if self._found is None:
            return
        if features := self._found.protocol().reader_features:
            what = f"table {self.table.name!r} has {', '.join(features)} of Delta, which windrow does not write"
            yield SchemaMismatch(what)
        key = json.loads(self.properties.get(KEY) or json.dumps(self._key))
        schema = self._found.schema()
        required = self._required - set(self._relaxable)
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
    def _relaxable(self) -> list[str]:
        return relaxable(self.table, self._required)

    @property
    def _key(self) -> Sequence[str]:
        """The primary key by which rows are merged, if any."""
        return () if "epoch" in self.table.key else self.table.key

    def claim(self, run: Run, opener: str, last: int | None, origin: Origin | None = None) -> None:
        """Give the table, which is created if missing, to a run whose last epoch is `last`, or the one in the table.

        A result table has an `origin`.
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
                    self.table.schema,
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
        """Remove all rows and former columns and the owner; the versions continue.

        A process that has the table open is refused as before, while in a new folder its commits could mix with those
        of the new owner.
        """
        owner, before = self.owner or Run(pipeline, ""), self.delta.version()
        with translate_errors(self.uri):
            # first, so that no run adds rows; if killed before the next commit, the pipeline may empty the table again
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

        `check` raises SinkError unless the table, as just read, may be written. If others commit at the same time, such
        as a compaction, the commit is tried again.
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
                            f"{self.uri}: {ATTEMPTS} times another writer was faster ({exc}); what was committed "
                            f"before stays: let the run be the only one that writes this table"
                        )
                        raise SinkUnavailableError(msg) from exc
                else:
                    break
        self._sync(before)

    def _sync(self, before: int) -> None:
        """Make the versions from `before` on durable; their files are already.

        These include versions of others and of a killed process: a later version is not durable without them.
        """
        self.read()
        logs = [self._log(version) for version in range(before, self.delta.version() + 1)]
        with translate_errors(self.uri):
            for path in (*filter(Path.is_file, logs), logs[0].parent, self.path, self.path.parent):
                sync_path(path)


def commit_files(folder: DeltaFolder, properties: deltalake.CommitProperties, *files: AddAction | RemoveAction) -> None:
    """Commit added and removed files, or only the epoch if there are none."""
    schema = folder.delta.schema()
    sync_path(folder.path)
    folder.delta.create_write_transaction(list(files), mode="append", schema=schema, commit_properties=properties)


def _properties(run: Run, epoch: int) -> deltalake.CommitProperties:
    """Return the properties of a commit of an epoch that becomes the next version or fails."""
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
def translate_errors(uri: str) -> Iterator[None]:
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
