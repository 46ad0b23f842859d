"""The engines that are compared: where their scripts are, how they keep state, and what they do with late records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bench.peers.job import TABLE_ONLY

HERE = Path(__file__).parent
Sink = Literal["none", "postgres"]
Kind = Literal["windrow", "peer", "limit"]


@dataclass(frozen=True)
class Engine:
    """One engine in one setting; `folder` has its `run.py`, and `requirements.txt` unless windrow's will do.

    `memory` says what it was given, `differs` how its meaning differs from windrow's. A slow one gets fewer events.
    """

    name: str
    title: str
    folder: str
    kind: Kind
    memory: str
    differs: str
    slow: bool = False
    window: str = "{tumbling: 5m}"

    @property
    def script(self) -> Path:
        """What runs it."""
        return HERE / self.folder / "run.py"

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Where its results can go."""
        if self.name.endswith(TABLE_ONLY):
            return ("postgres",)
        return ("none",) if self.kind == "limit" else ("none", "postgres")


_SPARK = "heap 4 GiB"
_PYSPARK = (
    "one watermark, the maximum over the partitions, moves between micro-batches: what is late depends on where they "
    "are cut; late records are dropped, and counted; no revisions; windows open at the end are not written"
)
_FLINK = (
    "watermark per partition, the least counts; it moves by the wall clock (each 200 ms), so what is late is another "
    "set in each run; late records are dropped, and counted; no revisions and no late output (its DataStream API has "
    "both); rows into PostgreSQL at least once, by key"
)

ENGINES = (
    Engine(
        "stream", "windrow, stream host", "windrow", "windrow", _SPARK, "exactly once, with changelog and late output"
    ),
    Engine(
        "batch", "windrow, batch host", "windrow", "windrow", _SPARK, "the same table as the stream host's; bounded"
    ),
    Engine(
        f"stream{TABLE_ONLY}", "windrow, stream host, no changelog", "windrow", "windrow", _SPARK, "with late output"
    ),
    Engine(f"batch{TABLE_ONLY}", "windrow, batch host, no changelog", "windrow", "windrow", _SPARK, "with late output"),
    Engine("flink", "Flink SQL, heap", "flink", "peer", "heap 4 GiB", _FLINK),
    Engine("flink-rocksdb", "Flink SQL, RocksDB", "flink", "peer", "heap 3 GiB, RocksDB 1 GiB", _FLINK),
    Engine("pyspark", "PySpark, RocksDB", "pyspark", "peer", _SPARK, _PYSPARK),
    Engine("pyspark-hdfs", "PySpark, default store", "pyspark", "peer", _SPARK, _PYSPARK),
    Engine(
        "bytewax",
        "Bytewax, 2 processes",
        "bytewax",
        "peer",
        "no limit",
        "watermark per key, which moves with the wall clock too; late records come out as a stream; no revisions; "
        "without recovery here",
        slow=True,
    ),
    Engine(
        "quix",
        "Quix Streams, 2 processes",
        "quix",
        "peer",
        "no limit",
        "watermark per partition, a function of the log; late records are dropped, or given to a callback; no "
        "revisions; windows open at the end are not written; at least once",
        slow=True,
    ),
    Engine(
        "pathway",
        "Pathway, 2 threads",
        "pathway",
        "peer",
        "no limit",
        "no watermark: every record revises its window, and all windows are kept for ever; no late output; without "
        "persistence here",
        slow=True,
    ),
    Engine(
        "pathway-cutoff",
        "Pathway, with a cut-off",
        "pathway",
        "peer",
        "no limit",
        "one watermark over all that was read, so what is late depends on the order of reading the partitions, and is "
        "much in a replay; late records are dropped in silence; without persistence here",
        slow=True,
    ),
    Engine("read", "Spark reads, and drops", "pyspark", "limit", _SPARK, "a limit: no parsing, no windows"),
    Engine("parse", "Spark reads, parses, and drops", "pyspark", "limit", _SPARK, "a limit: no windows"),
    Engine(
        "clock", "windrow up to its clock stage", "windrow", "limit", _SPARK, "a limit: decoded, judged, no windows"
    ),
)


def engine(name: str) -> Engine:
    """Return an engine by its name; ``stream:{session: 5m}`` is windrow's with that window. Raise KeyError."""
    name, _, window = name.partition(":")
    found = {one.name: one for one in ENGINES}[name]
    if not window:
        return found
    return replace(found, name=f"{name}:{window}", title=f"{found.title}, {window}", window=window)
