"""The engines that are compared: where their scripts are, how they keep state, and what they do with late records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from bench.peers.job import TABLE_ONLY

HERE = Path(__file__).parent
Sink = Literal["none", "postgres", "kafka", "delta", "parquet"]
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
        if self.kind == "limit":
            return ("none",)
        if self.kind == "windrow":
            return get_args(Sink)
        return ("none", "postgres", "kafka") if self.folder == "flink" else ("none", "postgres")


_SPARK = "heap 4 GiB"
_PYSPARK = (
    "one watermark, the maximum over the partitions, advances between micro-batches, so which records are late "
    "depends on the batches; late records are dropped and counted; no revisions; windows open at the end are not "
    "written"
)
_FLINK = (
    "watermark per partition, the minimum counts; it advances by the wall clock (every 200 ms), so different "
    "records are late in each run; late records are dropped and counted; no revisions and no late output (the "
    "DataStream API has both); at-least-once rows into PostgreSQL, by key"
)

ENGINES = (
    Engine(
        "stream", "windrow, stream host", "windrow", "windrow", _SPARK, "exactly once, with changelog and late output"
    ),
    Engine("batch", "windrow, batch host", "windrow", "windrow", _SPARK, "the same table as the stream host; bounded"),
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
        "watermark per key, which also advances with the wall clock; late records are a separate stream; no "
        "revisions; without recovery here",
        slow=True,
    ),
    Engine(
        "quix",
        "Quix Streams, 2 processes",
        "quix",
        "peer",
        "no limit",
        "watermark per partition, a function of the log; late records are dropped, or passed to a callback; no "
        "revisions; windows open at the end are not written; at least once",
        slow=True,
    ),
    Engine(
        "pathway",
        "Pathway, 2 threads",
        "pathway",
        "peer",
        "no limit",
        "no watermark: every record revises its window, and all windows are kept forever; no late output; without"
        " persistence here",
        slow=True,
    ),
    Engine(
        "pathway-cutoff",
        "Pathway, with a cut-off",
        "pathway",
        "peer",
        "no limit",
        "one watermark over all records read, so which records are late depends on the order in which partitions "
        "are read, and many are in a replay; late records are dropped silently; without persistence here",
        slow=True,
    ),
    Engine("read", "Spark reads, and drops", "pyspark", "limit", _SPARK, "a lower bound: no parsing, no windows"),
    Engine("parse", "Spark reads, parses, and drops", "pyspark", "limit", _SPARK, "a lower bound: no windows"),
    Engine(
        "clock",
        "windrow up to its ingest stage",
        "windrow",
        "limit",
        _SPARK,
        "a lower bound: decoding and watermarks, no windows",
    ),
)


def engine(name: str) -> Engine:
    """Return an engine by its name; ``stream:{session: 5m}`` is windrow's with that window. Raise KeyError."""
    name, _, window = name.partition(":")
    found = {one.name: one for one in ENGINES}[name]
    if not window:
        return found
    return replace(found, name=f"{name}:{window}", title=f"{found.title}, {window}", window=window)
