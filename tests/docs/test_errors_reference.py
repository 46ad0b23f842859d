"""docs/reference/errors.md has every kind of error with its exit code, and the reasons of dead letters."""

from __future__ import annotations

import inspect
import re

from tests.docs.pages import ROOT

from windrow import errors
from windrow.errors import WindrowError

TEXT = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
LETTERS = TEXT.partition("## Dead letters\n")[2]


def test_every_kind_of_error_is_there_with_its_code() -> None:
    rows = dict(re.findall(r"^- `(\w+Error)`(?: \((\d)\))?: ", TEXT, re.MULTILINE))
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, WindrowError)]
    assert rows == {kind.__name__: "" if kind is WindrowError else str(kind.exit_code) for kind in kinds}


def test_every_reason_of_a_story_is_there_and_the_engine_knows_each() -> None:
    reasons = re.findall(r"^- `([a-z ,]+):?`:? ", LETTERS, re.MULTILINE)
    stories = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "transcripts").glob("*.yaml"))
    told = set(re.findall(r"^ +- \[[\w/]+, \d+, \"?([a-z ,]+)[]:\"]", stories, re.MULTILINE))
    assert len(told) > 10
    assert told <= set(reasons)
    rooms = [ROOT / "src" / "windrow" / room for room in ("engine", "connectors")]
    code = "".join(path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py"))
    assert [reason for reason in reasons if reason not in code] == []
