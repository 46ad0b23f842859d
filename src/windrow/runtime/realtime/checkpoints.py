"""Incremental checkpoints of a partition's state, stored as records of a compacted topic.

A checkpoint is the state at a position of the log. It consists of the blobs that changed since the last checkpoint,
followed by a manifest with the position. It is written in many transactions while the run continues (blobs are
immutable, so a dictionary of references preserves the state at that position). Each blob has two slots, which are two
keys of the topic, and a checkpoint writes the slot that the last complete checkpoint does not use. The topic therefore
always contains a complete checkpoint, no matter how much of the next one has been written or what compaction has
removed. To restore it, read for each blob the newest slot that is not newer than the manifest.

A blob that is too long for one record is divided into parts, each in a record of its own.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from windrow import model as m
from windrow.engine.state.store import MemoryState
from windrow.runtime.realtime.topics import source_of
from windrow.runtime.savepoint import fingerprint

MAX_VALUE = 900_000
"""Maximum bytes of a blob in one record; by default, a broker accepts records of up to a million bytes."""

Record = tuple[bytes, bytes | None]
"""The key and value of a record; a value of None deletes the key."""

_Id = tuple[str, int]
"""A blob's kind and bucket."""
_SUMMARY: _Id = ("", 0)
_HEADER = struct.Struct("<qi")
"""The number of the checkpoint, and the number of parts of the blob, 0 if it was dropped."""
_MANIFEST = b"manifest"


@dataclass(frozen=True)
class Manifest:
    """A complete checkpoint: its number, the next offset to read after its state, and its pipeline's settings."""

    number: int
    position: int
    meaning: dict[str, Any]


@dataclass
class _Written:
    """The records of a blob: the slot in use (None if no slot is complete), and the number of parts in each slot."""

    slot: int | None
    parts: list[int]


class Checkpoints:
    """The checkpoints in a partition of the state topic; `manifest` and `state` belong to the last complete one.

    `records` are all records of the partition, in order.
    """

    def __init__(self, records: Iterable[tuple[bytes, bytes | None]] = ()) -> None:
        found = _Found.of(records)
        self.manifest = found.manifest
        self._written: dict[_Id, _Written] = {}
        self._kept: dict[_Id, bytes] = {}
        self._unsure: set[_Id] = set()
        """Blobs with a slot written by an incomplete checkpoint: the next checkpoint writes them even if unchanged."""
        for id_, versions in found.blobs.items():
            number = -1 if found.manifest is None else found.manifest.number
            complete = [
                version
                for version in versions
                if version.number <= number and len(version.parts) == max(version.count, 1)
            ]
            last = max(complete, key=lambda version: version.number, default=None)
            self._written[id_] = _Written(None if last is None else last.slot, [0, 0])
            for version in versions:
                sizes = self._written[id_].parts
                sizes[version.slot] = max(sizes[version.slot], 1 + max(version.parts))
            if last is not None and last.count:
                self._kept[id_] = b"".join(last.parts[part] for part in range(last.count))
            if any(version.number > number for version in versions):
                self._unsure.add(id_)
        self._pending: Iterator[Record] | None = None

    @property
    def state(self) -> MemoryState:
        """The state of the last complete checkpoint."""
        state = MemoryState()
        for (kind, bucket), blob in self._kept.items():
            if (kind, bucket) == _SUMMARY:
                state.set_summary(blob)
            else:
                state.set(kind, bucket, blob)
        return state

    @property
    def is_writing(self) -> bool:
        """True if a checkpoint has been started and some of its records have not been written yet."""
        return self._pending is not None

    def begin(self, state: MemoryState, position: int, meaning: dict[str, Any]) -> None:
        """Begin a checkpoint of a state; later changes to the state do not affect it."""
        number = 0 if self.manifest is None else self.manifest.number + 1
        blobs = dict(state.items())
        summary = state.summary()
        if summary is not None:
            blobs[_SUMMARY] = summary
        self._pending = self._records(blobs, Manifest(number, position, meaning))

    def take(self, size: int) -> list[Record]:
        """Return the next records of the checkpoint, about `size` bytes in total; its last record completes it."""
        taken: list[Record] = []
        while size > 0 and self._pending is not None:
            record = next(self._pending, None)
            if record is None:
                self._pending = None
                break
            taken.append(record)
            size -= len(record[0]) + len(record[1] or b"")
        return taken

    def _records(self, blobs: dict[_Id, bytes], manifest: Manifest) -> Iterator[Record]:
        kept, unsure = self._kept, self._unsure
        changed = [id_ for id_, blob in blobs.items() if kept.get(id_) is not blob or id_ in unsure]
        dropped = [id_ for id_ in {**kept, **dict.fromkeys(unsure)} if id_ not in blobs]
        # dropped by the last checkpoint already, so no checkpoint that could be restored has them
        erased = [id_ for id_ in self._written if id_ not in kept and id_ not in blobs and id_ not in unsure]
        slots: dict[_Id, int] = {}
        for id_ in (*changed, *dropped):
            blob = blobs.get(id_)
            parts = [] if blob is None else [blob[at : at + MAX_VALUE] for at in range(0, max(len(blob), 1), MAX_VALUE)]
            written = self._written.setdefault(id_, _Written(None, [0, 0]))
            slot = slots[id_] = 0 if written.slot is None else 1 - written.slot
            written.parts[slot] = max(written.parts[slot], len(parts), 1)
            for part, piece in enumerate(parts or [b""]):
                yield _key(id_, slot, part), _HEADER.pack(manifest.number, len(parts)) + piece
        for id_ in erased:
            written = self._written.pop(id_)
            # remove the slot with the drop last: without it, the other slot would bring the blob back
            last = written.slot or 0
            for slot in (1 - last, last):
                yield from ((_key(id_, slot, part), None) for part in range(written.parts[slot]))
        yield _MANIFEST, json.dumps(asdict(manifest)).encode()
        for id_, slot in slots.items():
            self._written[id_].slot = slot
        self.manifest, self._kept, self._unsure = manifest, blobs, set()


