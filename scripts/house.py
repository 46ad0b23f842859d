#!/usr/bin/env python3
"""Counts how the sources hang together: circles of imports, files that a change touches, words.

    scripts/house.py            a table of the figures
    scripts/house.py --json     the same as JSON
    scripts/house.py --files    the files behind each figure, too

Imports are all that a file has: at its top, in a function, and for type checkers. A change of a kind touches the files
of src/windrow that name it; a connector's own package is not counted.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "windrow"

PIPELINE_NAMES = (
    *("Pipeline", "ProcessPipeline", "RulesPipeline", "RecordStream", "View"),
    *("AnyPipeline", "Runnable", "as_graph", "view_of", "sink_view"),
)
"""What stands beside the graph."""

TOUCHED = {
    "node: flat map": (r"\bFlatMapNode\b|\bflat_map\b", ""),
    "node: window": (r"\bWindowNode\b", ""),
    "node: sample": (r"\bSampleNode\b", ""),
    "window kind: hopping": (r"\bHopping\b|\bhopping\b", ""),
    "sink: delta": (r"\bDeltaSink\b|\bdelta\b", "connectors/delta"),
    "option of a lookup: revise": (r"\brevise\b", ""),
    "option of a run: at_end": (r"\bat_end\b", ""),
    "option of a run: on_data_loss": (r"\bon_data_loss\b", ""),
    "fact for reports: duplicates": (r"\bduplicates\b", ""),
    "aggregate: variance": (r"\bvariance\b|\bVariance\b", ""),
}
"""What a change touches: a pattern of its names, and the package that is its own."""

PARTICIPLES = re.compile(r"^_?(?:[a-z]+ed|made|kept|written|read|given|known|held|found|said|shown|taken|seen|told)$")
TICS = ("for one in", "of which", "so many", "is none", "goes on", "mend")


@dataclass(frozen=True)
class File:
    """A file of windrow: its module, its text and its tree."""

    path: Path
    module: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The package below windrow, or the module that stands beside the packages."""
        return [*self.module.split("."), ""][1]


def read_files(source: Path = SOURCE) -> list[File]:
    """Read all files."""
    files = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        files.append(File(path, module, text, ast.parse(text, str(path))))
    return files


def imported_names(file: File, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the dotted names of windrow that some nodes of a file import."""
    package = file.module if file.path.name == "__init__.py" else file.module.rpartition(".")[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "windrow")


def module_of_name(name: str, modules: Mapping[str, File]) -> str | None:
    """Return the module that a dotted name is, or is in."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def import_graph(files: list[File]) -> dict[str, set[str]]:
    """Return the modules that each module imports, wherever it does."""
    modules = {file.module: file for file in files}
    graph: dict[str, set[str]] = {}
    for file in files:
        found = {module_of_name(name, modules) for name in imported_names(file, ast.walk(file.tree))}
        graph[file.module] = {module for module in found if module is not None} - {file.module}
    return graph


def lazy_imports(files: list[File]) -> int:
    """Count the imports of a module by another that stand in functions or under TYPE_CHECKING only."""
    modules = {file.module: file for file in files}
    graph = import_graph(files)
    count = 0
    for file in files:
        top = {module_of_name(name, modules) for name in imported_names(file, file.tree.body)}
        count += len(graph[file.module] - top)
    return count


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the circles of imports, the largest first: modules that import each other, directly or by others."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in number:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == number[module]:
            at = stack.index(module)
            circle = stack[at:]
            del stack[at:]
            if len(circle) > 1:
                found.append(circle)

    sys.setrecursionlimit(10_000)
    for module in graph:
        if module not in number:
            visit(module)
    return sorted(found, key=len, reverse=True)


def functions(files: list[File]) -> Iterator[tuple[File, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield all functions and methods."""
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield file, node


def docstrings(files: list[File]) -> Iterator[str]:
    """Yield all docstrings."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, kinds) and (said := ast.get_docstring(node)):
                yield said


def class_fields(files: list[File], name: str) -> int:
    """Return the number of annotated fields of a class, 0 if there is none."""
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef) and node.name == name:
                return sum(isinstance(item, ast.AnnAssign) for item in node.body)
    return 0


def figures(files: list[File]) -> dict[str, tuple[int, list[str]]]:
    """Return each figure with the files behind it, where there are some."""
    found: dict[str, tuple[int, list[str]]] = {}

    def add(name: str, behind: Iterable[str]) -> None:
        listed = list(behind)
        found[name] = len(listed), listed

    def count(name: str, number: int) -> None:
        found[name] = number, []

    count("files", len(files))
    count("lines", sum(len(file.text.splitlines()) for file in files))
    by_room = Counter(file.room for file in files)
    lines = Counter[str]()
    for file in files:
        lines[file.room] += len(file.text.splitlines())
    for room in sorted(by_room):
        count(f"files of {room or 'windrow'}", by_room[room])
        count(f"lines of {room or 'windrow'}", lines[room])
    found_circles = circles(import_graph(files))
    count("circles of imports", len(found_circles))
    add("modules in the largest circle", found_circles[0] if found_circles else [])
    count("imports that are lazy only", lazy_imports(files))
    names = re.compile(rf"\b(?:{'|'.join(PIPELINE_NAMES)})\b")
    add("files that name pipelines beside the graph", (file.module for file in files if names.search(file.text)))
    count("mentions of pipelines beside the graph", sum(len(names.findall(file.text)) for file in files))
    is_one = re.compile(rf"isinstance\([^)]*(?:{'|'.join(PIPELINE_NAMES)})\b")
    count("isinstance of pipelines beside the graph", sum(len(is_one.findall(file.text)) for file in files))
    for name, (pattern, own) in TOUCHED.items():
        by = re.compile(pattern)
        outside = (file for file in files if not own or own not in file.path.as_posix())
        add(f"files touched, {name}", (file.module for file in outside if by.search(file.text)))
    for name in ("StepInput", "GroupStats"):
        count(f"fields of {name}", class_fields(files, name))
    for file, node in functions(files):
        if file.module == "windrow.engine.level" and node.name == "step":
            count("lines of LevelRunner.step", (node.end_lineno or 0) - node.lineno + 1)
    count("functions", sum(1 for _ in functions(files)))
    count("functions named by a participle", sum(bool(PARTICIPLES.match(node.name)) for _, node in functions(files)))
    said = list(docstrings(files))
    count("docstrings", len(said))
    count("docstrings with 'what' in the first line", sum("what" in text.splitlines()[0].lower() for text in said))
    for tic in TICS:
        count(f"'{tic}' in src", sum(len(re.findall(rf"\b{tic}\b", file.text)) for file in files))
    return found


def main() -> None:
    """Print the figures."""
    found = figures(read_files())
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({name: number for name, (number, _) in found.items()}, indent=1) + "\n")
        return
    width = max(map(len, found))
    for name, (number, behind) in found.items():
        sys.stdout.write(f"{name:{width}}  {number:>7,}\n")
        if "--files" in sys.argv:
            sys.stdout.writelines(f"{'':{width}}    {module}\n" for module in behind)


if __name__ == "__main__":
    main()
