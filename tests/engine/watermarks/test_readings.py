"""Watermarks at the records of a file: those of a reading have the clock of before it, wherever steps end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import raw
from tests.examples import examples

from windrow.engine.columns import MIN_TIME, unpack
from windrow.engine.messages import Progress, Records
from windrow.engine.operators.base import StepInput
from windrow.engine.operators.ingest import Ingest
from windrow.engine.watermarks.clocks import PartitionClocks
from windrow.engine.watermarks.readings import ends_reading, reading_record
from windrow.engine.watermarks.sources import SourceTimes
from windrow.engine.watermarks.tracker import advance_clocks
from windrow.model import (
    LOG_TIME,
    Decode,
    Delay,
    EventTime,
    Field,
    FileSource,
    Graph,
    SinkNode,
    SourceNode,
    SqliteSink,
    StringType,
    TableNode,
    TimestampType,
)

DELAY = 7_000
FILE = SourceNode(
    "file",
    FileSource("rates.csv", ("u",), "log"),
    Decode((Field("u", StringType()), Field(LOG_TIME, TimestampType("millis")))),
    EventTime(LOG_TIME, Delay(DELAY)),
)
GRAPH = Graph("graph", (FILE, TableNode("t", "file", ("u",)), SinkNode("s", "t", SqliteSink("t.db", "t"))), 1)


def watermarks(lines: Sequence[bytes], cuts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the watermark at each record, and that of the partition at the end of each step."""
    clocks, found, ends = PartitionClocks.start([0]), list[int](), list[int]()
    for begin, end in zip([0, *cuts], [*cuts, len(lines)], strict=True):
        if begin == end:
            continue
        packets = Ingest(GRAPH).run(raw(0, begin, *lines[begin:end]).to_batches())
        messages = [packet.message for packet in packets]
        given = StepInput.of({}, [one for one in messages if isinstance(one, Progress)])
        advance = advance_clocks(SourceTimes.of(GRAPH), clocks, given)
        for one in messages:
            if isinstance(one, Records):
                found += advance.watermarks(unpack(one.blob)).tolist()
        ends.append(clocks.watermarks[0])
    return found, ends


@examples(60)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=5),
    st.sampled_from(["new", "old"]),
    st.data(),
)
def test_a_reading_is_one_moment(readings: list[tuple[int, int]], form: str, data: st.DataObject) -> None:
    lines: list[bytes] = []
    expected: list[int] = []
    time, before = 0, MIN_TIME
    for later, rows in readings:
        time += later
        for number in range(rows):
            line = reading_record(time, '"u": "a"', deleted=False, more=number < rows - 1)
            line = line.replace('"_more": true, ', "").replace('"_more": false, ', "") if form == "old" else line
            lines.append(line.rstrip("\n").encode())
            expected.append(before)
        before = time * 1_000 - DELAY
    cuts = data.draw(st.lists(st.integers(0, len(lines)), max_size=6).map(sorted))
    found, ends = watermarks(lines, cuts)
    assert found == expected
    # the clock moves on once a reading is known to be over, and never above what follows
    assert ends[-1] == (expected[-1] if form == "old" else before)


@pytest.mark.parametrize("more", [True, False])
def test_the_last_record_of_a_reading_says_so(more: bool) -> None:  # noqa: FBT001 - a parameter of a test
    line = reading_record(5, '"u": "a", "_more": false', deleted=True, more=more)
    assert ends_reading(line.encode()) is not more
    assert not ends_reading(b'{"_log_time": 5, "_deleted": false, "u": "a"}')
    assert not ends_reading(None)
