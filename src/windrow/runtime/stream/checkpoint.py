"""Checkpoints: whose a checkpoint is, what Spark keeps in it, and its lock.

The offsets at which a step ends are Spark's, the file that says whose they are is windrow's; one run at a time holds
the lock.
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
from windrow.runtime.savepoint import FREE, Meaning, RenamedLog, Savepoint, fingerprint, other_tables, renamed_logs
from windrow.runtime.stream.steps import StepOffsets
from windrow.telemetry.folders import Folder, draft_of, make_private, on_this_machine, remove, write_whole
from windrow.telemetry.history import FILES as HISTORY

if TYPE_CHECKING:
    from windrow.connectors.log.retention import Change
    from windrow.connectors.log.source import LogFolder

_FILE = "windrow.json"
_IDENTITY = "source.json"
_BEGINNING = "beginning.json"
"""The file that says where the run begins, as the source notes it."""
_LISTS = "lists.json"
"""The file with the entries of the lists of rules."""
_PLANNED = "planned.json"
"""The file with a step that was planned before the one ahead of it had to be taken back."""
_START = "start"
_BACKFILL = "backfill"
_FORMAT = 6
_SOURCE_LINE = 2
"""In a note of Spark's on a step's offsets: there are the version and the step's settings before."""
_ORDERED = {("decode",), ("aggregate",), ("process", "state"), ("process", "returns")}
"""Fields whose order of names matters, since it is the order of columns in the state."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder, on a disk or in an object store.

    `partitions` are those that the source had when the pipeline was first started.

    A run that `follows` another one begins where a savepoint of that ended, which is in the folder `start`.
    """

    folder: Folder
    run: Run
    partitions: tuple[int, ...]
    meaning: Meaning
    follows: Follows | None = None

    @staticmethod
    def read(folder: Folder) -> Checkpoint | None:
        """Return the checkpoint in a folder, whatever pipeline it is of, None if there is none yet.

        Raise CheckpointError if it is no checkpoint, or damaged.
        """
        Checkpoint.refuse_foreign(folder)
        path = folder / _FILE
        if not path.exists():
            return None
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["format"] != _FORMAT:
                msg = (
                    f"{path} has format {kept['format']}, not {_FORMAT}: another version of windrow wrote it; go on "
                    "with that version, or start over with --fresh"
                )
                raise CheckpointError(msg)
            if kept.pop("sha256") != _digest(kept):
                msg = "it is not what was written"
                raise ValueError(msg)  # noqa: TRY301 - it ends as what cannot be read does
            run, partitions = Run(kept["name"], kept["run"]), tuple(kept["partitions"])
            return Checkpoint(folder, run, partitions, kept["pipeline"], _follows(kept.get("follows")))
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise _unreadable(path, exc) from exc

    @staticmethod
    def open(folder: Folder, graph: m.Graph) -> Checkpoint | None:
        """Return the checkpoint in a folder, None if there is none yet.

        Before the first step it is of the pipeline's tables as they are now. Raise CheckpointError if it is another
        pipeline's, or as `read` does.
        """
        checkpoint = Checkpoint.read(folder)
        if checkpoint is not None and (differences := checkpoint.differences(graph)):
            listed = "\n  ".join(differences)
            msg = (
                f"the checkpoint {folder} is of another pipeline; it differs in\n  {listed}\n"
                "name another --checkpoint, or start over with --fresh; many changes can resume from a savepoint "
                "(run --from-savepoint)"
            )
            raise CheckpointError(msg)
        if checkpoint is not None and checkpoint.has_no_rows:
            return replace(checkpoint, meaning=fingerprint(graph))
        return checkpoint

    def differences(self, graph: m.Graph) -> list[str]:
        """Return in words how a pipeline differs from that of the checkpoint, as far as its state is concerned."""
        tables = () if self.has_no_rows else other_tables(self.meaning, graph)
        return [
            *_differences(self.meaning, fingerprint(graph)),
            *(f"{one.field}: {one.there} there, {one.here} here: {one.why}" for one in self.renamed(graph) if one.why),
            *(f"{table.field}: {_text(table.there)} there, {_text(table.here)} here" for table in tables),
        ]

    def renamed(self, graph: m.Graph) -> list[RenamedLog]:
        """Return the sources of a pipeline whose rows would have another `source` than those of before."""
        return [] if self.has_no_rows else list(renamed_logs(self.meaning, fingerprint(graph)))

    @staticmethod
    def new(folder: Folder, graph: m.Graph, partitions: Iterable[int], follows: Follows | None = None) -> Checkpoint:
        """Return a checkpoint that is not written yet."""
        return Checkpoint(folder, Run.new(graph.name), tuple(partitions), fingerprint(graph), follows)

    def write(self) -> None:
        """Write whose checkpoint this is, unless that is there and may be of tables with rows."""
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
        """Return a pipeline with the entries that its lists had at first, and the names of lists that have others now.

        A step that is run again is judged as it was, so entries change with a savepoint, which is between two steps.
        """
        graph = with_entries(graph)
        path, lists = self.folder / _LISTS, lists_of(graph)
        if not lists:
            return graph, []
        if not path.exists():
            if self.has_steps:
                msg = f"{path} is gone, by whose entries the steps were judged; restore it, or start over with --fresh"
                raise CheckpointError(msg)
            with writing(self.folder):
                write_whole(path, json.dumps({one.name: one.entries for one in lists}))
        try:
            kept = {name: tuple(entries) for name, entries in json.loads(path.read_text(encoding="utf-8")).items()}
            changed = [one.name for one in lists if kept[one.name] != one.entries]
            first = with_lists_of(graph, [replace(one, entries=kept[one.name]) for one in lists])
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise _unreadable(path, exc) from exc
        return first, changed

    @staticmethod
    def refuse_foreign(folder: Folder) -> None:
        """Raise CheckpointError if a folder is neither a checkpoint nor empty, whatever pipeline it is of."""
        if folder.exists() and not (folder / _FILE).is_file() and not _is_unused(folder):
            msg = f"{folder} is not a checkpoint of windrow: there is no {_FILE} in it; name another folder"
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
        """The file that says how many records the next step takes, if that can change."""
        return on_this_machine(self.folder) / "step_size"

    @property
    def rows(self) -> Folder:
        """The folder in which executors of a cluster leave the rows of a step for the driver."""
        return self.folder / "rows"

    @property
    def log(self) -> Path:
        """The log file of Spark."""
        return log_of(self.folder)

    @property
    def start(self) -> Folder:
        """The savepoint that the run begins with, if it follows another one."""
        return self.folder / _START

    @property
    def first_epoch(self) -> int:
        """The epoch of Spark's first batch."""
        return 0 if self.follows is None else self.follows.epoch + 1

    @property
    def committed(self) -> int | None:
        """The last epoch that Spark noted as done."""
        batch = self.batch
        return None if batch is None else self.first_epoch + batch

    @property
    def batch(self) -> int | None:
        """The last batch that Spark noted as done, by its own number, which counts from 0."""
        return last_noted(self.spark / "commits")

    def clear_start(self) -> None:
        """Remove what a beginning from a savepoint left that was ended before the checkpoint was written."""
        for path in self.folder.glob(f"*{_START}*"):
            remove(path)

    def carried(self) -> Savepoint | None:
        """Return the savepoint that the run begins with, None if there is none."""
        return None if self.follows is None else Savepoint.read(self.start)

    def sync(self) -> None:
        """Have all that was written into the checkpoint on its disk; raise CheckpointError if that fails."""
        if isinstance(self.folder, Path):
            with writing(self.folder):
                _sync_file_system(self.folder)

    @property
    def has_beginning(self) -> bool:
        """Whether it is noted where the run begins."""
        return (self.folder / _BEGINNING).exists()

    @property
    def has_steps(self) -> bool:
        """Whether a step was planned."""
        return self._planned is not None

    @property
    def has_no_rows(self) -> bool:
        """Whether no step can be in the tables, neither of this run nor of one that it follows."""
        return self.follows is None and not self.has_steps

    def note_beginning(self, note: StepOffsets) -> None:
        """Write where the run begins; raise CheckpointError if that cannot be written."""
        with writing(self.folder):
            write_whole(self.folder / _BEGINNING, json.dumps(note.to_json()))

    def note_step_size(self, records: int) -> None:
        """Write how many records the next step takes; raise CheckpointError if that cannot be written."""
        with writing(self.folder):
            write_whole(self.step_size, f"{records}\n")

    def place(self, batch: int | None) -> tuple[Folder, int]:
        """Return the file and the line of Spark's note on a batch, or of the one on the beginning."""
        if batch is None or batch < 0:
            return self.folder / _BEGINNING, 0
        return self.spark / "offsets" / str(batch), _SOURCE_LINE

    def note(self, batch: int | None) -> StepOffsets:
        """Return where a batch of Spark's ends, or where the run begins; raise CheckpointError if it cannot be read."""
        path, line = self.place(batch)
        try:
            # the source is the first of those that are joined in a query
            return StepOffsets.of(json.loads(path.read_text(encoding="utf-8").splitlines()[line]))
        except (OSError, ValueError, TypeError, LookupError) as exc:
            raise _unreadable(path, exc) from exc

    def keep_plan(self, batch: int) -> None:
        """Note how a batch was planned, whose plan is taken back; raise CheckpointError if it cannot be written.

        It is to be planned so once more: executors of a cluster may still write the states that follow from it. The end
        of the input is planned anew, since the next run may not emit one.
        """
        begins, ends = self.ends_of(batch - 1), self.ends_of(batch)
        if begins[0]["ends"] == ends[0]["ends"]:
            with writing(self.folder):
                write_whole(self.folder / _PLANNED, json.dumps([begins, ends]))

    def forget_plan(self) -> None:
        """Forget how the next step was planned."""
        (self.folder / _PLANNED).unlink(missing_ok=True)

    @property
    def kept_plan(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """From where to where the step that was kept goes in each source of the query; empty if there is none."""
        path = self.folder / _PLANNED
        if not path.exists():
            return []
        try:
            begins, ends = json.loads(path.read_text(encoding="utf-8"))
            return list(zip(begins, ends, strict=True))
        except (OSError, ValueError, TypeError) as exc:
            raise _unreadable(path, exc) from exc

    def ends_of(self, batch: int) -> list[Any]:
        """Return where a batch ends in each source of the query, as Spark noted it."""
        lines = self.place(batch)[0].read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines[_SOURCE_LINE:]]

    def offsets(self, batch: int | None = None) -> dict[int, int]:
        """Return the next offset of each partition after a batch of Spark's, by default the last that it noted as done.

        Before the first, -1, they are those where the run begins. A partition of which nothing was read may be
        missing. Raise CheckpointError if Spark's note, or the savepoint that the run begins with, cannot be read.
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
        """What distinguishes the log that was read from another of the same name, or None if that is not known."""
        path = self.folder / _IDENTITY
        if not path.exists():
            return None
        try:
            identity: str | None = json.loads(path.read_text(encoding="utf-8"))["identity"]
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise _unreadable(path, exc) from exc
        return identity

    def note_identity(self, identity: str | None) -> None:
        """Write the log's identity, unless it is there."""
        if identity is not None and identity != self.identity:
            write_whole(self.folder / _IDENTITY, json.dumps({"identity": identity}) + "\n")

    @property
    def _planned(self) -> int | None:
        """The last batch whose input Spark has noted."""
        return last_noted(self.spark / "offsets")


