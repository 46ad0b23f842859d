"""Files of changes in a folder, published one step at a time by a rename; the base of the Parquet and JSON lines sinks.

`DIR/TABLE/_owner.json` records the owner of the folder, and the version of the names in it.

The fence: a sink that opens the folder creates `_staging-ID` in it, with an id of its own. It renames the staging
folders of all other sinks before it removes them. A step is written in the sink's own staging folder and then renamed
out of it, and so is `_owner.json`. A rename by an abandoned writer therefore either happens before the next opener
lists the steps, or it fails because its path no longer exists: rename(2) is atomic.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from windrow import model as m
from windrow.connectors.list_columns import with_arrays
from windrow.connectors.log.segments import replace_durably, sync_path
from windrow.connectors.ownership import FoundTables, Origin, authorize, is_new, may_clear, still_opened, still_owned
from windrow.connectors.sink import Follows, Run, Sink
from windrow.connectors.tables import in_order, layout, of_epoch, pieces, storable_dead
from windrow.connectors.unfit import RefusedError, refused_rows, without_refused, writable, write_reason
from windrow.engine.changelog import StepOutput
from windrow.engine.schema import CLOCKS, NO_DEAD
from windrow.errors import SinkAddressError, SinkError
from windrow.expressions import SinkSpec

_STAGING = "_staging-"
_REMOVED = "_removed-"
_OWNER = "_owner.json"
_NAMES = 2
"""The current version of the names of files."""


class _Owner(NamedTuple):
    """The owner of a folder and the origin of its tables, or None, and the names, partitions and lists of its files."""

    run: Run | None
    origin: Origin | None
    names: int
    partition_by: tuple[str, ...]
    lists: m.ListForm


class StepFolder(Sink, ABC):
    """The changelog, late output, dead letters and clock journal as files in a folder, with new files for each step.

    Exactly once: a step is committed by renaming its file or folder of changes, whose name contains the epoch. All of
    its files are on disk before that, and the rename is on disk when `commit` returns. Files cannot be updated, so
    there is no result table; the last change of a key contains its row. The driver writes the rows.
    """

    needs_rows = True
    is_even = True
    STEP: ClassVar[re.Pattern[str]]
    """The pattern of the name that is renamed last and contains the epoch."""

    def __init__(self, spec: SinkSpec) -> None:
        self._layout = layout(spec)
        self._name = spec.sink.table
        self._path = Path(spec.sink.place).absolute()
        self._folder = self._path / self._name
        self._pipeline = spec.pipeline
        self._origin = Origin.of(spec)
        self._lists = spec.sink.lists
        self._id = str(uuid.uuid4())
        self._run: Run | None = None
        self._last: int | None = None
        self._is_open = False
        self._names = _NAMES
        """The version of the names of files, which a folder keeps."""

    @abstractmethod
    def _write(self, epoch: int, tables: Mapping[str, pa.Table]) -> Sequence[Path]:
        """Write a step to the staging folder; return the paths to rename out of it, the one that commits the step last.

        `tables` has the late output, dead letters and clocks, each only if it has rows, and the changes.
        """

    @abstractmethod
    def _encode(self, rows: pa.Table) -> None:
        """Convert rows as `_write` does, and keep nothing."""

    @abstractmethod
    def _clocks(self) -> Iterator[pa.Table]:
        """Yield the clock journal of each step that has one, in order."""

    @property
    def _staging(self) -> Path:
        return self._folder / f"{_STAGING}{self._id}"

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        self.close()
        refuse_folder(self._path)
        with self._translate_errors():
            if self._run == run and self._folder.is_dir():
                self._check(run)
            # checked before others are refused, and again when they can no longer commit
            self._authorize(run, follows)
            self._folder.mkdir(parents=True, exist_ok=True)
            self._staging.mkdir(exist_ok=True)
            self._refuse_others()
            self._authorize(run, follows)
            owner = self._staging / _OWNER
            with self._fenced():
                self._names = self._read_owner().names
                about = {"names": self._names, "partition_by": self._layout.changes.partition_by, "lists": self._lists}
                found = {"pipeline": run.pipeline, "run": run.id, "origin": self._origin.text(), **about}
                replace_durably(owner, found)
                owner.rename(self._folder / _OWNER)
            sync_path(self._folder)
            sync_path(self._path)
            self._last = max(self._steps(), default=None)
        self._run, self._is_open = run, True
        return self._last

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        refuse_folder(self._path)
        with self._translate_errors():
            self._authorize(run, follows)
        refuse_unwritable(self._folder if self._folder.exists() else self._path)

    def _authorize(self, run: Run, follows: Follows | None) -> None:
        owner = self._read_owner()
        if owner.lists != self._lists and self._steps():
            msg = (
                f"the files of {self._name!r} have their lists as {_LISTS[owner.lists]}, not as {_LISTS[self._lists]}: "
                f"set `lists: {owner.lists}`, choose another table, or start over with --fresh"
            )
            raise SinkError(msg)
        before, now = owner.partition_by, self._layout.changes.partition_by
        if before != now and self._steps():
            msg = (
                f"the files of {self._name!r} are partitioned by {', '.join(before) or 'nothing'}, not "
                f"{', '.join(now) or 'nothing'}: keep `partition_by`, choose another table, or start over with --fresh"
            )
            raise SinkError(msg)
        authorize(run, [self._layout.result], self._find(run), follows, self._origin)

    def _owner(self) -> Run | None:
        return self._read_owner().run

    def _read_owner(self) -> _Owner:
        """Return the owner of the folder; raise SinkError if it cannot be read."""
        try:
            found = json.loads((self._folder / _OWNER).read_text(encoding="utf-8"))
            run, origin = Run(found["pipeline"], found["run"]), Origin.read(found.get("origin"))
            about = tuple(found.get("partition_by", ())), found.get("lists", "json")
            return _Owner(run, origin, int(found.get("names", 1)), *about)
        except FileNotFoundError:
            return _Owner(None, None, _NAMES, self._layout.changes.partition_by, self._lists)
        except (ValueError, LookupError, TypeError) as exc:
            msg = (
                f"{self._folder / _OWNER} is damaged ({exc!r}): restore it, or move {self._folder} away and start over "
                f"with --fresh"
            )
            raise SinkError(msg) from exc

    def _find(self, run: Run) -> FoundTables:
        (owner, origin, *_), last = self._read_owner(), max(self._steps(), default=None)
        is_foreign = any(not name.startswith((_STAGING, _REMOVED, _OWNER)) for name in _names(self._folder))
        return FoundTables(
            owner=owner,
            owner_last=last,
            last=last if owner == run else None,
            elsewhere=None,
            present=[self._name] if self._folder.is_dir() else [],
            filled=[self._name] if last is not None or (owner is None and is_foreign) else [],
            origin=origin,
        )

    def _refuse_others(self) -> None:
        """Rename the staging folders of other sinks, so that they can no longer commit, and remove these folders."""
        for path in self._folder.iterdir():
            if path.name.startswith(_STAGING) and path != self._staging:
                path.rename(self._folder / f"{_REMOVED}{path.name}")
        sync_path(self._folder)
        for path in self._folder.glob(f"{_REMOVED}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _check(self, run: Run) -> None:
        """Raise SinkError unless this sink was the last to open the folder and its run still owns the folder."""
        still_owned(run, self._owner(), self._name)
        self._check_opener()

    def _check_opener(self) -> None:
        still_opened(self._id, self._id if self._staging.is_dir() else None, self._name)

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        """Raise SinkError if files are missing because another sink has opened the folder in the meantime."""
        try:
            yield
        except FileNotFoundError:
            self._check_opener()
            raise

    def _steps(self) -> list[int]:
        return [int(match[1]) for match in map(self.STEP.fullmatch, _names(self._folder)) if match]

    def journal(self) -> pa.Table:
        with self._translate_errors():
            order = [(name, "ascending") for name in ("partition", "offset", "reason")]
            tables = (table.sort_by(order).select(CLOCKS.names).cast(CLOCKS) for table in self._clocks())
            return pa.concat_tables([CLOCKS.empty_table(), *tables])

    def clear(self) -> None:
        """Remove the folder; raise SinkError if it belongs to another pipeline."""
        self.close()
        self._run = None
        with self._translate_errors():
            may_clear(self._pipeline, self._name, self._find(Run(self._pipeline, "")))
            # left by a process that was killed below
            removed = self._path / f"{_REMOVED}{self._name}"
            shutil.rmtree(removed, ignore_errors=True)
            if self._folder.is_dir():
                self._folder.rename(removed)
                sync_path(self._path)
                shutil.rmtree(removed)

    def commit(self, epoch: int, *outputs: StepOutput) -> list[pa.Table]:
        run, (output,) = self._run, outputs
        if run is None or not self._is_open:
            msg = "the sink is not open: call open() before commit()"
            raise SinkError(msg)
        refused = NO_DEAD
        with self._translate_errors():
            self._check(run)
            if not is_new(epoch, self._last, self._name):
                return [refused]
            with self._fenced():
                try:
                    paths = self._write(epoch, self._rows(epoch, output))
                except Exception as exc:
                    if write_reason(exc) is None:
                        raise
                    reasons = refused_rows(self._encode, output.changes, write_reason)
                    output, refused = without_refused(self._layout.result, output, reasons, self._origin.stream)
                    if not refused.num_rows:
                        raise
                    paths = self._write(epoch, self._rows(epoch, writable(self._encode, output)))
                for path in paths:
                    path.rename(self._folder / path.name)
            sync_path(self._folder)
        self._last = epoch
        return [refused]

    def _rows(self, epoch: int, output: StepOutput) -> dict[str, pa.Table]:
        """Return the rows of each file of a step."""
        rows = {
            "late": (self._layout.late, output.late),
            "dead": (self._layout.dead, storable_dead(output.dead)),
            "clocks": (self._layout.clocks, of_epoch(epoch, output.clocks)),
            "changes": (self._layout.changes, in_order(epoch, output.changes)),
        }
        return {
            name: table.select(list(of.columns))
            for name, (of, table) in rows.items()
            if table.num_rows or name == "changes"
        }

    def close(self) -> None:
        self._is_open = False

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Convert errors of the file system raised in the block to SinkError."""
        try:
            yield
        except (PermissionError, NotADirectoryError, FileExistsError) as exc:
            msg = f"{self._folder} cannot be written: {exc}; correct the sink's path, or give permission to write there"
            raise SinkAddressError(msg) from exc
        except OSError as exc:
            msg = f"{self._folder} cannot be written: {exc}; what was committed before stays"
            raise SinkError(msg) from exc


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def refuse_folder(path: Path) -> None:
    """Raise SinkAddressError if no folder can be created at a path."""
    if path.exists() and not path.is_dir():
        msg = f"{path} is a file, not a folder: correct the sink's path"
        raise SinkAddressError(msg)
    if not path.parent.is_dir():
        msg = f"the folder {path.parent} of {path} does not exist: create it, or correct the sink's path"
        raise SinkAddressError(msg)


