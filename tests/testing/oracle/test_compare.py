"""Where two answers differ, in words."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from windrow.testing.oracle import Answer, Change, Missed, differences

ROW = (0, 300, "A")
ANSWER = Answer(
    table={ROW: (Decimal("7.00"), "on_time", 0)},
    on_time={ROW: (Decimal("7.00"),)},
    late={Missed(0, 1, 0, 300, 5)},
    dead={(0, 2): "malformed"},
    changelog={ROW: [Change("insert", "on_time", 0, (Decimal("7.00"),))]},
)


def test_same_answers_have_no_difference() -> None:
    other = replace(ANSWER, table={ROW: (Decimal(7), "on_time", 0)})
    assert differences(ANSWER, other) == []


def test_each_part_is_told() -> None:
    other = Answer(
        table={ROW: (Decimal(8), "late", 1)},
        on_time={},
        late={Missed(0, 1, 0, 300, 5), Missed(1, 1, 0, 300, 5)},
        dead={(0, 2): "null"},
        changelog={ROW: []},
    )
    pane, late, dead, table, changelog = differences(ANSWER, other)
    assert table == "table (0, 300, 'A') is (Decimal('8'), 'late', 1), not (Decimal('7.00'), 'on_time', 0)"
    assert pane == "on-time pane (0, 300, 'A') is missing: (Decimal('7.00'),)"
    assert late.startswith("late output Missed(partition=1, offset=1")
    assert "should not be there" in late
    assert dead == "dead letter (0, 2) is 'null', not 'malformed'"
    assert changelog.startswith("changelog (0, 300, 'A') is [], not [Change(op='insert'")


def test_revisions_and_changelog_can_be_left_out() -> None:
    other = replace(ANSWER, table={ROW: (Decimal(7), "on_time", 3)}, changelog={})
    assert differences(ANSWER, other, revisions=False) == []
    assert differences(ANSWER, replace(ANSWER, changelog={}), changelog=False) == []


def test_only_a_few_differences_of_a_kind_are_told() -> None:
    other = replace(ANSWER, dead={(0, offset): "null" for offset in range(20)})
    found = differences(ANSWER, other)
    assert len(found) == 6
    assert found[-1] == "dead letter: 15 more differences"
