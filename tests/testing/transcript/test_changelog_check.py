"""What fits in a changelog, in each mode."""

from __future__ import annotations

import pytest

from windrow.testing.transcript.changelog_check import ChangelogMode, Entry, apply_changelog, table_rows
from windrow.testing.transcript.story import ChangeRow, TableRow


def entry(text: str) -> Entry:
    """Read ``op start value revision``."""
    op, start, value, revision = text.split()
    return Entry(ChangeRow(op, "late", (int(start), int(start) + 10), ("A",), (int(value),)), int(revision))


@pytest.mark.parametrize(
    ("mode", "changes", "table"),
    [
        ("retract", ["insert 0 7 0", "update_before 0 7 0", "update_after 0 8 1"], [(0, 8)]),
        ("retract", ["insert 0 7 0", "delete 0 7 0", "insert 5 8 0", "insert 0 9 0"], [(0, 9), (5, 8)]),
        (
            "alerts",
            ["insert 0 7 0", "update_before 0 7 0", "update_after 0 8 1", "delete 0 8 2", "insert 0 9 3"],
            [(0, 9)],
        ),
        ("accumulate", ["insert 0 7 0", "update_after 0 8 1", "delete 0 8 1", "insert 0 1 0"], [(0, 1)]),
        ("discard", ["insert 0 7 0", "insert 5 1 0", "insert 0 8 1"], [(0, 7), (0, 8), (5, 1)]),
    ],
)
def test_changes_that_fit(mode: ChangelogMode, changes: list[str], table: list[tuple[int, int]]) -> None:
    folded = apply_changelog(map(entry, changes), mode)
    assert not folded.misfits
    assert list(table_rows(folded)) == [TableRow((start, start + 10), ("A",), (value,)) for start, value in table]


@pytest.mark.parametrize(
    ("mode", "changes", "misfit"),
    [
        ("retract", ["insert 0 7 0", "insert 0 8 0"], 1),
        ("retract", ["insert 0 7 1"], 0),
        ("retract", ["insert 0 7 0", "update_after 0 8 1"], 1),
        ("retract", ["insert 0 7 0", "update_before 0 7 0"], 1),
        ("retract", ["delete 0 7 0"], 0),
        ("retract", ["insert 0 7 0", "delete 0 8 0"], 1),
        ("retract", ["insert 0 7 0", "delete 0 7 0", "insert 0 7 1"], 2),
        ("alerts", ["insert 0 7 0", "delete 0 7 0"], 1),
        ("alerts", ["insert 0 7 0", "delete 0 7 1", "insert 0 7 0"], 2),
        ("accumulate", ["insert 0 7 0", "update_before 0 7 0"], 1),
        ("accumulate", ["update_after 0 7 0"], 0),
        ("accumulate", ["insert 0 7 0", "update_after 0 7 2"], 1),
        ("accumulate", ["insert 0 7 0", "delete 0 7 1"], 1),
        ("discard", ["insert 0 7 0", "insert 0 7 0"], 1),
        ("discard", ["insert 0 7 0", "insert 0 7 2"], 1),
        ("discard", ["insert 0 7 0", "delete 0 7 0"], 1),
    ],
)
def test_change_that_does_not_fit(mode: ChangelogMode, changes: list[str], misfit: int) -> None:
    entries = [entry(change) for change in changes]
    assert apply_changelog(entries, mode).misfits == [entries[misfit]]


@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        ("retract", ["insert 0 7 1", "delete 0 7 1", "insert 0 8 4"]),
        ("accumulate", ["insert 0 7 2", "update_after 0 8 3", "delete 0 8 3", "insert 0 9 5"]),
        ("discard", ["insert 0 7 1", "insert 0 8 4"]),
    ],
)
def test_revisions_that_failed_are_left_out(mode: ChangelogMode, changes: list[str]) -> None:
    entries = [entry(change) for change in changes]
    assert not apply_changelog(entries, mode, gaps=True).misfits
    assert apply_changelog(entries, mode).misfits


def test_panes_count_up_with_gaps_too() -> None:
    entries = [entry(change) for change in ("insert 0 7 2", "insert 0 8 2")]
    assert apply_changelog(entries, "discard", gaps=True).misfits == [entries[1]]
