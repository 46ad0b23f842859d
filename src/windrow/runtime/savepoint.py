"""Savepoints, and the fingerprint of a pipeline.

A savepoint is the state of every key group after a step, with the position in the log at which that step ended.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from windrow import model as m
from windrow.authoring.printing import to_dict
from windrow.authoring.short_form import as_short
from windrow.connectors.cuts import Offset
from windrow.connectors.sink import Run
from windrow.engine.state.store import MemoryState
from windrow.errors import CheckpointError, InputError
from windrow.telemetry.folders import Folder, new_folder

if TYPE_CHECKING:
    from io import BufferedReader

FILE = "savepoint.json"
_FORMAT = 4
_ENTRY = pa.schema([("kind", pa.string()), ("bucket", pa.int64()), ("blob", pa.large_binary())])
"""The schema of a key group's blobs; the row without a kind is the summary."""


@dataclass(frozen=True)
class Savepoint:
    """The state of a run after `epoch`, in a folder with one file for each key group.

    `offsets` are the next offsets to read, and `partitions` the partitions that the checkpoint lists. `at` is the same
    position as the source records it. `identity` distinguishes the log from another log of the same name (None if
    unknown, as in a savepoint of an older version). `decoded_since` maps a partition to the offset before which its
    records were decoded with settings other than those in `meaning`; partitions without such records are left out. In a
    salted pipeline, the only state of the first stage is the clocks, which every key group has, so only the second
    stage's state is saved.
    """

    run: Run
    epoch: int
    offsets: dict[int, int]
    partitions: tuple[int, ...]
    key_groups: int
    meaning: Meaning
    versions: dict[str, str] = field(
        default_factory=lambda: {name: version(name) for name in ("windrow", "pyarrow", "duckdb", "pyspark")}
    )
    at: Offset | None = None
    identity: str | None = None
    decoded_since: dict[int, int] = field(default_factory=dict)

    def write(self, folder: Folder, states: Iterable[tuple[int, MemoryState]]) -> None:
        """Write the savepoint with the state of each key group; the folder appears completely or not at all.

        Raise InputError if the folder is not empty or cannot be created, and CheckpointError if writing fails.
        """
        require_new_folder(folder)
        try:
            with new_folder(folder, last=FILE) as draft:
                files = {str(group): _write(draft / _file_name(group), state) for group, state in states}
                if files.keys() != {str(group) for group in range(self.key_groups)}:
                    msg = f"a savepoint of {self.key_groups} key groups was given the states of {sorted(files)}"
                    raise ValueError(msg)
                body = json.dumps({"format": _FORMAT, **asdict(self), "files": files}, indent=2)
                text = json.dumps({"sha256": _digest(body.encode())})[:-1] + f',\n"savepoint": {body}}}\n'
                (draft / FILE).write_text(text, encoding="utf-8")
        except OSError as exc:
            msg = f"the savepoint {folder} cannot be written: {exc.strerror or exc}"
            raise CheckpointError(msg) from exc

    @staticmethod
    def read(folder: Folder) -> Savepoint:
        """Return the savepoint in a folder, without the states; raise CheckpointError if it is missing or damaged."""
        body = _body(folder)
        return Savepoint(
            run=Run(**body["run"]),
            epoch=body["epoch"],
            offsets={int(partition): offset for partition, offset in body["offsets"].items()},
            partitions=tuple(body["partitions"]),
            key_groups=body["key_groups"],
            meaning=body["meaning"],
            versions=body["versions"],
            at=body.get("at"),
            identity=body.get("identity"),
            decoded_since={int(partition): offset for partition, offset in body.get("decoded_since", {}).items()},
        )

    @staticmethod
    def states(folder: Folder) -> Iterator[tuple[int, MemoryState]]:
        """Yield the state of each key group, in order; raise CheckpointError if a file is damaged."""
        files = _body(folder)["files"]
        for group in range(len(files)):
            yield group, _read(folder / _file_name(group), files[str(group)])

    @staticmethod
    def state(folder: Folder, group: int) -> MemoryState:
        """Return the state of one key group; raise CheckpointError if its file is damaged."""
        return _read(folder / _file_name(group), _body(folder)["files"][str(group)])


def require_new_folder(folder: Folder) -> None:
    """Raise InputError unless a savepoint can be written to a folder, which must be empty or absent.

    Also raise InputError if the folder is absent and cannot be created.
    """
    created: list[Path] = []
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            msg = f"{folder} is not empty: choose another folder for the savepoint"
            raise InputError(msg)
        if not isinstance(folder, Path):
            return
        for parent in reversed([parent for parent in folder.parents if not parent.exists()]):
            parent.mkdir()
            created.append(parent)
        Path(tempfile.mkdtemp(dir=folder.parent)).rmdir()
    except OSError as exc:
        msg = f"{folder} cannot be created ({exc.strerror}): choose another folder for the savepoint"
        raise InputError(msg) from exc
    finally:
        for parent in reversed(created):
            with suppress(OSError):  # another process may have put a file there meanwhile
                parent.rmdir()


