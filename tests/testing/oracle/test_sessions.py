"""The oracle's sessions and the reference that the operator's tests are held to say the same."""

import json
from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st
from tests.engine.operators.session.session_reference import (
    Component,
    Judged,
    OnePartition,
    components,
    logs,
    on_time_panes,
    watermarks,
    window,
)
from tests.examples import examples
from tests.short_forms import Pipeline, windowed

from windrow.model import (
    Aggregate,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    LogSource,
    LongType,
    Session,
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
)
from windrow.testing.oracle import Answer, Change, LogRecord, run

Log = Sequence[tuple[int, str, int]]


def answer(log: Log, gap: int, delay: int, lateness: int, *, at_end: bool) -> Answer:
    """The oracle's answer; the n-th record has bit n, so that a sum says which records are in it."""
    pipeline = Pipeline(
        name="sessions",
        source=LogSource("sessions"),
        decode=Decode((Field("user", StringType()), Field("t", TimestampType("micros")), Field("bit", LongType()))),
        time=EventTime("t", Delay(delay)),
        key=("user",),
        window=Session(gap),
        aggregates=(Aggregate("bits", Sum("bit")),),
        emit=Emit(lateness=lateness, at_end="fire" if at_end else "hold"),
        sink=SqliteSink("sessions.db", "sessions"),
    )
    partitions: dict[int, list[LogRecord]] = {}
    for number, (partition, key, time) in enumerate(log):
        records = partitions.setdefault(partition, [])
        line = json.dumps({"user": key, "t": time, "bit": 1 << number})
        records.append(LogRecord(len(records), None, line.encode()))
    return run(windowed(pipeline), partitions)


@examples(200)
@given(
    log=logs(),
    gap=st.sampled_from([1, 2, 3, 5, 8]),
    delay=st.sampled_from([0, 1, 2, 5, 10]),
    lateness=st.sampled_from([0, 1, 3, 10, 50]),
    at_end=st.booleans(),
)
# an on-time record touches a row of a late record alone: the row is deleted until the session fires
@example(log=[(0, "a", time) for time in (0, 0, 0, 0, 1, 1, 17, 9, 10)], gap=8, delay=0, lateness=1, at_end=False)
def test_the_oracle_and_the_operators_reference_agree(
    log: Log, gap: int, delay: int, lateness: int, *, at_end: bool
) -> None:
    found = answer(log, gap, delay, lateness, at_end=at_end)
    records, reached = watermarks(log, delay)
    bits = {record: 1 << number for number, (_, record) in enumerate(records)}

    def bits_of(component: Component) -> int:
        return sum(bits[record] for record in component)

    table, on_time, late = {}, {}, set()
    changes: dict[tuple[int, int, str], list[Change]] = {}
    for key in "ab":
        its = [record for its_key, record in records if its_key == key]
        judged = Judged.of(its, gap, lateness)
        late |= {(record.partition, record.offset) for record in judged.expired}
        panes = on_time_panes(judged.on_time, gap, min(reached.values()), at_end=at_end)
        on_time.update({(*window(pane, gap), key): (bits_of(pane),) for pane in panes})
        everything = components([*judged.on_time, *judged.late], gap)
        table.update({(*window(one, gap), key): bits_of(one) for one in everything})
        for op, pane, revision, bounds, component in OnePartition(gap).run(
            its, lateness, min(reached.values()), at_end=at_end
        ):
            changes.setdefault((*bounds, key), []).append(Change(op, pane, revision, (bits_of(component),)))
    assert {(missed.partition, missed.offset) for missed in found.late} == late
    assert found.on_time == on_time
    if at_end:
        assert {name: row[0] for name, row in found.table.items()} == table
    if len(reached) == 1:
        assert found.changelog == changes
