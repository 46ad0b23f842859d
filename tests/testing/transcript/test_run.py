"""What a host gives beside what a story tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from windrow.engine import schema
from windrow.engine.changelog import StepOutput
from windrow.errors import InputError
from windrow.expressions import rows_of
from windrow.model import Graph
from windrow.runtime import memory
from windrow.testing.transcript import parse_story
from windrow.testing.transcript.report import StoryResult, lines, to_json
from windrow.testing.transcript.run import check_story, run_story
from windrow.testing.transcript.story import HOSTS, load_play

STORY = """\
name: two records
pipeline:
  time: {field: t, delay: 0s}
  key: [user]
  window: {tumbling: 5m}
  aggregate: {total: sum(amount)}
  emit: {lateness: 1h}
steps:
  - records:
      - {user: A, t: "10:00", amount: 5}
      - {user: B, t: "10:06", amount: 7}
  - expect:
      - [insert, on_time, "10:00", A, 5]
  - records:
      - {user: A, t: "10:01", amount: 1}
  - late: []
  - end: fire
final:
  - ["10:00", A, 6]
  - ["10:05", B, 7]
"""

Row = dict[str, Any]
Change = Callable[[int, list[Row]], list[Row]]


def check(text: str, **options: int) -> StoryResult:
    return check_story(parse_story(text, "a.yaml"), memory.play, host="memory", **options)


def told(result: StoryResult) -> list[str]:
    return [difference.what for difference in result.differences]


def spoilt(change: Change, *, from_call: int = 0) -> Callable[..., list[dict[str, StepOutput]]]:
    """Return a host that plays like the memory host and then changes the rows of each step's changelog."""
    calls = [0]

    def play(
        graph: Graph, steps: Sequence[Sequence[tuple[int, bytes]]], at_end: Literal["fire", "hold"]
    ) -> list[dict[str, StepOutput]]:
        outputs = memory.play(graph, steps, at_end)
        calls[0] += 1
        if calls[0] <= from_call:
            return outputs
        changes = schema.changes(rows_of(graph, graph.sinks[0]))
        return [
            {"": replace(one[""], changes=pa.Table.from_pylist(change(number, one[""].changes.to_pylist()), changes))}
            for number, one in enumerate(outputs)
        ]

    return play


def test_story_that_goes_as_told() -> None:
    result = check(STORY)
    assert result.ok
    assert result.runs == 1
    assert list(lines(result)) == ["ok      two records  (a.yaml, memory)"]
    assert to_json([result]) == {
        "ok": True,
        "stories": [
            {"name": "two records", "file": "a.yaml", "host": "memory", "cuts": 1, "ok": True, "differences": []}
        ],
    }


def test_differences_stand_side_by_side() -> None:
    result = check(STORY.replace('on_time, "10:00", A, 5]', 'on_time, "10:00", A, 4]').replace("B, 7]", "C, 7]"))
    assert list(lines(result)) == [
        "FAILED  two records  (a.yaml, memory)",
        "  a.yaml:13: expect",
        "      expected                           actual",
        '    ! [insert, on_time, "10:00", A, 4]   [insert, on_time, "10:00", A, 5]',
        "  a.yaml:19: final",
        "      expected          actual",
        '      ["10:00", A, 6]   ["10:00", A, 6]',
        '    ! ["10:05", C, 7]   ["10:05", B, 7]',
    ]
    plain = to_json([result])
    assert not plain["ok"]
    assert plain["stories"][0]["differences"][0] == {
        "what": "expect",
        "file": "a.yaml",
        "line": 13,
        "expected": ['[insert, on_time, "10:00", A, 4]'],
        "actual": ['[insert, on_time, "10:00", A, 5]'],
    }


def test_expect_takes_all_changes_since_the_last() -> None:
    late = '      - [insert, on_time, "10:00", A, 5]\n'
    text = STORY.replace("  - late: []\n", "  - expect: []\n")
    result = check(text)
    assert told(result) == ["expect"]
    assert len(result.differences[0].actual) == 2
    assert told(check(STORY.replace("  - expect:\n" + late, "") + "")) == []


