"""Times of the story's day."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import PipelineError
from windrow.testing.transcript.times import format_time, parse_story_time

MIDNIGHT = 1_767_225_600_000_000
YEAR_1 = -62_135_596_800_000_000
YEAR_10000 = 253_402_300_800_000_000


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("00:00", 0),
        ("10:05", 36_300_000_000),
        ("10:05:30", 36_330_000_000),
        ("10:05:30.5", 36_330_500_000),
        ("23:59:59.999999", 86_399_999_999),
    ],
)
def test_time(text: str, micros: int) -> None:
    assert parse_story_time(text) == MIDNIGHT + micros
    assert format_time(MIDNIGHT + micros) == text


@given(st.integers(0, 86_399_999_999) | st.integers(YEAR_1 - MIDNIGHT, YEAR_10000 - 1 - MIDNIGHT))
def test_format_reads_back(micros: int) -> None:
    assert parse_story_time(format_time(MIDNIGHT + micros)) == MIDNIGHT + micros


def test_date_alone_is_its_midnight() -> None:
    assert parse_story_time("2026-01-02") == MIDNIGHT + 86_400_000_000
    assert parse_story_time("1969-12-31") == -86_400_000_000


def test_before_the_first_year_there_are_microseconds() -> None:
    assert format_time(YEAR_1 - 1) == "-62135596800000001 us"


def test_other_days_have_their_date() -> None:
    assert format_time(MIDNIGHT - 1) == "2025-12-31 23:59:59.999999"
    assert format_time(MIDNIGHT + 86_400_000_000) == "2026-01-02 00:00"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "9:00",
        "24:00",
        "10:60",
        "10:00:60",
        "10:00.5",
        "10:00:00.",
        "\u0661\u0660:00",
        "2026-02-29",
        "2026-1-1 10:00",
        " 10:00",
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(PipelineError, match="is not a time of day"):
        parse_story_time(text)