def _sync_file_system(folder: Path) -> None:
    """Sync the file system that a folder is in.

    Spark syncs none of its files. A step writes a dozen small ones and more: one call for all of them takes a quarter
    of the time that one for each takes, and misses none.
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
    """Raise CheckpointError if what is written into a checkpoint cannot be."""
    try:
        yield
    except OSError as exc:
        msg = f"the checkpoint {folder} cannot be written: {exc.strerror or exc}"
        raise CheckpointError(msg) from exc


def log_of(folder: Folder) -> Path:
    """Return the log file of Spark in a run with the checkpoint in a folder."""
    return on_this_machine(folder) / "spark.log"


def _unreadable(path: Folder, exc: Exception) -> CheckpointError:
    return CheckpointError(f"{path} cannot be read ({exc}); restore the checkpoint, or start over with --fresh")


def _follows(kept: Any) -> Follows | None:  # noqa: ANN401 - plain JSON
    return None if kept is None else Follows(Run(**kept["run"]), kept["epoch"])


def offsets_of(at: Offset) -> dict[int, int]:
    """Return the next offset of each partition at an offset, as Spark keeps it."""
    return dict(sorted(_next_offsets(at)))


def _next_offsets(kept: Any) -> Iterator[tuple[int, int]]:  # noqa: ANN401 - plain JSON
    """Read an offset as Spark keeps it: {partition: {"line": n, ...}} of an embedded log, {topic: {partition: n}}.

    Of several sources, it is {"sources": [...]} with the offset of each.
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
    """Return the last batch in one of Spark's logs, None if there is none."""
    batches = [int(path.name) for path in log.iterdir() if path.name.isdigit()] if log.is_dir() else []
    return max(batches, default=None)


