"""Imports run one way: a room imports only those that stand before it in `ALLOWED`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import windrow

SOURCE = Path(windrow.__file__).parent

# What a room may import beside itself and what is not windrow's. "" is `windrow/__init__.py`.
ALLOWED: dict[str, set[str]] = {
    "hidden_values": set(),
    "deadline": set(),
    "errors": {"hidden_values"},
    "model": {"errors", "hidden_values"},
    "expressions": {"errors", "model"},
    "declare": {"errors", "model"},
    "engine": {"deadline", "errors", "model", "expressions"},
    "connectors": {"errors", "model", "expressions", "declare", "engine"},
    "authoring": {"errors", "model", "expressions", "declare", "connectors"},
    "telemetry": {"errors", "model", "expressions", "engine", "connectors"},
    "runtime": {"errors", "model", "expressions", "engine", "connectors", "authoring", "telemetry"},
    "terminal": {"errors", "model", "authoring", "telemetry", "runtime"},
    "testing": {"errors", "model", "expressions", "declare", "engine", "authoring", "runtime"},
    "tools": {
        "deadline",
        "errors",
        "model",
        "expressions",
        "declare",
        "engine",
        "connectors",
        "authoring",
        "telemetry",
        "runtime",
        "terminal",
    },
    "client": {
        "errors",
        "model",
        "expressions",
        "declare",
        "engine",
        "connectors",
        "authoring",
        "telemetry",
        "runtime",
        "terminal",
        "tools",
    },
    "cli": {
        "errors",
        "model",
        "expressions",
        "declare",
        "engine",
        "connectors",
        "authoring",
        "telemetry",
        "runtime",
        "terminal",
        "testing",
        "tools",
        "client",
    },
    "": {"errors", "model", "connectors", "authoring", "client"},
    "__main__": {"cli"},
}

FOR_TOOLS = (
    *("deadline", "errors", "model", "expressions", "telemetry", "declare", "authoring", "terminal", "tools"),
    *("connectors.base", "connectors.registry", "connectors.source", "connectors.open_sources"),
    *("connectors.database", "connectors.open_sinks", "connectors.tables"),
    *("engine.schema", "engine.columns", "engine.duckdb_sql", "engine.decode", "engine.state.inspect"),
    *("runtime.run", "runtime.replay", "runtime.savepoint"),
)
"""What any tool may import: values, text, contracts of connectors, and the engine's columns, decoder and state report.

A tool reaches into nothing that runs a pipeline, except for what `OF_A_TOOL` has.
"""

OF_A_TOOL = {
    # the lists as a run in real time had them
    "backtest": {"runtime.realtime.journal"},
    # bytes of a row, and the time between steps
    "capacity": {"connectors.row_bytes", "runtime.stream.steps"},
    # examines what a run needs and has left: topics, Java, Spark, the files of a checkpoint
    "doctor": {
        *("connectors.kafka.source", "connectors.sink", "runtime.realtime.topics", "runtime.settings"),
        *("runtime.spark.jars", "runtime.spark.session", "runtime.stream.checkpoint", "runtime.stream.integrity"),
        *("runtime.stream.offsets", "runtime.stream.take_savepoint"),
    },
    # writes topics
    "generate": {"connectors.kafka.client", "connectors.kafka.options"},
    # forecasts the verdict of a copy, and finds the run that reads it
    "redrive": {"engine.operators.window.assigner", "runtime.stream.checkpoint"},
    # empties the outbox into a topic, and retries as a run does
    "relay": {"connectors.kafka.source", "connectors.postgres.outbox", "runtime.stream.following"},
    # refuses a sample that is not text, and follows the guarded clocks of one
    "scaffold": {"connectors.not_text", "engine.watermarks.guard"},
    # computes watermarks of a sample, and what a savepoint allows
    "tune": {
        *("engine.messages", "engine.operators.ingest", "engine.operators.window.assigner", "runtime.compatibility"),
    },
    # runs a pipeline in this process and observes its operators
    "why": {
        *("engine.changelog", "engine.level", "engine.messages", "engine.operators.base", "engine.probe"),
        *("engine.truncations", "engine.windows", "runtime.batch.plan", "runtime.memory"),
    },
}
"""What a single tool imports beside, and for which purpose."""

NAMED = {"FlatMapNode": ("", 13), "DeltaSink": ("connectors/delta", 0)}
"""What a node and the settings of a sink cost: the package of its own, and the files beside it that may name it.

The numbers are those of today, and go down only.
"""

HEAVY = ("pyspark", "duckdb", "pyarrow", "pandas", "numpy")
LIGHT = {
    "windrow": HEAVY,
    "windrow.authoring": HEAVY,
    "windrow.client": HEAVY,
    "windrow.model": (*HEAVY, "windrow.engine", "windrow.runtime", "windrow.connectors.tables"),
    "windrow.cli": HEAVY,
    "windrow.expressions": HEAVY,
    "windrow.cli.transcript": HEAVY,
    "windrow.testing.transcript": HEAVY,
    "windrow.connectors.kafka.source": (*HEAVY, "confluent_kafka"),
    "windrow.runtime.stream.control": ("duckdb", "pandas"),
    "windrow.connectors.log.stream": ("duckdb", "pandas"),
    "windrow.connectors.kafka.stream": ("duckdb", "pandas"),
    "windrow.cli.diff": ("pyspark",),
    "windrow.tools.doctor.command": HEAVY,
    "windrow.tools.doctor": HEAVY,
    "windrow.tools.doctor.examine": (*HEAVY, "confluent_kafka"),
    "windrow.cli.replay": ("pyspark",),
    "windrow.cli.run": ("pyspark",),
    "windrow.cli.state": ("pyspark",),
    "windrow.cli.status": (*HEAVY, "confluent_kafka", "rich", "prometheus_client"),
}
"""What is imported often or early, and what it must not load."""


def room_of(module: str) -> str:
    """The room of `windrow.ROOM...`; a name that `windrow` itself gives out is in room ""."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED else ""


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def file_of(name: str, modules: Collection[str]) -> str:
    """The module that a dotted name is, or is in."""
    while name not in modules:
        name = name.rpartition(".")[0]
    return name


