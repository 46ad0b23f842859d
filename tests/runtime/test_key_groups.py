"""The state of a key group in Spark's state store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from windrow.engine.columns import pack, unpack
from windrow.runtime.spark.key_groups import SparkState


class Store(dict[Any, tuple[bytes]]):
    """A value and a map of Spark, which gives bytes as a bytearray."""

    def update(self, value: Any) -> None:  # type: ignore[override] # noqa: ANN401 - Spark's name
        self[None] = value

    updateValue = dict.__setitem__  # noqa: N815 - the same
    removeKey = dict.pop  # noqa: N815 - the same

    def getValue(self, key: Any) -> tuple[bytearray] | None:  # noqa: ANN401, N802 - the same
        return None if key not in self else (bytearray(self[key][0]),)


@pytest.mark.parametrize("rows", [0, 10, 10_000])
def test_a_blob_is_read_as_it_was_written(rows: int) -> None:
    blobs = Store()
    handle: Any = SimpleNamespace(getValueState=lambda *_: Store(), getMapState=lambda *_: blobs)
    state, table = SparkState(handle), pa.table({"user": [f"u{row}" for row in range(rows)], "n": range(rows)})
    blob = pack(table)
    state.set("panes", 1, blob)
    assert state.get("panes", 1) == blob
    assert unpack(state.get("panes", 1) or b"") == table
    # only a large one is compressed
    assert (len(blobs["panes", 1][0]) < len(blob) / 2) == (rows == 10_000)
    # as in a checkpoint of a version that did not compress
    blobs["panes", 2] = (blob,)
    assert state.get("panes", 2) == blob
    state.drop("panes", 1)
    assert state.get("panes", 1) is None