def test_rows_may_stand_in_any_order_but_revisions_may_not() -> None:
    rows = [
        '[insert, on_time, "10:05", B, 7]',
        '[insert, on_time, "10:00", A, 5]',
        '[update_before, late, "10:00", A, 5]',
        '[update_after, late, "10:00", A, 6]',
    ]

    def text(order: list[int]) -> str:
        expected = "".join(f"      - {rows[number]}\n" for number in order)
        without = STORY.replace('  - expect:\n      - [insert, on_time, "10:00", A, 5]\n', "")
        return without.replace("final:", f"  - expect:\n{expected}final:")

    assert check(text([0, 1, 2, 3])).ok
    assert check(text([1, 2, 3, 0])).ok
    assert told(check(text([1, 3, 2, 0]))) == ["expect"]


def test_unexpected_late_record() -> None:
    result = check(STORY.replace("lateness: 1h", "lateness: 0s"))
    assert told(result) == ["late", "final"]
    assert result.differences[0].actual == ('[0, 2, "10:00"]',)


def test_dead_letter_that_nobody_asked_for() -> None:
    text = STORY.replace("  - late: []\n", "  - late: []\n  - records: [{raw: 'no json'}]\n")
    result = check(text)
    assert told(result) == ["dead"]
    assert result.differences[0].actual[0].startswith('[0, 3, "malformed: ')
    asked = text.replace("  - end:", "  - dead: [[0, 3, malformed]]\n  - end:")
    assert check(asked).ok
    assert told(check(asked.replace("malformed]", "missing]"))) == ["dead"]
    assert told(check(asked.replace("[0, 3,", "[0, 2,"))) == ["dead"]


def test_rebatch_runs_other_cuts() -> None:
    result = check(STORY, rebatch=3)
    assert result.ok
    assert result.runs == 6
    assert list(lines(result)) == ["ok      two records  (a.yaml, memory, 6 cuts)"]


def test_rebatch_finds_a_host_whose_answer_depends_on_the_cut() -> None:
    def lose_after_the_first_step(number: int, rows: list[Row]) -> list[Row]:
        return rows if number == 0 else []

    story = parse_story(STORY, "a.yaml")
    result = check_story(story, spoilt(lose_after_the_first_step, from_call=1), host="memory", rebatch=1, seed=7)
    assert not result.ok
    assert "final, one record a step" in told(result)
    assert "on-time panes, one record a step" in told(result)
    assert "changelog, one record a step" in told(result)


def test_rebatch_compares_the_changelog_of_one_partition_only_with_late_each() -> None:
    def merge_late(_: int, rows: list[Row]) -> list[Row]:
        return [row for row in rows if row["pane"] != "late"] + [row for row in rows if row["pane"] == "late"]

    text = STORY.replace("lateness: 1h", "lateness: 1h, late: batch").replace(
        '      - {user: A, t: "10:01", amount: 1}\n',
        '      - {user: A, t: "10:01", amount: 1}\n      - {user: A, t: "10:01", amount: 0}\n',
    )
    assert check(text, rebatch=2).ok
    assert check_story(parse_story(STORY, "a.yaml"), spoilt(merge_late), host="memory", rebatch=2).ok


@pytest.mark.parametrize(
    "change",
    [
        lambda number, rows: rows * 2 if number == 0 else rows,
        lambda _, rows: [row for row in rows if row["op"] != "update_before"],
        lambda _, rows: [row for row in rows if row["op"] != "update_after"],
        lambda _, rows: [{**row, "revision": 0} for row in rows],
    ],
)
def test_changelog_that_does_not_fit_is_a_difference(change: Change) -> None:
    story = parse_story(STORY, "a.yaml")
    result = check_story(story, spoilt(change), host="memory")
    assert "consistency" in told(result)


def test_hosts_are_loaded_by_name(tmp_path: Path) -> None:
    assert load_play("memory") is memory.play
    assert set(HOSTS) == {"memory", "stream", "batch"}
    with pytest.raises(InputError, match="the host of a story must be 'memory', 'stream' or 'batch', not 'paper'"):
        load_play("paper")
    path = tmp_path / "a.yaml"
    path.write_text(STORY)
    assert run_story(path, rebatch=1).ok
