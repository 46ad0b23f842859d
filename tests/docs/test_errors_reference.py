"""docs/reference/errors.md has every kind of error with its exit code, and the reasons of dead letters."""

from __future__ import annotations

import inspect
import re

from tests.docs.pages import ROOT

from windrow import errors
from windrow.errors import WindrowError

TEXT = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")


def test_every_kind_of_error_is_there_with_its_code() -> None:
    rows = dict(re.findall(r"^\| `(\w+Error)` \| (\d*) ?\|", TEXT, re.MULTILINE))
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, WindrowError)]
    assert rows == {kind.__name__: "" if kind is WindrowError else str(kind.exit_code) for kind in kinds}


def test_the_reasons_are_those_of_the_stories_that_have_one_of_each() -> None:
    reasons = re.findall(r"^\| `([a-z ]+):?` \|", TEXT, re.MULTILINE)
    expected = re.findall(r'^ +- \[0, \d+, "([a-z ]+)[:"]', TEXT, re.MULTILINE)
    assert reasons == expected
