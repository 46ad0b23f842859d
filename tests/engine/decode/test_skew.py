"""Event times without the skew of the devices' clocks."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from tests.engine.decode.test_decoder import MILLIS, T0, pipeline, raw, reasons
from tests.short_forms import operator_spec

from windrow.engine.decode.decoder import SMALL_BATCH, Decoder
from windrow.model import DataType, StringType, TimestampType

FIELDS: dict[str, DataType] = {
    "user_id": StringType(),
    "event_time": MILLIS,
    "sent_at": TimestampType("micros"),
}
HOUR = 3_600_000_000


def decoder(**settings: Any) -> Decoder:  # noqa: ANN401 - settings of the pipeline
    return Decoder(operator_spec(pipeline(fields=FIELDS, sent="sent_at", **settings)))


def record(**changed: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """An event two seconds before it was sent, by a clock that is an hour ahead of the log's."""
    return {"user_id": "u", "event_time": T0, "sent_at": T0 * 1000 + 2_000_000} | changed


LOG_TIME = T0 * 1000 + 2_000_000 - HOUR


@pytest.mark.parametrize("count", [1, SMALL_BATCH], ids=["one by one", "a batch"])
def test_the_event_time_is_moved_by_the_log_time_less_that_of_sending(count: int) -> None:
    decoded = decoder().decode(raw(*[record()] * count, log_time=LOG_TIME + 7))
    assert decoded.good.column("time").to_pylist() == [T0 * 1000 - HOUR + 7] * count
    # the fields stay as they were
    assert decoded.good.column("event_time")[0].as_py() == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert decoded.dead.num_rows == 0


@pytest.mark.parametrize("count", [1, SMALL_BATCH], ids=["one by one", "a batch"])
def test_the_future_guard_looks_at_the_corrected_time(count: int) -> None:
    # half an hour ahead as it is written, and not when it is corrected
    assert decoder(future=HOUR // 2).decode(raw(*[record()] * count, log_time=LOG_TIME)).dead.num_rows == 0
    ahead = record(event_time=T0 + 2000 + 1000)
    assert decoder(future=1_000_000).decode(raw(*[ahead] * count, log_time=LOG_TIME)).dead.num_rows == 0
    dead = decoder(future=999_999).decode(raw(*[ahead] * count, log_time=LOG_TIME))
    reason = "future: event_time is 1s ahead of the log timestamp; time.future allows 999ms999us"
    assert reasons(dead) == [reason] * count


@pytest.mark.parametrize("count", [1, SMALL_BATCH], ids=["one by one", "a batch"])
def test_a_record_without_a_log_time_is_dead(count: int) -> None:
    assert reasons(decoder().decode(raw(*[record()] * count))) == ["no log time"] * count


def test_an_embedded_log_has_the_log_time_inside() -> None:
    values = [record(_log_time=LOG_TIME // 1000), record(), record(sent_at=None, _log_time=5), record(_log_time="x")]
    decoded = decoder(log=True).decode(raw(*values * SMALL_BATCH))
    assert decoded.good.column("time").to_pylist() == [T0 * 1000 - HOUR] * SMALL_BATCH
    assert [reason.partition(" is ")[0] for reason in reasons(decoded)[:3]] == [
        "no log time",
        "null: sent_at",
        'wrong type: _log_time: "x"',
    ]


@pytest.mark.parametrize("count", [1, SMALL_BATCH], ids=["one by one", "a batch"])
def test_a_time_that_is_moved_out_of_all_years_is_dead(count: int) -> None:
    early = record(sent_at=253_402_300_799_999_999)
    [reason, *_] = reasons(decoder().decode(raw(*[early] * count, log_time=-62_135_596_800_000_000)))
    assert (
        reason
        == "out of range: event_time: corrected by -3652058d23h59m59s999ms999us, it is outside the years 1 to 9999"
    )