def _is_unused(folder: Folder) -> bool:
    """Whether there is nothing in a folder but what a run leaves that was ended before it began."""
    beginnings = {"spark.log", *HISTORY, LOCK, draft_of(Path(_FILE)).name, _START, _BACKFILL, f"{_BACKFILL}.json"}
    drafts = (f".{_START}.draft-", f".{_BACKFILL}.draft-", f".{_BACKFILL}.json.draft")
    return folder.is_dir() and all(path.name in beginnings or path.name.startswith(drafts) for path in folder.iterdir())


def _differences(kept: Any, given: Any, path: tuple[str, ...] = ()) -> Iterator[str]:  # noqa: ANN401 - plain JSON
    # in a graph, what is true of a pipeline is true of each stream and source
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
"""The file in a checkpoint that the run holds which uses it."""


@contextmanager
def locked(checkpoint: Folder) -> Iterator[None]:
    """Keep other runs away from a checkpoint, whose folder is made; the kernel lets go for a run that is killed.

    An object store has no locks: the lock keeps those of this folder on this machine away, and the sink all others.

    Who could not begin leaves no lock where there was none, and no empty folder. Raise CheckpointError if another run
    uses it, or the lock cannot be written.
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
        # a lock that is not there any more was another's, who is just leaving or has removed the checkpoint
        if not (_taken(file) and _is_at(path, file)):
            msg = f"another run is using the checkpoint {checkpoint}: end that one, or name another --checkpoint"
            raise CheckpointError(msg)
        try:
            yield
        except BaseException:
            if is_new and _is_at(path, file):
                with suppress(OSError):
                    path.unlink()
                    folder.rmdir()
            raise


def _taken(file: BinaryIO) -> bool:
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
    """Return the next offsets of runs over an embedded log, by their checkpoints: those named, and those in `DEFAULT`.

    Raise InputError if a named one is not a checkpoint of a run over the log, CheckpointError if it is damaged.
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


