"""Runs the steps of key groups in Spark's stateful operator, with their state in Spark's state store.

Before a query's first step, Spark starts a Python process that only declares the state. This module therefore imports
little; the libraries needed for a step are loaded where steps run.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from windrow.engine.state.store import State

    Step = Callable[[int, Iterator[pd.DataFrame], State], Iterator[pd.DataFrame]]
    """Runs one step of the key group with the given number in the column `slot`; takes and returns packets."""


class KeyGroupProcessor(StatefulProcessor):
    """A stateful processor that runs a step function in each key group, one step after another."""

    def __init__(self, step: Step) -> None:
        self._sent = cloudpickle.dumps(step)  # type: ignore[no-untyped-call] # it has no types
        self._step: Step | None = None
        self._state: SparkState | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._state = SparkState(handle)

    def handleInputRows(  # type: ignore[override] # noqa: N802 - Spark's name; it gives frames, never rows
        self,
        key: Any,  # noqa: ANN401 - Spark's signature
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ANN401, ARG002, N803 - Spark's signature
    ) -> Iterator[pd.DataFrame]:
        """Run one step of one key group."""
        if self._state is None:
            msg = "Spark called handleInputRows before init"
            raise RuntimeError(msg)
        if self._step is None:
            self._step = pickle.loads(self._sent)  # noqa: S301 - the driver of this run pickled it
        (slot,) = key
        return self._step(int(slot), rows, self._state)

    def close(self) -> None:
        """Do nothing; there are no resources to release."""


# not as text: Spark would parse it in each task
_PLACE = StructType([StructField("kind", StringType()), StructField("bucket", LongType())])
_BLOB = StructType([StructField("blob", BinaryType())])


class SparkState:
    """A key group's state in Spark's state store."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._summary = handle.getValueState("summary", _BLOB)
        self._blobs = handle.getMapState("blobs", _PLACE, _BLOB)

    def summary(self) -> bytes | None:
        """Return the summary, or None in the first step."""
        return _blob(self._summary.get())

    def set_summary(self, blob: bytes) -> None:
        """Replace the summary."""
        self._summary.update((blob,))

    def get(self, kind: str, bucket: int) -> bytes | None:
        """Return a blob, or None if it does not exist."""
        blob = _blob(self._blobs.getValue((kind, bucket)))
        return None if blob is None else decompressed(blob)

    def set(self, kind: str, bucket: int, blob: bytes) -> None:
        """Replace a blob."""
        self._blobs.updateValue((kind, bucket), (_compressed(blob),))

    def drop(self, kind: str, bucket: int) -> None:
        """Delete a blob."""
        self._blobs.removeKey((kind, bucket))


def _blob(row: tuple[Any, ...] | None) -> bytes | None:
    return None if row is None else bytes(row[0])


_MARK = b"zstd"
"""The first bytes of a compressed blob, followed by the length of the blob; no packed table begins like this."""
_LENGTH = 8
_LEAST = 1 << 14
"""Minimum size in bytes of a blob that is compressed here; the store compresses several smaller ones together."""


def _compressed(blob: bytes) -> bytes:
    """Compress a large blob, as Java takes 50 ns to send a byte to Python, and both codecs together 4 ns."""
    if len(blob) < _LEAST:
        return blob
    packed: bytes = _codec().compress(blob, asbytes=True)
    return _MARK + len(blob).to_bytes(_LENGTH) + packed


def decompressed(blob: bytes) -> bytes:
    """Return a blob of the state store as it was before it was compressed; it may not be compressed."""
    if not blob.startswith(_MARK):
        return blob
    at = len(_MARK) + _LENGTH
    found: bytes = _codec().decompress(blob[at:], int.from_bytes(blob[len(_MARK) : at]), asbytes=True)
    return found


@lru_cache(maxsize=1)
def _codec() -> pa.Codec:
    import pyarrow as pa  # noqa: PLC0415 - the process that only declares the state does not need it

    return pa.Codec("zstd", compression_level=1)
