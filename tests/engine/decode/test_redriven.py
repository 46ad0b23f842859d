"""Copies of dead letters: what counts, and that a replay of the log counts each record once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MAIN, MINUTE, raw, record
from tests.graphs import as_graph
from tests.short_forms import Pipeline, operator_spec

from windrow.engine.changelog import concat_by_sink, empty_by_sink
from windrow.engine.decode.decoder import Decoder
from windrow.engine.decode.redriven import Redriven, RedrivenDecoder, copies
from windrow.model import DecimalType, Decode, Field
from windrow.runtime.memory import MemoryHost

MENDED = replace(
    MAIN,
    decode=Decode((*MAIN.decode.fields[:2], Field("amount", DecimalType(12, 2), alias=("sum",)))),
)


def renamed(user: str, minute: float) -> bytes:
    return record(user, minute, 1).replace(b'"amount"', b'"sum"')


def copy(value: bytes | None, offset: int, **changes: Any) -> bytes:  # noqa: ANN401 - fields of any type
    plain = Redriven("user-spend", offset, offset, 1, "missing: amount", "ana@host", 5, None, value)
    return replace(plain, **changes).encode()


def decoded(values: Sequence[bytes], since: int, pipeline: Pipeline = MENDED) -> tuple[list[int], list[str]]:
    """The offsets of good records, and the dead letters."""
    batch = raw(0, 0, *values).combine_chunks().to_batches()[0]
    found = RedrivenDecoder(Decoder(operator_spec(pipeline)), pipeline.name, {0: since}).decode(batch)
    dead = found.dead.to_pylist()
    assert [row["raw"] for row in dead] == [values[row["offset"]] for row in dead]
    return found.good.column("offset").to_pylist(), [f"{row['offset']} {row['reason']}" for row in dead]


@given(st.one_of(st.none(), st.binary()), st.text(), st.one_of(st.none(), st.integers(-(2**60), 2**60)))
def test_an_envelope_is_read_as_it_was_written(value: bytes | None, reason: str, log_time: int | None) -> None:
    one = Redriven("p", 3, 1, 2, reason, "ana@host", 7, log_time, value)
    written = one.encode()
    assert b"\n" not in written
    assert Redriven.decode(written) == one


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b'{"_redrive": 1}',
        b'{"_redrive": {"pipeline": "p"}, "value": "x"}',
        copy(b"x", 1).replace(b'"offset": 1', b'"offset": "1"'),
        copy(b"x", 1).replace(b'"value": "x"', b'"base64": "?"'),
        copy(b"x", 1)[:-1],
        b'{"_redrive":' + b"[" * 100_000,
        copy(b"x", 1).replace(b'"offset": 1', b'"offset": 9223372036854775808'),
    ],
)
def test_another_record_is_no_copy(value: bytes) -> None:
    assert Redriven.decode(value) is None
    assert decoded([value], 9)[0] == []


def test_a_copy_counts_if_its_original_was_decoded_otherwise() -> None:
    log = [renamed("a", 1), record("b", 1), copy(renamed("a", 1), 0)]
    assert decoded(log, 2) == ([0, 1, 2], [])
    assert decoded(log, 0) == ([0, 1], ["2 redriven: the record at offset 0 counts"])


def test_a_copy_that_is_still_bad_has_its_own_reason() -> None:
    log = [renamed("a", 1), copy(renamed("a", 1), 0), copy(None, 0), copy(b"\xff", 0)]
    reasons = [f"{row} missing: amount" for row in range(2)]
    for since in 0, 1:
        assert decoded(log, since, MAIN)[1][:2] == reasons
        assert [reason[:12] for reason in decoded(log, since, MAIN)[1][2:]] == ["2 malformed:", "3 malformed:"]


def test_a_copy_for_another_pipeline_is_a_dead_letter() -> None:
    log = [copy(record("a", 1), 0, pipeline="other")]
    assert decoded(log, 9) == ([], ["0 redriven: for the pipeline 'other'"])


def test_the_log_timestamp_is_the_originals() -> None:
    late = replace(MENDED, time=replace(MENDED.time, future=MINUTE))
    log = [copy(record("a", 5), 0, log_time=time * MINUTE) for time in (4, 3)]
    good, dead = decoded(log, 9, late)
    assert good == [0]
    assert dead[0].startswith("1 future: t")


def test_a_log_timestamp_that_no_table_can_hold_is_none() -> None:
    (batch,) = raw(0, 0, copy(renamed("a", 1), 0, log_time=2**62 - 1)).combine_chunks().to_batches()
    dead = RedrivenDecoder(Decoder(operator_spec(MAIN)), MAIN.name, {}).decode(batch).dead
    assert [(row["log_time"], row["reason"]) for row in dead.to_pylist()] == [(None, "missing: amount")]


def test_large_batches_of_copies_among_other_records() -> None:
    log = [record(f"u{n}", n % 7) if n % 5 else copy(renamed("a", 1), n) for n in range(1000)]
    good, dead = decoded(log, 500)
    assert good == [n for n in range(1000) if n % 5 or n < 500]
    assert dead == [f"{n} redriven: the record at offset {n} counts" for n in range(500, 1000, 5)]


def test_only_what_begins_as_an_envelope_is_parsed() -> None:
    batch = raw(0, 0, json.dumps({"a": {"_redrive": {}}}).encode(), copy(b"x", 3)).combine_chunks().to_batches()[0]
    assert list(copies(batch)) == [1]


def table(pipeline: Pipeline, *parts: list[Any]) -> list[tuple[Any, ...]]:
    """The last revision of each row, as window, user, total and events."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for outputs in parts:
        changes = concat_by_sink(empty_by_sink(as_graph(pipeline)), (group.by_sink for group in outputs))[""].changes
        for row in changes.to_pylist():
            if row["op"] != "update_before":
                found[row["window_start"], row["user"]] = (row["total"], row["events"])
    return sorted((*key, *value) for key, value in found.items())


def test_a_replay_has_the_numbers_of_the_run_that_was_mended() -> None:
    first = [record("a", 1), renamed("a", 2), record("b", 1), renamed("c", 3), record("a", 8)]
    more = [record("b", 9), copy(first[1], 1), copy(first[3], 3), renamed("d", 9), record("a", 20)]
    old = MemoryHost(as_graph(MAIN), [0])
    begun = old.step(raw(0, 0, *first))
    new = MemoryHost(as_graph(MENDED), [0], decoded_since={0: len(first)})
    new.begin(old.copy_states())
    live = table(MENDED, begun, new.step(raw(0, len(first), *more)), new.end())
    again = MemoryHost(as_graph(MENDED), [0])
    replayed = table(MENDED, again.step(pa.concat_tables([raw(0, 0, *first), raw(0, 5, *more)])), again.end())
    assert live == replayed
    assert [(row[1], row[3]) for row in live] == [("a", 2), ("b", 1), ("c", 1), ("a", 1), ("b", 1), ("d", 1), ("a", 1)]