def _key(id_: _Id, slot: int, part: int) -> bytes:
    kind, bucket = id_
    return f"{slot}/{part}/{bucket}/{kind}".encode()


@dataclass
class _Version:
    """A blob as written to a slot by one checkpoint: the number of its parts, and the parts found in the topic."""

    number: int
    slot: int
    count: int
    parts: dict[int, bytes]


@dataclass
class _Found:
    manifest: Manifest | None
    blobs: dict[_Id, list[_Version]]

    @staticmethod
    def of(records: Iterable[tuple[bytes, bytes | None]]) -> _Found:
        """Read the records; only the last record of each key counts."""
        last = dict(records)
        manifest = last.pop(_MANIFEST, None)
        # parts of an incomplete blob have another count, or are overwritten
        versions: defaultdict[_Id, dict[tuple[int, int, int], _Version]] = defaultdict(dict)
        for key, value in last.items():
            if value is None:
                continue
            slot, part, bucket, kind = key.decode().split("/", 3)
            number, count = _HEADER.unpack_from(value)
            new = _Version(number, int(slot), count, {})
            version = versions[kind, int(bucket)].setdefault((number, int(slot), count), new)
            version.parts[int(part)] = value[_HEADER.size :]
        return _Found(_read(manifest), {id_: list(found.values()) for id_, found in versions.items()})


def manifest_in(records: Mapping[bytes, bytes | None]) -> Manifest | None:
    """Return the manifest of the last complete checkpoint, or None."""
    return _read(records.get(_MANIFEST))


def _read(manifest: bytes | None) -> Manifest | None:
    return None if manifest is None else Manifest(**json.loads(manifest))


_ELSEWHERE = frozenset({"source", "sink", "servers", "key_groups", "mode", "rules", "lists", "recent"})
"""Sections that the state does not depend on: locations, and settings that the rules journal records."""


def meaning_of(graph: m.Graph) -> dict[str, Any]:
    """Return the settings that the state depends on, as plain JSON: the pipeline without the `_ELSEWHERE` sections."""

    def filter_sections(meaning: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in meaning.items() if name not in _ELSEWHERE}

    found = filter_sections(fingerprint(graph)) | {"topic": source_of(graph).topic}
    if "streams" in found:
        found["tables"] = {sink.sink.table: sink.input for sink in graph.sinks}
        found["streams"] = {name: filter_sections(stream) for name, stream in found["streams"].items()}
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain
