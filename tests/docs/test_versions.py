"""docs/versions.md names the versions and formats that the code has."""

import re
import tomllib

from packaging.specifiers import SpecifierSet
from tests.docs.pages import ROOT

from windrow.runtime import savepoint
from windrow.runtime.spark import jars
from windrow.runtime.stream import checkpoint

TEXT = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def named(pattern: str) -> str:
    (found,) = re.findall(pattern, TEXT)
    return str(found)


def test_versions_are_those_of_the_project() -> None:
    assert PROJECT["requires-python"] == ">=" + named(r"Python \| ([0-9.]+) or newer")
    assert "pyspark==" + named(r"([0-9.]+), exactly") in PROJECT["dependencies"]
    assert int(named(r"Java, for Spark \| ([0-9]+) or newer")) == jars.LEAST
    assert SpecifierSet(PROJECT["requires-python"]).contains(named(r"or newer \| (3[0-9.]+)"))


def test_formats_are_those_of_the_code() -> None:
    assert int(named(r"checkpoints \(format ([0-9]+)\)")) == checkpoint._FORMAT  # noqa: SLF001 - no other code needs it
    assert int(named(r"savepoints \(format ([0-9]+)\)")) == savepoint._FORMAT  # noqa: SLF001 - the same