def _file_name(group: int) -> str:
    return f"group-{group:04}.arrow"


def _write(path: Path, state: MemoryState) -> dict[str, Any]:
    """Write a key group's file; return its size and digest."""
    summary = state.summary()
    entries: list[tuple[str | None, int | None, bytes]] = [] if summary is None else [(None, None, summary)]
    entries += ((kind, bucket, blob) for (kind, bucket), blob in sorted(state.items()))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, _ENTRY) as writer:
        for kind, bucket, blob in entries:
            writer.write_batch(pa.record_batch([[kind], [bucket], [blob]], schema=_ENTRY))
    return {"bytes": path.stat().st_size, "sha256": _file_digest(path)}


def _read(path: Folder, known: dict[str, Any]) -> MemoryState:
    """Read a key group's file; raise CheckpointError if its size or digest is not as recorded."""
    try:
        if path.stat().st_size != known["bytes"] or _file_digest(path) != known["sha256"]:
            msg = f"{path} is damaged: it is not what was written; take another savepoint, or restore the file"
            raise CheckpointError(msg)
        state = MemoryState()
        with path.open("rb") as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                for row in batch.to_pylist():
                    if row["kind"] is None:
                        state.set_summary(row["blob"])
                    else:
                        state.set(row["kind"], row["bucket"], row["blob"])
    except OSError as exc:
        msg = f"{path} cannot be read: {exc.strerror or exc}; restore the file, or take another savepoint"
        raise CheckpointError(msg) from exc
    return state


def _body(folder: Folder) -> Any:  # noqa: ANN401 - plain JSON
    path = folder / FILE
    if not path.is_file():
        msg = f"{folder} is not a savepoint: there is no {FILE} in it; `windrow savepoint` writes one"
        raise CheckpointError(msg)
    try:
        text = path.read_text(encoding="utf-8")
        whole = json.loads(text)
        if whole["sha256"] != _digest(text.partition('"savepoint": ')[2][:-2].encode()):
            msg = "it is not what was written"
            raise ValueError(msg)  # noqa: TRY301 - reported like an unreadable file
        body = whole["savepoint"]
        if body["format"] != _FORMAT:
            msg = f"it has format {body['format']}, not {_FORMAT}: another version of windrow wrote it"
            raise ValueError(msg)  # noqa: TRY301 - the same
    except (OSError, ValueError, KeyError, TypeError) as exc:
        msg = f"{path} cannot be read ({exc}); restore it, or take another savepoint"
        raise CheckpointError(msg) from exc
    return body


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _file_digest(path: Folder) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(cast("BufferedReader", file), "sha256").hexdigest()


Meaning = dict[str, Any]
"""A pipeline as plain JSON, with the keys of a pipeline file and its number of key groups."""

FREE = {
    ("source", "log", "path"),
    ("source", "file", "path"),
    ("source", "file", "key"),
    ("source", "file", "log"),
    ("source", "postgres_cdc", "url"),
    ("source", "postgres_cdc", "tables"),
    ("source", "postgres_cdc", "options"),
    ("source", "kafka", "servers"),
    ("source", "kafka", "options"),
    ("source", "kafka", "start"),
    ("source", "kafka", "group"),
    ("source", "kafka", "format", "avro", "registry"),
    ("source", "kafka", "format", "protobuf", "registry"),
    ("source", "kafka", "format", "json_schema", "registry"),
    ("source", "kafka", "key_format"),
    ("emit", "at_end"),
    ("at_end",),
    ("sink",),
    ("servers",),
    ("labels",),
}
"""Settings that no state depends on: locations, how keys are read, and how a bounded run ends."""


