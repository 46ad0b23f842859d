"""`windrow check`: report errors and likely mistakes in pipelines, and test the systems that a run needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click

from windrow.authoring.load import OpenedPipeline
from windrow.authoring.printing.text import file_words, realtime_words
from windrow.client.findings import find, summary
from windrow.errors import InputError, PipelineError, Place, each_error
from windrow.runtime.settings import SparkOptions
from windrow.telemetry.folders import Folder
from windrow.terminal import common
from windrow.terminal.options import STATE_FOLDER, spark_options
from windrow.terminal.pipelines import checkpoint_of, only_option, open_pipelines, variable_options

if TYPE_CHECKING:
    from windrow.runtime.run import HostName
    from windrow.tools.doctor import Finding

_HELP: Final = {
    "connect": "Also test what a run needs: logs, brokers, registry, database, checkpoint, Java and Spark. Nothing is "
    "changed.",
    "checkpoint": "Checkpoint directory to test with --connect, or its URL.  [default: .windrow/NAME]",
    "host": "Host to test with --connect; memory needs neither Java nor a checkpoint.  [default: the mode's host]",
}
_WORDS: Final = {"fine": "ok", "advice": "warning", "serious": "FAILED", "unknown": "not known"}
"""The word that `--connect` prints for each severity."""


@dataclass(frozen=True)
class _FileFinding:
    """A finding in a pipeline file. `where` is the path of a setting, or empty if the file cannot be read."""

    level: str
    place: Place | None
    where: str
    message: str

    def text(self, file: str) -> str:
        path = f"{self.where}: " if self.where else ""
        return f"{self.place or file}: {self.level}: {path}{self.message}"

    def plain(self) -> dict[str, Any]:
        return {"level": self.level, "where": self.where, "message": self.message, **common.place_fields(self.place)}


@click.command("check")
@click.argument("pipelines", metavar="PIPELINE...", nargs=-1, required=True, shell_complete=common.complete_files)
@only_option
@variable_options
@click.option("--strict", is_flag=True, help="Exit with 1 if there are warnings.")
@click.option("--connect", is_flag=True, help=_HELP["connect"])
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@click.option("--host", type=click.Choice(["stream", "realtime", "batch", "memory"]), help=_HELP["host"])
@spark_options
@common.json_option
def command(
    *,
    pipelines: tuple[str, ...],
    strict: bool,
    connect: bool,
    checkpoint: Folder | None,
    host: HostName | None,
    spark: SparkOptions,
    as_json: bool,
) -> int:
    """Report errors in pipelines, and warn of likely mistakes.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. By default, all pipelines of a file
    are checked. Findings are printed as `file:line: error|warning: message`. The exit code is 2 if there are errors.

    With --connect, the command prints a line for each test, and the exit code is 1 if one fails. Pipelines with errors
    are not tested.
    """
    if not connect and (given := [name for name in ("checkpoint", "host", "master", "conf") if common.is_given(name)]):
        msg = f"--{given[0]} is used only with --connect: add --connect, or leave it out"
        raise InputError(msg)
    opened, found = dict[str, list[OpenedPipeline]](), dict[str, list[_FileFinding]]()
    for file in pipelines:
        opened[file], found[file] = _check(file)
    tests = {
        file: _connect(opened[file], checkpoint, host, spark)
        for file, lines in found.items()
        if connect and not _has_errors(lines)
    }
    levels = {line.level for lines in found.values() for line in lines}
    failed = any(finding.severity == "serious" for findings in tests.values() for finding in findings)
    if as_json:
        checked = [
            {"pipeline": file, "ok": not _has_errors(lines), "findings": [line.plain() for line in lines]}
            | ({"notes": notes} if (notes := _notes(opened[file], lines)) else {})
            | ({"connections": [_plain(finding) for finding in tests.get(file, ())]} if connect else {})
            for file, lines in found.items()
        ]
        common.print_json({"ok": "error" not in levels and not failed, "pipelines": checked})
    else:
        for file, lines in found.items():
            click.echo("\n".join(_lines(file, opened[file], lines, tests.get(file, ()))))
    if "error" in levels:
        return common.WRONG
    return common.DIFFERENT if failed or (strict and "warning" in levels) else common.OK


def _lines(
    file: str, opened: Sequence[OpenedPipeline], lines: list[_FileFinding], tests: Sequence[Finding]
) -> Iterator[str]:
    name = file or "''"
    yield from (line.text(name) for line in lines)
    yield f"{name}: {summary([line.level for line in lines])}"
    if not _has_errors(lines):
        # the latency to expect of a realtime pipeline
        graphs = [pipeline.pipeline for pipeline in opened if pipeline.pipeline.mode == "realtime"]
        yield from (f"{name}: {words}" for graph in graphs for words in realtime_words(graph).splitlines())
        yield from (f"{name}: {words}" for words in _notes(opened, lines))
    for finding in tests:
        yield f"  {_WORDS[finding.severity]:<9} {finding.title}: {finding.found}"
        yield from (f"            do: {text}" for text in finding.to_do)


def _notes(opened: Sequence[OpenedPipeline], lines: list[_FileFinding]) -> list[str]:
    return [] if _has_errors(lines) else [words for pipeline in opened for words in file_words(pipeline.pipeline)]


def _check(spec: str) -> tuple[list[OpenedPipeline], list[_FileFinding]]:
    """Read and check the pipelines of a file; return them with their findings, sorted by line within each pipeline.

    If the file cannot be read, return no pipelines, and the errors as findings.
    """
    try:
        opened = open_pipelines(spec)
    except PipelineError as exc:
        return [], [_FileFinding("error", error.place, "", error.message) for error in each_error(exc)]
    found: list[_FileFinding] = []
    for pipeline in opened:
        place = pipeline.document.place if pipeline.document else lambda _: None
        own = [
            _FileFinding(finding.level, place(finding.where), finding.where, finding.message)
            for finding in find(pipeline.pipeline)
        ]
        found += sorted(own, key=lambda finding: finding.place.line if finding.place else 0)
    return opened, found


def _connect(
    opened: Sequence[OpenedPipeline], checkpoint: Folder | None, host: HostName | None, spark: SparkOptions
) -> list[Finding]:
    """Test the systems that the pipelines of a file need."""
    from windrow.client.run import host_of, on_host  # noqa: PLC0415 - the same
    from windrow.tools.doctor.connect import connect  # noqa: PLC0415 - a plain check needs none of it

    found: list[Finding] = []
    for pipeline in opened:
        chosen = host or host_of(pipeline.pipeline)
        valid = replace(pipeline, pipeline=on_host(pipeline.pipeline, chosen)).runnable()
        folder = checkpoint_of(valid.name, checkpoint, is_alone=len(opened) == 1)
        found += connect(valid, folder, chosen, spark)
    return found


def _plain(finding: Finding) -> dict[str, Any]:
    return {
        "what": finding.title,
        "result": _WORDS[finding.severity].lower(),
        "found": finding.found,
        "to_do": list(finding.to_do),
    }


def _has_errors(lines: list[_FileFinding]) -> bool:
    return any(line.level == "error" for line in lines)