def refuse_unread(readers: Mapping[str, Mapping[int, int]], changes: Sequence[Change], log: str) -> None:
    """Raise InputError if a change removes records that a run has not read."""
    for folder, offsets in readers.items():
        for change in changes:
            at = offsets.get(change.partition, change.before.first.line)
            if at < change.upto:
                msg = (
                    f"the run of the checkpoint {folder} has read partition {change.partition} of {log} up to offset "
                    f"{at:,} only, and records before {change.upto:,} would go: let it catch up first, remove less, or "
                    "give --force"
                )
                raise InputError(msg)


def _offsets_in(checkpoint: Checkpoint, log: LogFolder) -> dict[int, int] | None:
    """Return the offsets of a run in a log, the smallest if it reads the log more than once; None if it does not."""
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
    """Return whether the files of a log begin as those that a source has read: a graph's checkpoint has no paths."""
    marks = {name: at["head"] for name, at in part.items() if isinstance(at, dict) and "head" in at}
    there = {str(partition) for partition in log.partitions()}
    return bool(marks) and all(name in there and log.head(int(name)) == mark for name, mark in marks.items())


def _is_log(source: Mapping[str, Any], log: LogFolder) -> bool:
    """Return whether a source is this log; a relative path starts in the current folder, as for the run."""
    path = source.get("log", {}).get("path") or source.get("file", {}).get("log")
    return path is not None and Path(path).resolve() == log.path.resolve()
