"""Sessions of one key that merge, wait and expire: the oracle's answer in every cut, after every step."""

from __future__ import annotations

import json

import pytest
from hypothesis import strategies as st
from tests.examples import scaled
from tests.properties.strategies import SECOND, Case
from tests.properties.test_hosts import search
from tests.short_forms import Pipeline

from windrow.model import (
    Aggregate,
    AnyOf,
    Count,
    Decode,
    Delay,
    Emit,
    EventTime,
    Every,
    Field,
    LogSource,
    LongType,
    Records,
    Session,
    SqliteSink,
    TimestampType,
)


@st.composite
def sessions(draw: st.DrawFn) -> Case:
    """Draw some twenty records within a few gaps, many of them late; early panes only where they have one order."""
    most = draw(st.integers(0, 1))
    early = [None, Records(1), Records(3), AnyOf((Every(SECOND), Records(2)))] if most == 0 else [None]
    pipeline = Pipeline(
        name="sessions",
        source=LogSource(path="sessions"),
        decode=Decode(
            fields=(
                Field(name="t", type=TimestampType("seconds")),
                Field(name="user", type=LongType()),
                Field(name="own", type=LongType()),
            )
        ),
        time=EventTime(field="t", watermark=Delay(draw(st.integers(0, 2)) * SECOND)),
        key=("user",),
        window=draw(st.sampled_from([Session(4 * SECOND), Session(9 * SECOND, "own")])),
        aggregates=(Aggregate(name="events", function=Count()),),
        emit=Emit(
            lateness=draw(st.sampled_from([4, 40])) * SECOND,
            late=draw(st.sampled_from(["each", "batch"])),
            at_end=draw(st.sampled_from(["fire", "hold"])),
            early=draw(st.sampled_from(early)),
        ),
        sink=SqliteSink(path="sessions.db", table="sessions"),
    )
    partitions = st.integers(0, most)
    values = st.fixed_dictionaries(
        {"t": st.integers(0, 24), "user": st.just(1), "own": st.sampled_from([1, 2, 4, 4, 9, 10])}
    )
    records = st.tuples(partitions, values.map(lambda row: json.dumps(row).encode()))
    feed = draw(st.lists(st.lists(records, min_size=2, max_size=8), min_size=2, max_size=6))
    return Case(pipeline, list(feed), keyed=False, seed=draw(st.integers(0, 1000)))


def test_sessions_are_the_oracles_in_every_cut() -> None:
    search("memory", scaled(15), sessions())


@pytest.mark.long
def test_sessions_are_the_oracles_in_many_cases() -> None:
    search("memory", 2000, sessions())