@cache
def imports_of(file: Path) -> tuple[tuple[int, str], ...]:
    """Line and name of every windrow module that a file imports, at its top or in a function."""
    return tuple(_imports(file))


def _imports(file: Path) -> Iterator[tuple[int, str]]:
    module = module_of(file)
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        match node:
            case ast.Import(names=names):
                found = [name.name for name in names]
            case ast.ImportFrom(module=origin, names=names, level=level):
                above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                start = ".".join([*above, *([origin] if origin else [])])
                found = [f"{start}.{name.name}" for name in names]
            case _:
                continue
        yield from ((node.lineno, name) for name in found if name.split(".")[0] == "windrow")


def test_every_file_is_in_a_room() -> None:
    assert {room_of(module_of(file)) for file in SOURCE.rglob("*.py") if file.parent != SOURCE} <= set(ALLOWED) - {""}
    assert {file.stem for file in SOURCE.glob("*.py")} - {"__init__"} <= set(ALLOWED)


def test_imports_run_one_way() -> None:
    wrong = [
        f"{file.relative_to(SOURCE.parent)}:{line}: {room_of(module_of(file)) or 'windrow'} may not import {name}"
        for file in sorted(SOURCE.rglob("*.py"))
        for line, name in imports_of(file)
        if room_of(name) not in ALLOWED[room_of(module_of(file))] | {room_of(module_of(file))}
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_what_is_allowed_is_done() -> None:
    """The drawing of docs/concepts/architecture.md is made of the table."""
    done: dict[str, set[str]] = {room: set() for room in ALLOWED}
    for file in SOURCE.rglob("*.py"):
        done[room_of(module_of(file))] |= {room_of(name) for _, name in imports_of(file)}
    assert {room: others - {room} for room, others in done.items()} == ALLOWED


def test_the_order_has_no_way_back() -> None:
    """So that no chain of rooms leads back either."""
    below = list(TopologicalSorter(ALLOWED).static_order())
    assert set(below) == set(ALLOWED)


def test_no_file_imports_one_that_imports_it() -> None:
    """By others neither; imports in functions and those for type checkers alone are counted."""
    modules = {module_of(file): file for file in SOURCE.rglob("*.py")}
    found = {module: {file_of(name, modules) for _, name in imports_of(file)} for module, file in modules.items()}
    try:
        TopologicalSorter({module: others - {module} for module, others in found.items()}).prepare()
    except CycleError as exc:
        pytest.fail(" <- ".join(exc.args[1]))


@pytest.mark.parametrize("tool", sorted({path.parent.name for path in (SOURCE / "tools").glob("*/*.py")}))
def test_a_tool_imports_only_what_is_for_tools(tool: str) -> None:
    files = sorted((SOURCE / "tools" / tool).rglob("*.py"))
    own, used, wrong = OF_A_TOOL.get(tool, set()), set(), []
    for file in files:
        for line, name in imports_of(file):
            owned = {module for module in own if f"{name}.".startswith(f"windrow.{module}.")}
            used |= owned
            if not owned and not any(f"{name}.".startswith(f"windrow.{module}.") for module in FOR_TOOLS):
                wrong.append(f"{file.relative_to(SOURCE)}:{line}: {name}")
    assert not wrong, "\n" + "\n".join(wrong)
    assert used == own


@pytest.mark.parametrize("name", NAMED)
def test_a_kind_is_named_in_no_more_files_than_before(name: str) -> None:
    own, most = NAMED[name]
    outside = [file for file in SOURCE.rglob("*.py") if not own or SOURCE / own not in file.parents]
    found = [str(file.relative_to(SOURCE)) for file in outside if re.search(rf"\b{name}\b", file.read_text())]
    assert len(found) <= most, "\n" + "\n".join(sorted(found))


@pytest.mark.parametrize(("module", "heavy"), LIGHT.items())
def test_what_starts_quickly_loads_nothing_heavy(module: str, heavy: tuple[str, ...]) -> None:
    script = f"import sys, {module}; print(*sorted(set({heavy}) & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import windrow.engine.state.store as s", ["windrow.engine.state.store"]),
        ("from windrow import cli", ["windrow.cli"]),
        ("from ..model import Pipeline", ["windrow.model.Pipeline"]),
        ("from . import other", ["windrow.engine.other"]),
        ("def f():\n    from windrow.runtime import memory", ["windrow.runtime.memory"]),
        ("import windrowpane, json", []),
    ],
)
def test_imports_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: list[str]) -> None:
    file = tmp_path / "windrow" / "engine" / "here.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path / "windrow")
    assert [name for _, name in imports_of(file)] == expected
