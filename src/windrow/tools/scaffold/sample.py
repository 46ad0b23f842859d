"""Reads samples of records from a file of JSON lines (gzip if `.gz`), a folder of files, an embedded log or a topic."""

from __future__ import annotations

import gzip
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow import model as m
from windrow.connectors.not_text import refusal_of
from windrow.connectors.open_sources import open_source
from windrow.engine.schema import RAW
from windrow.errors import InputError

if TYPE_CHECKING:
    from windrow.connectors.source import Source as Connector

_KAFKA = "kafka://"


@dataclass(frozen=True)
class Sample:
    """Records (`windrow.engine.schema.RAW`) read from `place`; `name` is a short name for them.

    `source` is a pipeline's source for the same records, or None for a file of lines, because that is not a log.
    `whole` is False if there are more records than were read.
    """

    place: str
    name: str
    raw: pa.Table
    source: m.Source | None
    whole: bool

    @property
    def lines(self) -> bytes:
        """The records as lines."""
        return b"".join(value + b"\n" for value in self.raw.column("value").to_pylist())


def read_sample(text: str, records: int) -> Sample:
    """Read at most `records` records from a file, a folder (an embedded log or files), or ``kafka://HOST:PORT/TOPIC``.

    Raise InputError for anything else, for a file that cannot be read, and for a sample without records; raise
    SourceError if a log cannot be read.
    """
    if text.startswith(_KAFKA):
        servers, _, topic = text.removeprefix(_KAFKA).partition("/")
        if not servers or not topic or "/" in topic:
            msg = f"{text} is not {_KAFKA}HOST:PORT/TOPIC"
            raise InputError(msg)
        sample = _of_log(text, topic, m.KafkaSource(servers, topic), records, newest=True)
    elif Path(text).is_dir():
        source = _files(Path(text)) or m.LogSource(text)
        sample = _of_log(text, Path(text).resolve().name, source, records, newest=False)
    else:
        sample = _of_file(Path(text), records)
    if not sample.raw.num_rows:
        msg = f"{text} has no records: give a sample with records, or create a project without --from"
        raise InputError(msg)
    return sample


def _files(folder: Path) -> m.FilesSource | None:
    """Return the files of a folder as a source, or None if it is an embedded log or has no files of a known kind.

    Raise InputError if the files are CSV, or of several kinds, because a source reads only one kind.
    """
    if any(folder.glob("partition-*.jsonl")):
        return None
    paths = [
        path for path in folder.rglob("*") if path.is_file() and not _HIDDEN.search(f"/{path.relative_to(folder)}")
    ]
    kinds = sorted({kind[0] for path in paths if (kind := _KIND.search(path.name))})
    if len(kinds) > 1:
        msg = f"{folder} has {', '.join(f'*{kind}' for kind in kinds)}: give a folder with files of a single kind"
        raise InputError(msg)
    if kinds and ".csv" in kinds[0]:
        msg = (
            f"{folder} has CSV files, whose columns have no types: write the pipeline by hand, with the source `files`"
        )
        raise InputError(msg)
    return m.FilesSource((str(folder / "**" / f"*{kinds[0]}"),)) if kinds else None


_KIND = re.compile(r"\.(jsonl|ndjson|json|csv)(\.gz)?$|\.parquet$")
_HIDDEN = re.compile(r"/(\.|_[^/=]*(/|$))")


def _of_file(path: Path, records: int) -> Sample:
    if path.suffix == ".parquet" and path.is_file():
        msg = f"{path} is a Parquet file: give the folder that it is in"
        raise InputError(msg)
    if (message := refusal_of(path)) is not None:
        raise InputError(message)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            whole = (line.strip() for line in chain([file.readline().removeprefix(BOM_UTF8)], file))
            lines = list(islice(filter(None, whole), records + 1))
    except (OSError, EOFError, zlib.error) as exc:
        msg = f"the sample {path} cannot be read: {exc.strerror if isinstance(exc, OSError) and exc.strerror else exc}"
        raise InputError(msg) from exc
    if lines and lines[0].startswith(b"["):
        msg = f"{path} begins with an array: convert it to JSON lines, one object per line (`jq -c '.[]' {path}`)"
        raise InputError(msg)
    kept = lines[:records]
    raw = pa.table(
        [
            pa.array([0] * len(kept), pa.int32()),
            pa.array(range(len(kept)), pa.int64()),
            pa.nulls(len(kept), RAW.field("log_time").type),
            pa.nulls(len(kept), pa.binary()),
            pa.array(kept, pa.binary()),
        ],
        schema=RAW,
    )
    return Sample(str(path), path.name.partition(".")[0] or "records", raw, None, whole=len(lines) <= records)


def _of_log(place: str, name: str, source: m.Source, records: int, *, newest: bool) -> Sample:
    """Read about the same number of records from each partition, either the newest or the first."""
    connector = open_source(source)
    ends = {partition: (first, end) for partition, (first, end) in connector.ends().items() if first < end}
    batches: list[pa.RecordBatch] = []
    left = records
    # small partitions leave the rest of their share to the others
    for number, partition in enumerate(sorted(ends, key=lambda partition: ends[partition][1] - ends[partition][0])):
        first, end = ends[partition]
        count = min(end - first, left // (len(ends) - number))
        left -= count
        batches += _first(connector, partition, end - count if newest else first, count)
    raw = pa.Table.from_batches(batches, schema=RAW)
    total = sum(end - first for first, end in ends.values())
    return Sample(place, re.sub(r"^\W+", "", name), raw, source, whole=total <= records)


def _first(connector: Connector, partition: int, begin: int, count: int) -> Iterator[pa.RecordBatch]:
    for batch in connector.read_from(partition, begin):
        part = batch.slice(0, count)
        count -= part.num_rows
        yield part
        if not count:
            return
