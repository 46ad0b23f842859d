"""What is installed from the wheel works without the checkout: all of it, or the part that a small use needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution, metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"]) - {"test"}
PIPELINE = """\
name: spend
source: {log: {path: data/spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 10m}
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount), mean: "round(total / events, 2)", events: count()}
sink: {sqlite: {path: spend.db, table: spend}}
"""
ASK_FOR_EXTRAS = """
import importlib, os, pathlib, pkgutil
import windrow
from windrow.connectors.registry import SINKS
from windrow.errors import SetupError
from windrow.telemetry.lineage import lineage
from windrow.telemetry.traces import tracing
from windrow.tools.dashboard.command import _dashboard
from windrow.engine.decode.registry import _client_of
from windrow.client.plot import _axes
from windrow.testing.servers.postgres import Postgres

def delta():
    SINKS["delta"].load(SINKS["delta"].tables)

def sql():
    pathlib.Path("a.sql").write_text("SELECT 1")
    windrow.load("a.sql")

for ask in (delta, sql, _dashboard, lambda: _client_of(None), Postgres, lambda: _axes(None)):
    try:
        ask()
    except SetupError as exc:
        print(exc)
os.environ |= {"OTEL_TRACES_EXPORTER": "console", "OPENLINEAGE_URL": "http://127.0.0.1:1"}
with tracing(None, "stream", print), lineage(None, is_bounded=True, on_warning=print):
    pass

for module in pkgutil.walk_packages(windrow.__path__, "windrow.", onerror=lambda _: None):
    try:
        if module.name != "windrow.__main__":
            importlib.import_module(module.name)
    except (ImportError, SetupError):
        print("not imported:", module.name)
"""


def requirements(names: Iterable[str]) -> set[str]:
    """The distributions that some requirements need, with what these need, as this environment has them."""
    found: set[str] = set()
    todo = [Requirement(name) for name in names]
    while todo:
        one = todo.pop()
        if (name := canonicalize_name(one.name)) not in found:
            found.add(name)
            needed = map(Requirement, metadata(name).get_all("Requires-Dist") or ())
            todo += [more for more in needed if more.marker is None or more.marker.evaluate({"extra": ""})]
    return found


def link(names: Iterable[str], folder: Path) -> Path:
    """A folder with links to these distributions, and no other."""
    folder.mkdir()
    for name in names:
        for entry in top_levels(distribution(name)):
            target = folder / entry.name
            if not target.exists():
                target.symlink_to(entry)
    return folder


def top_levels(installed: Distribution) -> Iterator[Path]:
    for name in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
        yield Path(str(installed.locate_file(name)))


@dataclass(frozen=True)
class Installed:
    """Where the wheel was installed to, beside the packages that it may use; and the files that were built."""

    target: Path
    sdist: Path
    wheel: Path

    def python(self, *words: str, packages: Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run Python with the wheel and these packages alone: without the environment's own."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
        environment["PYTHONPATH"] = f"{self.target}{os.pathsep}{packages}"
        done = subprocess.run(
            [sys.executable, "-S", *words],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done


def run(*words: str | Path, cwd: Path) -> None:
    subprocess.run([sys.executable, *words], cwd=cwd, check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, made from the source distribution of a copy of the sources, which no earlier build has files in."""
    folder = tmp_path_factory.mktemp("packaging")
    copy, built, target = folder / "copy", folder / "dist", folder / "target"
    leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=leave_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    built.mkdir()
    run("-c", "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])", built, cwd=copy)
    (sdist,) = built.glob("*.tar.gz")
    offline = ("--no-deps", "--no-index", "--quiet", "--disable-pip-version-check")
    run("-m", "pip", "wheel", *offline, "--no-build-isolation", "--wheel-dir", built, sdist, cwd=folder)
    (wheel,) = built.glob("*.whl")
    run("-m", "pip", "install", *offline, "--no-compile", "--target", target, wheel, cwd=folder)
    return Installed(target, sdist, wheel)


