"""Where two answers differ, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from windrow.testing.oracle.answer import Answer

K = TypeVar("K")
SHOWN = 5


def differences(
    expected: Answer,
    actual: Answer,
    *,
    revisions: bool = True,
    changelog: bool = True,
    early: bool = True,
    table: bool = True,
) -> list[str]:
    """Return a line for each difference, no more than a few of a kind.

    With ``late: batch`` the number of revisions depends on the steps: leave `revisions` out. The order in the
    `changelog`, and what rows of the pane `early` say, is settled only for ``late: each`` where every key lives in one
    partition. In mode discard the `table` has single panes, and is settled as the changelog is.
    """
    lines = [
        *_mapping("on-time pane", expected.on_time, actual.on_time),
        *_mapping("late output", dict.fromkeys(expected.late, "expired"), dict.fromkeys(actual.late, "expired")),
        *_mapping("dead letter", expected.dead, actual.dead),
    ]
    if table:
        one, other = (_table(answer, revisions=revisions, early=early) for answer in (expected, actual))
        lines += _mapping("table", one, other)
    if changelog and revisions:
        lines += _mapping("changelog", expected.changelog, actual.changelog)
    return lines


def _table(answer: Answer, *, revisions: bool, early: bool) -> Mapping[object, object]:
    return {key: row if revisions else row[:-1] for key, row in answer.table.items() if early or row[-2] != "early"}


def _mapping(what: str, expected: Mapping[K, object], actual: Mapping[K, object]) -> list[str]:
    lines = []
    for key in [*expected, *(key for key in actual if key not in expected)]:
        if key not in actual:
            lines.append(f"{what} {key!r} is missing: {expected[key]!r}")
        elif key not in expected:
            lines.append(f"{what} {key!r} should not be there: {actual[key]!r}")
        elif expected[key] != actual[key]:
            lines.append(f"{what} {key!r} is {actual[key]!r}, not {expected[key]!r}")
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"{what}: {len(lines) - SHOWN} more differences"]
    return lines
