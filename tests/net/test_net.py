"""Every answer of windrow on a broad corpus is what it was, to the byte.

A failure names the case, the table and the first row that differs. The cases are in `cases/`, what is expected in
`expected/`; where an answer is meant to change, `python -m tests.net.record` writes it anew.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import pytest
from tests.net.cases import STORIES, Case, cases, groups, stories
from tests.net.runs import Answers, can_be_on_spark, compare, expected, play, play_on_spark, play_story

CASES = [case for group in groups() for case in cases(group)]
# what a run on Spark gives besides its tables is not what the memory host's replays give
_ON_SPARK = ("feed", "net", "net_changes", "net_late", "net_dead", "net_clocks", "schema")

recorded = cache(expected)


def _named(case: Case) -> str:
    return f"{case.group}: {case.name}"


def test_what_is_recorded_has_its_case() -> None:
    kept: dict[str, Answers] = {group: recorded(group) for group in [*groups(), STORIES]}
    there = {group: [case.name for case in cases(group)] for group in groups()}
    there[STORIES] = list(stories())
    assert {group: sorted(answers) for group, answers in kept.items()} == {
        group: sorted(names) for group, names in there.items()
    }


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=_named(case), marks=pytest.mark.long if case.long else []) for case in CASES]
)
def test_memory(case: Case, tmp_path: Path) -> None:
    compare(_named(case), recorded(case.group)[case.name], play(case, tmp_path))


@pytest.mark.parametrize("name", stories())
def test_story(name: str) -> None:
    compare(name, recorded(STORIES)[name], play_story(stories()[name]))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("case", "host"),
    [
        pytest.param(case, host, id=f"{_named(case)}-{host}", marks=[] if is_in_sample else pytest.mark.long)
        for case in CASES
        if can_be_on_spark(case)
        for host, is_in_sample in (("stream", case.spark is True), ("batch", bool(case.spark)))
    ],
)
def test_spark(case: Case, host: Literal["stream", "batch"], tmp_path: Path) -> None:
    was = {name: lines for name, lines in recorded(case.group)[case.name].items() if name in _ON_SPARK}
    compare(f"{_named(case)} on {host}", was, play_on_spark(case, tmp_path, host))
