"""Connectors of other distributions, which entry points add; the one of `examples/random_walks` is tried."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.pages import ROOT

import windrow
from windrow.connectors.registry import OWN, SINKS, SOURCES
from windrow.errors import SetupError

PACKAGE = ROOT / "examples" / "random_walks"
WALKS = (PACKAGE / "walks.yml").read_text(encoding="utf-8")


def install(folder: Path, name: str, **connectors: str) -> Path:
    """Put the metadata of a distribution with these entry points into a folder, which is returned."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "".join(f"{kind} = {value}\n" for kind, value in connectors.items())
    (metadata / "entry_points.txt").write_text(f"[windrow.connectors]\n{lines}")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """A function that runs Python with the package of the walks installed."""
    project = (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
    ((kind, value),) = re.findall(r'^(\w+) = "(windrow_random_walks\.connector:\w+)"$', project, re.MULTILINE)
    folder = install(tmp_path / "site", "windrow-random-walks", **{kind: value})
    path = os.pathsep.join(map(str, (Path(windrow.__file__).parent.parent, PACKAGE, folder)))

    def run(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, *words]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


def test_a_source_of_another_distribution_is_run(run: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "walks.yaml").write_text(WALKS)
    run("-m", "windrow", "run", "walks.yaml", "--until-end", "--host", "memory")
    page = (PACKAGE / "README.md").read_text(encoding="utf-8")
    assert run("-m", "windrow", "show", "walks.yaml") in page
    assert "3 random walks by seed 7" in run("-m", "windrow", "explain", "walks.yaml")
    # as YAML and as Python it is the same pipeline
    printed = run("-m", "windrow", "explain", "walks.yaml", "--format", "python")
    (tmp_path / "walks.py").write_text(printed)
    explained = [run("-m", "windrow", "explain", f"walks.{form}", "--json") for form in ("yaml", "py")]
    assert json.loads(explained[0]) == json.loads(explained[1])
    assert "random_walks" in json.loads(run("-m", "windrow", "schema"))["definitions"]["source"]["properties"]


READ = """
import json, sys
from windrow.connectors.open_sources import open_source
from windrow_random_walks import RandomWalksSource
log = open_source(RandomWalksSource(7, 2, 70_000))
whole = {(r["partition"], r["offset"]): r["value"] for b in log.read_all() for r in b.to_pylist()}
parts = [log.read_from(1, begin) for begin in (0, 69_999, 70_000)]
parts = [[(r["partition"], r["offset"], r["value"]) for b in part for r in b.to_pylist()] for part in parts]
assert all(whole[p, o] == value for part in parts for p, o, value in part)
print([len(part) for part in parts], len(whole), log.ends(), json.loads(whole[1, 69_999]))
"""


def test_its_records_are_the_same_wherever_they_are_read_from(run: Callable[..., str]) -> None:
    read = run("-c", READ)
    assert read == run("-c", READ)
    assert read.startswith("[70000, 1, 0] 140000 {0: (0, 70000), 1: (0, 70000)} {'walk': 1, 't': 1767295599000")


@pytest.mark.long
@pytest.mark.service
@pytest.mark.parametrize("options", [["--host", "batch"], ["--host", "stream", "--max-records", "700"]])
def test_it_is_read_by_spark(options: Sequence[str], run: Callable[..., str], tmp_path: Path) -> None:
    tables = []
    for name, host in (("memory", ["--host", "memory"]), ("spark", options)):
        document: dict[str, Any] = yaml.safe_load(WALKS) | {"name": name}
        document["sink"]["sqlite"]["path"] = f"{name}.db"
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(document))
        run("-m", "windrow", "run", f"{name}.yaml", "--until-end", *host)
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as db:
            tables.append(sorted(db.execute("SELECT * FROM ranges").fetchall()))
    assert len(tables[0]) == 6
    assert tables[0] == tables[1]


BROKEN = {
    "that is not there": (
        {"walks": "windrow_nowhere:WALKS"},
        r"connector 'walks' of the distribution other-walks cannot be loaded \(ModuleNotFoundError",
    ),
    "that is none": ({"walks": "math:pi"}, r"math:pi, the connector 'walks' of .* other-walks, is not a Connector"),
    "that windrow has": ({"kafka": "math:pi"}, r"other-walks has a connector 'kafka', and so does windrow"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_connector_is_refused(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connectors, message = BROKEN[what]
    monkeypatch.syspath_prepend(install(tmp_path, "other-walks", **connectors))
    with pytest.raises(SetupError, match=message):
        windrow.load(written(tmp_path, {"walks": {"seed": 7}}))
    # those of windrow are not looked for
    assert windrow.load(written(tmp_path, {"log": {"path": "walks"}})).graph.sources[0].source.section == "log"


def test_two_distributions_cannot_have_one_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one-walks", "other-walks"):
        monkeypatch.syspath_prepend(install(tmp_path / name, name, walks="math:pi"))
    with pytest.raises(SetupError, match=r"-walks has a connector 'walks', and so does the distribution .*-walks"):
        windrow.load(written(tmp_path, {"walks": {"seed": 7}}))


def written(folder: Path, source: dict[str, Any]) -> Path:
    file = folder / "walks.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(WALKS) | {"source": source}))
    return file


def test_each_kind_of_windrow_is_found_by_its_settings() -> None:
    for connectors in (SOURCES, SINKS):
        for kind, connector in connectors.items():
            assert kind in OWN
            assert [settings.section for settings in connector.types] == [kind]
    assert {*SOURCES, *SINKS} == {*OWN}