def refuse_unwritable(path: Path) -> None:
    """Raise SinkError if this user may not write to a folder or create it."""
    if not os.access(path if path.exists() else path.parent, os.W_OK | os.X_OK):
        msg = f"{path} cannot be written: give this user write permission on it, or on {path.parent} to create it"
        raise SinkError(msg)


def by_partition(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Divide rows by the values of some columns, and yield the values as text (None for null) and the rows, in order.

    Raise RefusedError for a text that Hive, Spark or Delta read as null.
    """
    if not columns:
        yield {}, rows
        return
    keys = rows.select(list(columns)).append_column("__row", pa.array(np.arange(rows.num_rows)))
    found = keys.group_by(list(columns), use_threads=False).aggregate([("__row", "list")])
    for group in found.to_pylist():
        values = {name: group[name] for name in columns}
        for name, value in values.items():
            if value in {"", m.HIVE_NULL}:
                msg = f"refused: {value!r} in {name!r} would be null, as the files are partitioned by it"
                raise RefusedError(msg)
        texts = {name: value if value is None else _partition_text(value) for name, value in values.items()}
        yield texts, rows.take(pa.array(group["__row_list"]))


def _partition_text(value: str | int | bool) -> str:  # noqa: FBT001 - a value of a column
    return str(value).lower() if isinstance(value, bool) else str(value)


_LISTS: Mapping[m.ListForm, str] = {"json": "JSON text", "array": "arrays"}
_NO_LISTS = pa.schema([])


def write_parquet(path: Path, rows: pa.Table, lists: pa.Schema = _NO_LISTS) -> None:
    """Durably write rows to a new Parquet file, with only a piece of them in memory at a time.

    Columns in `lists` are written as arrays of these types.
    """
    with path.open("xb") as file:
        encode_parquet(file, rows, lists)
        file.flush()
        os.fsync(file.fileno())


def encode_parquet(file: IO[bytes] | pa.NativeFile, rows: pa.Table, lists: pa.Schema = _NO_LISTS) -> None:
    """Write rows to an open Parquet file, as `write_parquet` does."""
    schema = with_arrays(rows.schema.empty_table(), lists).schema
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for _, piece in pieces(rows):
            writer.write_table(with_arrays(piece, lists))


def try_parquet(rows: pa.Table, lists: pa.Schema) -> None:
    """Raise the error with which rows cannot be written to a Parquet file, as `write_parquet` does."""
    encode_parquet(pa.MockOutputStream(), rows, lists)
