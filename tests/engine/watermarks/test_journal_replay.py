"""What a clock journal tells a replay."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from windrow.engine.columns import MIN_TIME
from windrow.engine.schema import CLOCKS
from windrow.engine.watermarks.journal import NO_IDLE, IdleAtEnd, JournalReplay


def journal(*rows: tuple[int, int, int | None, str]) -> pa.Table:
    """A journal of (partition, offset, low watermark, reason)."""
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) or [()] * 4
    partitions, offsets, lows, reasons = columns
    source, clocks = ["x"] * len(rows), [None] * len(rows)
    return pa.table([source, partitions, offsets, clocks, lows, reasons], schema=CLOCKS)


def test_without_a_journal_there_is_nothing_to_repeat() -> None:
    again = JournalReplay.of(journal())
    assert (again.bounds.rows, again.ends, again.idle_at_end, again.rows.num_rows) == ((), (), NO_IDLE, 0)


def test_it_is_read_up_to_where_the_replay_ends() -> None:
    rows = journal(
        (1, 5, 50, "idle"),
        (0, 9, 60, "end"),
        (1, 5, 60, "end"),
        (1, 5, 60, "active"),
        (2, 0, 61, "joined"),
        (0, 12, 70, "idle"),
        (0, 12, 70, "end"),
        (1, 8, 70, "end"),
        (2, 3, 70, "end"),
    )
    # at the end that was told first: partition 1 is not back yet, as its record at 5 was not read
    first = JournalReplay.of(rows, {0: 9, 1: 5})
    assert first.ends == ({0: 9, 1: 5},)
    assert first.idle_at_end == IdleAtEnd(((1, 50),))
    assert first.bounds.rows == ()
    assert first.rows.column("reason").to_pylist() == ["idle"]
    whole = JournalReplay.of(rows, {0: 12, 1: 8, 2: 3})
    assert whole.ends == ({0: 9, 1: 5}, {0: 12, 1: 8, 2: 3})
    assert whole.idle_at_end == IdleAtEnd(((0, 70),))
    assert whole.bounds.rows == ((1, 5, 60), (2, 0, 61))
    assert whole.rows.column("reason").to_pylist() == ["idle", "active", "joined", "idle"]
    assert JournalReplay.of(rows).ends == whole.ends
    # the log has gone on since: partition 0 was idle at 12, and has records after that
    assert JournalReplay.of(rows, {0: 13, 1: 8, 2: 3}).idle_at_end == NO_IDLE


def test_ends_of_one_partition_are_told_apart() -> None:
    assert JournalReplay.of(journal((0, 3, 1, "end"), (0, 3, 1, "end"), (0, 4, 1, "end"))).ends == (
        {0: 3},
        {0: 3},
        {0: 4},
    )


def test_the_partitions_of_an_end_are_in_any_order() -> None:
    """A sink gives those of several sources by their number within the source."""
    rows = [(0, 9, 1, "end"), (1000, 7, 1, "end"), (1, 5, 1, "end")]
    ends = JournalReplay.of(journal(*rows, *reversed(rows))).ends
    assert ends == ({0: 9, 1000: 7, 1: 5},) * 2


def test_an_end_that_is_further_on_in_one_partition_is_not_told() -> None:
    rows = journal((0, 5, 1, "end"), (1, 9, 1, "end"))
    assert JournalReplay.of(rows, {0: 5, 1: 8}).ends == ()
    assert JournalReplay.of(rows, {0: 6, 1: 9}).ends == ({0: 5, 1: 9},)


def test_an_end_is_no_end_of_a_log_that_begins_anew() -> None:
    rows = journal(
        (0, 5, 1, "end"),
        (1, 9, 1, "end"),
        (0, 0, 1, "lost: it is another file now"),
        (1, 12, 1, "lost: offsets 9 to 11 are gone"),
        (0, 7, 2, "end"),
        (1, 13, 2, "end"),
    )
    assert JournalReplay.of(rows, {0: 8, 1: 14}).ends == ({0: 0, 1: 9}, {0: 7, 1: 13})


def test_times_of_any_year() -> None:
    far = 253_402_300_800_000_000
    again = JournalReplay.of(journal((0, 3, None, "idle"), (1, 1, far, "idle")))
    assert again.idle_at_end == IdleAtEnd(((0, MIN_TIME), (1, far)))
    assert JournalReplay.of(journal((0, 3, None, "idle"))).idle_at_end == IdleAtEnd(((0, MIN_TIME),))
