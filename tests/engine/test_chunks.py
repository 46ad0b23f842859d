"""Large batches are decoded in chunks, and give what they give whole."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.graphs import as_graph
from tests.runtime.spend import spend

from windrow.engine.columns import split_by_bytes, unpack
from windrow.engine.decode.decoder import DecodedBatch, Decoder
from windrow.engine.messages import DeadLetters, Packet, Records
from windrow.engine.operators import ingest
from windrow.engine.operators.ingest import Ingest
from windrow.engine.schema import RAW
from windrow.model import LogSource, SqliteSink

GRAPH = as_graph(spend(LogSource("unused"), SqliteSink("unused.db", "spend")))


def raw(values: Iterable[bytes | None]) -> pa.RecordBatch:
    rows = [{"partition": 0, "offset": number, "value": value} for number, value in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, schema=RAW)


@given(st.lists(st.none() | st.integers(0, 50).map(bytes), max_size=20), st.integers(0, 120), st.integers(0, 5))
def test_slices_are_the_batch_and_as_large_as_they_may_be(values: list[bytes | None], most: int, skip: int) -> None:
    batch = raw(values).slice(skip)
    parts = list(split_by_bytes(batch, most))
    assert pa.Table.from_batches(parts, schema=RAW).to_pylist() == batch.to_pylist()
    if len(parts) > 1:
        sizes = [[len(value or b"") for value in part.column("value").to_pylist()] for part in parts]
        assert all(len(own) == 1 or sum(own) <= most for own in sizes)
        assert all(sum(own) + following[0] > most for own, following in pairwise(sizes))


def contents(packets: Iterable[Packet]) -> dict[object, list[object]]:
    """Return the rows of packets by key group and kind, and all other messages."""
    found: dict[object, list[object]] = {}
    for group, message in packets:
        rows = found.setdefault((group, type(message)), [])
        rows += unpack(message.blob).to_pylist() if isinstance(message, Records | DeadLetters) else [message]
    return found


def test_no_more_than_a_chunk_is_decoded_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = '{"user_id": "u%d", "event_time": %d, "amount": "1.50", "more": "%s"}'
    large = [(made % (number % 3, 1_767_225_600_000 + number, "x" * 1000)).encode() for number in range(300)]
    large[100] = large[100][:-2] + b"x" * 30_000 + b'"}'
    large[200] = b"{" + b"x" * 1000
    whole = contents(Ingest(GRAPH).run([raw(large)]))
    sizes: list[int] = []
    decode = Decoder.decode

    def measured(self: Decoder, batch: pa.RecordBatch) -> DecodedBatch:
        sizes.append(sum(len(value) for value in batch.column("value").to_pylist()))
        return decode(self, batch)

    monkeypatch.setattr(Decoder, "decode", measured)
    monkeypatch.setattr(ingest, "CHUNK_BYTES", 10_000)
    in_chunks = contents(Ingest(GRAPH).run([raw(large)]))
    assert sum(sizes) == sum(map(len, large))
    assert [size for size in sizes if size > 10_000] == [len(large[100])]
    assert in_chunks == whole