def test_the_wheel_has_the_package_and_no_more(installed: Installed) -> None:
    named = set(ZipFile(installed.wheel).namelist())
    sources = ROOT / "src"
    files = {str(path.relative_to(sources)) for path in (sources / "windrow").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert {name for name in named if not re.match(r"windrow-[^/]*\.dist-info/", name)} == files
    beside = {"runtime/spark/jars.lock", "tools/dashboard/static/index.html", "tools/generate/cities.csv"}
    beside |= {"telemetry/conditions.toml", "telemetry/metrics.tsv", "tools/monitoring/windrow.dashboard.json"}
    assert {"windrow/py.typed", *(f"windrow/{name}" for name in beside)} <= files


def test_the_metadata_say_what_windrow_is(installed: Installed) -> None:
    (made,) = installed.target.glob("windrow-*.dist-info")
    found = Distribution.at(made)
    assert found.metadata["Version"] == PROJECT["version"]
    assert found.metadata["Requires-Python"] == PROJECT["requires-python"]
    assert found.metadata["License-Expression"] == "Apache-2.0"
    assert {path.name for path in (made / "licenses").rglob("*") if path.is_file()} == {"LICENSE"}
    assert len(found.metadata.get_all("License-File") or ()) == 2
    assert set(found.metadata.get_all("Provides-Extra") or ()) == {*EXTRAS, "test"}
    assert {(point.group, point.name, point.value) for point in found.entry_points} == {
        ("console_scripts", "windrow", "windrow.cli:main"),
        ("pytest11", "windrow", "windrow.testing.plugin"),
    }


def test_a_small_use_needs_the_packages_that_the_guide_names(installed: Installed, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "install.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"^pip install (click .*)$", guide, re.MULTILINE)
    packages = link(requirements([*named.replace("'", "").split(), "pytest"]), tmp_path / "packages")
    assert not (packages / "pyspark").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "spend.yaml").write_text(PIPELINE, encoding="utf-8")

    def windrow(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return installed.python(
            str(installed.target / "bin" / "windrow"), *words, packages=packages, cwd=empty, code=code
        )

    where = installed.python("-c", "import windrow; print(windrow.__file__)", packages=packages, cwd=empty).stdout
    assert Path(where.strip()).is_relative_to(installed.target)
    assert windrow("--version").stdout.startswith(f"windrow {PROJECT['version']} (no Spark, Python 3.")
    windrow("generate", "data/spend", "--events", "1000")
    windrow("check", "spend.yaml")
    windrow("run", "spend.yaml", "--until-end", "--host", "memory")
    rows = [json.loads(line) for line in windrow("show", "spend.yaml", "--json", "--limit", "5").stdout.splitlines()]
    assert len(rows) == 5
    assert {"user_id", "total", "mean"} <= rows[0].keys()
    refused = windrow("run", "spend.yaml", "--until-end", code=2).stderr
    assert "the package pyspark is missing from this installation: pip install windrow\n" in refused
    # the plugin of pytest, in a project that has stories
    shutil.copy(ROOT / "docs" / "concepts" / "worked_example.yaml", empty / "story.yaml")
    (empty / "pytest.ini").write_text("[pytest]\nwindrow_transcripts = *.yaml\n", encoding="utf-8")
    (empty / "spend.yaml").unlink()
    tests = installed.python("-m", "pytest", "-q", "-p", "no:cacheprovider", packages=packages, cwd=empty)
    assert "1 passed" in tests.stdout


def test_what_needs_an_extra_names_it(installed: Installed, tmp_path: Path) -> None:
    packages = link(requirements(PROJECT["dependencies"]), tmp_path / "packages")
    said = installed.python("-c", ASK_FOR_EXTRAS, packages=packages, cwd=tmp_path).stdout
    named = re.findall(r"needs the packages of windrow\[\w+\] \(No module .*\): pip install 'windrow\[(\w+)\]'", said)
    assert sorted(named) == sorted(EXTRAS)
    # all else is there; the plugin is pytest's to import
    others = {
        "windrow.authoring.sql",
        "windrow.tools.dashboard.app",
        *(f"windrow.connectors.delta.{module}" for module in ("admin", "folder", "merge", "sink")),
        "windrow.testing.plugin",
    }
    assert set(re.findall("not imported: (.*)", said)) == others
    guide = (ROOT / "docs" / "guides" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `windrow\[(\w+)\]` \|", guide, re.MULTILINE)) == EXTRAS


@pytest.mark.long
@pytest.mark.service
def test_a_fresh_environment_runs_the_demo(installed: Installed, tmp_path: Path) -> None:
    """It needs a package index, which pip's own configuration names."""
    run("-m", "venv", tmp_path / "venv", cwd=tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    programs, empty = tmp_path / "venv" / "bin", tmp_path / "empty"
    empty.mkdir()
    for words in (
        (programs / "pip", "install", "--quiet", f"{installed.wheel}[dashboard]"),
        (programs / "pip", "check"),
        (programs / "windrow", "--help"),
        (programs / "windrow", "demo"),
    ):
        done = subprocess.run(words, cwd=empty, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "The results are the same to the last digit, whatever the steps." in done.stdout
    assert (empty / "windrow-demo" / "spend.db").exists()