def fingerprint(graph: m.Graph) -> Meaning:
    """Return the settings that a pipeline's state depends on, and its locations; for a graph, those of each stream."""
    # the section of a topic has its name
    folders = [source for source in graph.sources if not isinstance(source.source.records, m.KafkaSource)]
    named = {"" if graph.is_short else source.name: source.source.label for source in folders}
    labels = {"labels": named} if folders else {}
    if graph.is_short:
        return to_dict(replace(graph, alerts=m.DEFAULT_ALERTS)) | {"key_groups": graph.key_groups} | labels
    streams = {node.name: to_dict(as_short(graph, node)) for node in graph.keyed if isinstance(node, m.ResultNode)}
    printed = to_dict(graph)
    records: dict[str, Any] = {}
    for source in graph.sources:
        section = printed["sources"][source.name]
        # if only windows read the source, its section is in that of each window
        is_in_all = all(isinstance(node, m.ResultNode) for node in graph.readers(source))
        records[source.name] = section.get("lateness") if is_in_all else without_location(section)
    for node in graph.streams:
        if isinstance(node, m.ResultNode):
            streams[node.name]["from"] = node.input
            streams[node.name]["is_chained"] = graph.is_chained(node)
        else:
            records[node.name] = printed["streams"][node.name]
        if isinstance(node, m.SelectNode) and m.is_by_branch(graph, node):
            # older states identified the rows by their places alone
            records[node.name]["rows"] = "by branch"
        if key := graph.partition_key_of(node):
            # older states are partitioned by the node's own key
            records[node.name][PARTITIONED_BY] = list(key)
    found = {"name": graph.name, "key_groups": graph.key_groups, "streams": streams, "records": records} | labels
    # an id of a topic is valid at its servers only
    found["servers"] = {
        source.name: printed["sources"][source.name]["source"].get("kafka", {}).get("servers")
        for source in graph.sources
    }
    return found | ({"sources": [node.name for node in graph.sources]} if len(graph.sources) > 1 else {})


PARTITIONED_BY = "partitioned_by"
"""The entry of a deduplication that is partitioned by the key of the streams that read it."""


def with_partitioning_of(kept: Meaning, graph: m.Graph) -> m.Graph:
    """Return a pipeline with its states partitioned like those that were stored with `kept`."""
    sections = kept.get("records", {}).values()
    copartitions = any(isinstance(section, dict) and PARTITIONED_BY in section for section in sections)
    return replace(graph, copartitions=copartitions)


_SAME_TABLE = ("path", "url", "servers", "table", "topic")
"""Settings of a sink that identify its table."""


@dataclass(frozen=True)
class OtherTable:
    """A changed sink setting, by its path in the pipeline file, that makes existing rows of the sink's table wrong."""

    field: str
    there: Any
    here: Any


def other_tables(kept: Meaning, graph: m.Graph) -> Iterator[OtherTable]:
    """Yield the sinks whose table was written by another stream, or by the same stream without a changelog.

    A stored pipeline has one sink for each result, the first one below it, so other tables are not checked.
    """
    streams: dict[str, Meaning] = kept.get("streams", {"": kept})
    known: dict[str, dict[str, dict[str, Any]]] = {}
    for name, section in streams.items():
        if "sink" in section:
            known.setdefault(_table(section["sink"]), {})[name] = section["sink"]
    # a short form is printed as such
    printed = to_dict(graph)["sinks"] if not graph.is_short else {"": to_dict(graph)}
    for node in graph.sinks:
        section = printed[node.name]["sink"]
        before = known.get(_table(section), {})
        if not before:
            continue
        stream, was = next(iter(before.items()))
        ((kind, settings),) = section.items()
        above = {
            result.name
            for result in graph.keyed
            if isinstance(result, m.ResultNode)
            and not graph.sinks_of(result.name)
            and node in graph.sinks_below(result)
        }
        if node.input not in before and not before.keys() <= above:
            table = node.sink.table
            yield OtherTable(f"sinks.{node.name}", f"{table} of {stream}", f"{table} of {node.input}")
        elif settings.get("changelog", True) and not was[kind].get("changelog", True):
            path = f"sinks.{node.name}." if node.name else ""
            yield OtherTable(f"{path}sink.{kind}.changelog", there=False, here=True)


def _table(section: dict[str, dict[str, Any]]) -> str:
    ((kind, settings),) = section.items()
    return json.dumps([kind, *(settings.get(name) for name in _SAME_TABLE)])


@dataclass(frozen=True)
class RenamedLog:
    """A source, by its path in the pipeline file, whose rows get a new value in the column `source`."""

    field: str
    there: str
    here: str
    why: str | None
    """Why the change is refused, or None."""


def renamed_logs(kept: Meaning, given: Meaning) -> Iterator[RenamedLog]:
    """Yield the sources whose log was renamed; pipelines stored by older versions have no log names to compare."""
    labels: dict[str, str] = given.get("labels", {})
    for name, there in kept.get("labels", {}).items():
        here = labels.get(name, there)
        if here != there:
            # with several logs, rows of the journal name theirs
            why = f"the clock journal has it as {there}: give the folder, or a link to it, that name again"
            field, is_only = f"sources.{name}.source" if name else "source", "sources" not in given
            yield RenamedLog(field, there, here, None if is_only else why)


def without_location(section: dict[str, Any]) -> dict[str, Any]:
    """Return a source's section without the location of its log."""

    def clean(settings: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - plain JSON
        if not isinstance(settings, dict):
            return settings
        return {name: clean(value, (*path, name)) for name, value in settings.items() if (*path, name) not in FREE}

    return section | {"source": clean(section["source"], ("source",))}
