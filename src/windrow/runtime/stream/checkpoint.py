"""Checkpoints: their owner, the files that Spark keeps in them, their lock, and the runs that read a log.

Spark writes the offsets at which a step ends, and windrow writes the file that identifies the owner. One run at a time
holds the lock.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from windrow import model as m
from windrow.connectors.cuts import Offset
from windrow.connectors.sink import Follows, Run
from windrow.engine.lists import lists_of, with_entries, with_lists_of
from windrow.errors import CheckpointError, InputError
from windrow.runtime.savepoint import (
    FREE,
    Meaning,
    RenamedLog,
    Savepoint,
    fingerprint,
    other_tables,
    renamed_logs,
    with_partitioning_of,
)
from windrow.runtime.stream.steps import StepOffsets
from windrow.telemetry.folders import Folder, draft_of, make_private, on_this_machine, remove, write_whole
from windrow.telemetry.history import FILES as HISTORY

if TYPE_CHECKING:
    from windrow.connectors.log.source import LogFolder

_FILE = "windrow.json"
_IDENTITY = "source.json"
_BEGINNING = "beginning.json"
"""The file with the position at which the run begins, in the source's own form."""
_LISTS = "lists.json"
"""The file with the entries of the lists that rules use."""
_PLANNED = "planned.json"
"""The file with the plan of a step whose predecessor must run again."""
_START = "start"
_BACKFILL = "backfill"
_FORMAT = 6
_SOURCE_LINE = 2
"""The line of the first source in a file of Spark's offset log, which follows the version and the settings."""
_ORDERED = {("decode",), ("aggregate",), ("process", "state"), ("process", "returns")}
"""Fields whose names must keep their order, because it is the order of the columns in the state."""


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of a run: a folder on a disk or in an object store.

    `partitions` are the partitions that the source had when the pipeline was first started. A run that `follows`
    another run begins at the end of a savepoint of that run, which is in the folder `start`.
    """

    folder: Folder
    run: Run
    partitions: tuple[int, ...]
    meaning: Meaning
    follows: Follows | None = None

    @staticmethod
    def read(folder: Folder) -> Checkpoint | None:
        """Return the checkpoint in a folder, whichever pipeline it belongs to, or None if there is none yet.

        Raise CheckpointError if the folder holds something else, or if the checkpoint is damaged.
        """
        Checkpoint.refuse_foreign(folder)
        path = folder / _FILE
        if not path.exists():
            return None
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["format"] != _FORMAT:
                msg = (
                    f"{path} has format {kept['format']}, not {_FORMAT}: another version of windrow wrote it; continue "
                    "with that version, or start over with --fresh"
                )
                raise CheckpointError(msg)
            if kept.pop("sha256") != _digest(kept):
                msg = "it is not what was written"
                raise ValueError(msg)  # noqa: TRY301 - reported like an unreadable file
            run, partitions, follows = Run(kept["name"], kept["run"]), tuple(kept["partitions"]), kept.get("follows")
            followed = None if follows is None else Follows(Run(**follows["run"]), follows["epoch"])
            return Checkpoint(folder, run, partitions, kept["pipeline"], followed)
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise _unreadable(path, exc) from exc

    @staticmethod
    def open(folder: Folder, graph: m.Graph) -> Checkpoint | None:
        """Return the checkpoint of a pipeline in a folder, or None if there is none yet.

        Before its first step, the checkpoint takes on the pipeline's current settings. Raise CheckpointError if it
        belongs to a different pipeline or is damaged, or if the folder holds something else.
        """
        checkpoint = Checkpoint.read(folder)
        if checkpoint is not None and (differences := checkpoint.differences(graph)):
            listed = "\n  ".join(differences)
            msg = (
                f"the checkpoint {folder} belongs to a different pipeline; it differs in\n  {listed}\n"
                "choose another --checkpoint, or start over with --fresh; after many changes, a run can still resume "
                "from a savepoint (run --from-savepoint)"
            )
            raise CheckpointError(msg)
        if checkpoint is not None and checkpoint.has_no_rows:
            return replace(checkpoint, meaning=fingerprint(graph))
        return checkpoint

    def differences(self, graph: m.Graph) -> list[str]:
        """Describe how a pipeline differs from that of the checkpoint, as far as state is concerned, one line each."""
        tables = () if self.has_no_rows else other_tables(self.meaning, graph)
        return [
            *_differences(self.meaning, fingerprint(self.partitioned(graph))),
            *(f"{log.field}: {log.there} there, {log.here} here: {log.why}" for log in self.renamed(graph) if log.why),
            *(f"{table.field}: {_text(table.there)} there, {_text(table.here)} here" for table in tables),
        ]

    def partitioned(self, graph: m.Graph) -> m.Graph:
        """Return a pipeline with its states partitioned like those of the checkpoint."""
        return with_partitioning_of(self.meaning, graph)

    def renamed(self, graph: m.Graph) -> list[RenamedLog]:
        """Return the sources of a pipeline whose new rows would get a different `source` than existing rows."""
        return [] if self.has_no_rows else list(renamed_logs(self.meaning, fingerprint(graph)))

    @staticmethod
    def new(folder: Folder, graph: m.Graph, partitions: Iterable[int], follows: Follows | None = None) -> Checkpoint:
        """Return a new checkpoint, without writing it."""
        return Checkpoint(folder, Run.new(graph.name), tuple(partitions), fingerprint(graph), follows)

    def write(self) -> None:
        """Write the owner of the checkpoint, unless it is already recorded and its tables may have rows."""
        if (self.folder / _FILE).exists() and not self.has_no_rows:
            return
        body = {
            "format": _FORMAT,
            "name": self.run.pipeline,
            "run": self.run.id,
            "partitions": list(self.partitions),
            "follows": None if self.follows is None else asdict(self.follows),
            "pipeline": self.meaning,
        }
        with writing(self.folder):
            write_whole(self.folder / _FILE, json.dumps({**body, "sha256": _digest(body)}, indent=2))

    def keep_lists(self, graph: m.Graph) -> tuple[m.Graph, list[str]]:
        """Return a pipeline with the entries its lists had at first, and the names of lists that have changed since.

        A step that runs again must reach the same verdicts, so entries only change with a savepoint, between two steps.
        """
        graph = with_entries(graph)
        path, lists = self.folder / _LISTS, lists_of(graph)
        if not lists:
            return graph, []
        if not path.exists():
            if self.has_steps:
                msg = f"{path} is gone, with the list entries of earlier steps; restore it, or start over with --fresh"
                raise CheckpointError(msg)
            with writing(self.folder):
                write_whole(path, json.dumps({rule_list.name: rule_list.entries for rule_list in lists}))
        try:
            kept = {name: tuple(entries) for name, entries in json.loads(path.read_text(encoding="utf-8")).items()}
            changed = [rule_list.name for rule_list in lists if kept[rule_list.name] != rule_list.entries]
            first = with_lists_of(graph, [replace(rule_list, entries=kept[rule_list.name]) for rule_list in lists])
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise _unreadable(path, exc) from exc
        return first, changed

    @staticmethod
    def refuse_foreign(folder: Folder) -> None:
        """Raise CheckpointError if a folder is neither empty nor a checkpoint of some pipeline."""
        if folder.exists() and not (folder / _FILE).is_file() and not _is_unused(folder):
            msg = f"{folder} is not a checkpoint of windrow: there is no {_FILE} in it; choose another folder"
            raise CheckpointError(msg)

    @staticmethod
    def remove(folder: Folder) -> None:
        """Remove a checkpoint, if there is one."""
        Checkpoint.refuse_foreign(folder)
        remove(folder, last=_FILE)

    @property
    def spark(self) -> Folder:
        """The folder in which Spark keeps offsets, commits and state."""
        return self.folder / "spark"

    @property
    def step_size(self) -> Path:
        """The file with the maximum number of records of the next step, for runs in which this can change."""
        return on_this_machine(self.folder) / "step_size"

    @property
    def tick_due(self) -> Path:
        """The file with the processing time before which ticks have no effect, if no records come."""
        return on_this_machine(self.folder) / "tick_due"

    @property
    def rows(self) -> Folder:
        """The folder in which the executors of a cluster write the rows of a step for the driver."""
        return self.folder / "rows"

    @property
    def log(self) -> Path:
        """Spark's log file."""
        return log_of(self.folder)

    @property
    def start(self) -> Folder:
        """The folder of the savepoint from which the run begins, if it follows another run."""
        return self.folder / _START

    @property
    def first_epoch(self) -> int:
        """The epoch of Spark's first batch."""
        return 0 if self.follows is None else self.follows.epoch + 1

    @property
    def committed(self) -> int | None:
        """The last epoch that Spark recorded as done, or None."""
        batch = self.batch
        return None if batch is None else self.first_epoch + batch

    @property
    def batch(self) -> int | None:
        """Spark's number, from 0, of the last batch that it recorded as done, or None."""
        return last_noted(self.spark / "commits")

    def clear_start(self) -> None:
        """Remove what is left of a start from a savepoint that was interrupted before the checkpoint was written."""
        for path in self.folder.glob(f"*{_START}*"):
            remove(path)

    def carried(self) -> Savepoint | None:
        """Return the savepoint from which the run begins, or None."""
        return None if self.follows is None else Savepoint.read(self.start)

    def sync(self) -> None:
        """Sync the checkpoint to disk; raise CheckpointError if that fails. In an object store this does nothing."""
        if isinstance(self.folder, Path):
            with writing(self.folder):
                _sync_file_system(self.folder)

    @property
    def has_beginning(self) -> bool:
        """True if the position at which the run begins is recorded."""
        return (self.folder / _BEGINNING).exists()

    @property
    def has_steps(self) -> bool:
        """True if at least one step has been planned."""
        return last_noted(self.spark / "offsets") is not None

    @property
    def has_no_rows(self) -> bool:
        """True if the tables cannot contain a step of this run or of a run that it follows."""
        return self.follows is None and not self.has_steps

    def note_beginning(self, note: StepOffsets) -> None:
        """Record the position at which the run begins; raise CheckpointError if that fails."""
        with writing(self.folder):
            write_whole(self.folder / _BEGINNING, json.dumps(note.to_json()))

    def note_step_size(self, records: int) -> None:
        """Record the maximum number of records of the next step; raise CheckpointError if that fails."""
        with writing(self.folder):
            write_whole(self.step_size, f"{records}\n")

    def note_tick_due(self, micros: int) -> None:
        """Record the processing time before which ticks have no effect; raise CheckpointError if that fails."""
        with writing(self.folder):
            write_whole(self.tick_due, f"{micros}\n")

    @property
    def max_bytes(self) -> int | None:
        """The maximum number of bytes with which steps were planned last, or None if it was not recorded."""
        path = on_this_machine(self.folder) / "max_bytes"
        try:
            return int(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def note_max_bytes(self, max_bytes: int) -> None:
        """Record the maximum number of bytes of steps; raise CheckpointError if that fails."""
        if self.max_bytes != max_bytes:
            with writing(self.folder):
                write_whole(on_this_machine(self.folder) / "max_bytes", f"{max_bytes}\n")

    def place(self, batch: int | None) -> tuple[Folder, int]:
        """Return the file, and the line in it, with the offsets of a batch or of the beginning of the run."""
        if batch is None or batch < 0:
            return self.folder / _BEGINNING, 0
        return self.spark / "offsets" / str(batch), _SOURCE_LINE

    def note(self, batch: int | None) -> StepOffsets:
        """Return the end of a batch, or the beginning of the run; raise CheckpointError if it cannot be read."""
        path, line = self.place(batch)
        try:
            # the source is the first of the query's sources
            return StepOffsets.of(json.loads(path.read_text(encoding="utf-8").splitlines()[line]))
        except (OSError, ValueError, TypeError, LookupError) as exc:
            raise _unreadable(path, exc) from exc

    def keep_plan(self, batch: int) -> None:
        """Record the plan of a batch before Spark's file is removed; raise CheckpointError if that fails.

        The batch must be planned the same way again, because executors of a cluster may still be writing the states
        that result from it. A plan with the end of the input is not kept, because the next run may not emit one.
        """
        begins, ends = self.ends_of(batch - 1), self.ends_of(batch)
        if begins[0]["ends"] == ends[0]["ends"]:
            with writing(self.folder):
                write_whole(self.folder / _PLANNED, json.dumps([begins, ends]))

    def forget_plan(self) -> None:
        """Remove the recorded plan of the next step."""
        (self.folder / _PLANNED).unlink(missing_ok=True)

    @property
    def kept_plan(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """The start and end of the recorded step in the source of the query; empty if no step is recorded."""
        path = self.folder / _PLANNED
        if not path.exists():
            return []
        try:
            begins, ends = json.loads(path.read_text(encoding="utf-8"))
            return list(zip(_with_tick(begins), _with_tick(ends), strict=True))
        except (OSError, ValueError, TypeError) as exc:
            raise _unreadable(path, exc) from exc

    def ends_of(self, batch: int) -> list[Any]:
        """Return the end of a batch in the source of the query, as Spark recorded it."""
        lines = self.place(batch)[0].read_text(encoding="utf-8").splitlines()
        return _with_tick([json.loads(line) for line in lines[_SOURCE_LINE:]])

    def offsets(self, batch: int | None = None) -> dict[int, int]:
        """Return the next offset of each partition after a batch (default: the last that Spark recorded as done).

        For batch -1, these are the offsets at which the run begins. A partition may be missing if no record of it has
        been read. Raise CheckpointError if Spark's file, or the savepoint from which the run begins, cannot be read.
        """
        done = self.batch if batch is None else batch
        if (done is None or done < 0) and not self.has_beginning:
            carried = self.carried()
            return {} if carried is None else carried.offsets
        try:
            return offsets_of(self.note(done).at)
        except (ValueError, TypeError, AttributeError) as exc:
            raise _unreadable(self.place(done)[0], exc) from exc

    @property
    def identity(self) -> str | None:
        """The ID that distinguishes the log that was read from another log of the same name; None if unknown."""
        path = self.folder / _IDENTITY
        if not path.exists():
            return None
        try:
            identity: str | None = json.loads(path.read_text(encoding="utf-8"))["identity"]
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise _unreadable(path, exc) from exc
        return identity

    def note_identity(self, identity: str | None) -> None:
        """Record the log's identity if it has changed."""
        if identity is not None and identity != self.identity:
            write_whole(self.folder / _IDENTITY, json.dumps({"identity": identity}) + "\n")


def _sync_file_system(folder: Path) -> None:
    """Sync the file system of a folder.

    Spark does not sync any of its files. A step writes a dozen or more small files: a single call for all of them takes
    a quarter of the time of one call per file, and cannot miss any.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):  # Linux alone has it
        os.sync()
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        if libc.syncfs(opened):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(opened)


@contextmanager
def writing(folder: Folder) -> Iterator[None]:
    """Raise CheckpointError if writing into a checkpoint fails."""
    try:
        yield
    except OSError as exc:
        msg = f"the checkpoint {folder} cannot be written: {exc.strerror or exc}"
        raise CheckpointError(msg) from exc


def log_of(folder: Folder) -> Path:
    """Return the path of Spark's log for a run with its checkpoint in a folder."""
    return on_this_machine(folder) / "spark.log"


def _unreadable(path: Folder, exc: Exception) -> CheckpointError:
    return CheckpointError(f"{path} cannot be read ({exc}); restore the checkpoint, or start over with --fresh")


def offsets_of(at: Offset) -> dict[int, int]:
    """Return the next offset of each partition in an offset as Spark stores it."""
    return dict(sorted(_next_offsets(at)))


def _next_offsets(kept: Any) -> Iterator[tuple[int, int]]:  # noqa: ANN401 - plain JSON
    """Yield (partition, next offset) pairs of an offset as Spark stores it.

    It is {partition: {"line": n, ...}} for an embedded log, {topic: {partition: n}} for Kafka, and {"sources": [...]}
    with the offset of each source if there are several.
    """
    if isinstance(kept.get("sources"), list):
        for source, at in enumerate(kept["sources"]):
            yield from ((source * m.MAX_PARTITIONS + partition, offset) for partition, offset in _next_offsets(at))
        return
    for outer, inner in kept.items():
        if "line" in inner:
            yield int(outer), int(inner["line"])
        else:
            yield from ((int(partition), int(offset)) for partition, offset in inner.items())


def last_noted(log: Folder) -> int | None:
    """Return the last batch in one of Spark's logs, or None if the log is empty."""
    batches = [int(path.name) for path in log.iterdir() if path.name.isdigit()] if log.is_dir() else []
    return max(batches, default=None)


def _with_tick(ends: list[Any]) -> list[Any]:
    """Return the end of a step with the tick that earlier versions recorded as the end of a second source."""
    first, *others = ends
    return [{**first, "tick": other["tick"]} for other in others if other["tick"]] or [first]


def _is_unused(folder: Folder) -> bool:
    """Return True if a folder only has files of a run that ended before its first step."""
    beginnings = {"spark.log", *HISTORY, LOCK, draft_of(Path(_FILE)).name, _START, _BACKFILL, f"{_BACKFILL}.json"}
    drafts = (f".{_START}.draft-", f".{_BACKFILL}.draft-", f".{_BACKFILL}.json.draft")
    return folder.is_dir() and all(path.name in beginnings or path.name.startswith(drafts) for path in folder.iterdir())


def _differences(kept: Any, given: Any, path: tuple[str, ...] = ()) -> Iterator[str]:  # noqa: ANN401 - plain JSON
    # in a graph, the rules of a pipeline apply to each stream and source
    own = path[2:] if path[:1] in {("streams",), ("records",)} else path
    if own in FREE:
        return
    if isinstance(kept, dict) and isinstance(given, dict):
        for name in sorted(kept.keys() | given.keys()):
            yield from _differences(kept.get(name), given.get(name), (*path, name))
        if own in _ORDERED and kept.keys() == given.keys() and list(kept) != list(given):
            yield f"the order of {'.'.join(path)}: {', '.join(kept)} there, {', '.join(given)} here"
    elif kept != given:
        yield f"{'.'.join(path)}: {_text(kept)} there, {_text(given)} here"


def _text(value: Any) -> str:  # noqa: ANN401 - plain JSON
    return "nothing" if value is None else json.dumps(value)


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()


LOCK = "lock"
"""The lock file of a checkpoint."""


@contextmanager
def locked(checkpoint: Folder) -> Iterator[None]:
    """Lock a checkpoint, creating its folder; the kernel releases the lock of a killed run.

    An object store has no locks. There, this lock only excludes other runs on this machine; the sink excludes all
    others.

    If the block raises, remove the lock file and the folder that this call created. Raise CheckpointError if another
    run holds the lock, or if the lock file cannot be written.
    """
    folder = on_this_machine(checkpoint)
    path = folder / LOCK
    is_new = not path.exists()
    try:
        make_private(folder)
        file = path.open("ab")
    except OSError as exc:
        msg = f"the checkpoint {folder} cannot be written: {exc.strerror}"
        raise CheckpointError(msg) from exc
    with file:
        # if the file is no longer there, another run has just ended or removed the checkpoint
        if not (_lock(file) and _is_at(path, file)):
            msg = f"another run is using the checkpoint {checkpoint}: stop that run, or choose another --checkpoint"
            raise CheckpointError(msg)
        try:
            yield
        except BaseException:
            if is_new and _is_at(path, file):
                with suppress(OSError):
                    path.unlink()
                    folder.rmdir()
            raise


def _lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False


DEFAULT = Path(".windrow")


def readers_of(log: LogFolder, named: Sequence[Folder]) -> dict[str, dict[int, int]]:
    """Map the checkpoint of each run over an embedded log to the next offsets that the run reads.

    The runs are those of the checkpoints `named`, and those found in `DEFAULT`. Raise InputError if a named folder is
    not the checkpoint of a run over the log, or CheckpointError if it is damaged.
    """
    found = {}
    for folder in named:
        checkpoint = Checkpoint.read(folder)
        if checkpoint is None or (offsets := _offsets_in(checkpoint, log)) is None:
            msg = f"{folder} is not the checkpoint of a run that reads the log {log.path}: correct --checkpoint"
            raise InputError(msg)
        found[str(folder)] = offsets
    for path in sorted(DEFAULT.iterdir()) if DEFAULT.is_dir() else []:
        if path.is_dir() and str(path) not in found:
            try:
                Checkpoint.refuse_foreign(path)
            except CheckpointError:  # some other folder
                continue
            checkpoint = Checkpoint.read(path)
            if checkpoint is not None and (offsets := _offsets_in(checkpoint, log)) is not None:
                found[str(path)] = offsets
    return found


def _offsets_in(checkpoint: Checkpoint, log: LogFolder) -> dict[int, int] | None:
    """Return the offsets of a run in a log, or None if the run does not read the log.

    If the run reads the log more than once, return the smallest offset of each partition.
    """
    if "source" in checkpoint.meaning:
        numbers = [0] if _is_log(checkpoint.meaning["source"], log) else []
    else:
        at = checkpoint.note(checkpoint.batch).at
        numbers = [number for number, part in enumerate(at.get("sources", [at])) if _begins_as(part, log)]
    if not numbers:
        return None
    offsets = checkpoint.offsets()
    return {
        partition: min(offsets.get(number * m.MAX_PARTITIONS + partition, 0) for number in numbers)
        for partition in log.partitions()
    }


def _begins_as(part: Mapping[str, Any], log: LogFolder) -> bool:
    """Return True if a log's files begin like the files that a source has read.

    The checkpoint of a graph has no paths to compare.
    """
    marks = {name: at["head"] for name, at in part.items() if isinstance(at, dict) and "head" in at}
    there = {str(partition) for partition in log.partitions()}
    return bool(marks) and all(name in there and log.head(int(name)) == mark for name, mark in marks.items())


def _is_log(source: Mapping[str, Any], log: LogFolder) -> bool:
    """Return True if a source is this log; a relative path starts in the current folder, as it does for the run."""
    path = source.get("log", {}).get("path") or source.get("file", {}).get("log")
    return path is not None and Path(path).resolve() == log.path.resolve()
