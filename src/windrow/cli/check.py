"""`windrow check`: errors in pipelines, warnings, and what a run needs of the world."""

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
from windrow.terminal.common import (
    DIFFERENT,
    OK,
    WRONG,
    complete_files,
    is_given,
    json_option,
    place_fields,
    print_json,
)
from windrow.terminal.options import STATE_FOLDER, spark_options
from windrow.terminal.pipelines import checkpoint_of, only_option, open_pipelines, variable_options

if TYPE_CHECKING:
    from windrow.runtime.run import HostName
    from windrow.tools.doctor import Finding

_HELP: Final = {
    "connect": "Also try what a run needs: logs, brokers, registry, database, checkpoint, Java and Spark; nothing is "
    "changed.",
    "checkpoint": "Checkpoint directory that --connect looks at, or its URL.  [default: .windrow/NAME]",
    "host": "Host that --connect looks for: --host memory needs neither Java nor a checkpoint.  [default: by the mode]",
}
_WORDS: Final = {"fine": "ok", "advice": "warning", "serious": "FAILED", "unknown": "not known"}
"""The words for the severity of a finding of `--connect`."""


@dataclass(frozen=True)
class _FileFinding:
    """A finding of one file; `where` is a path in the pipeline, empty if it could not be read."""

    level: str
    place: Place | None
    where: str
    message: str

    def text(self, file: str) -> str:
        path = f"{self.where}: " if self.where else ""
        return f"{self.place or file}: {self.level}: {path}{self.message}"

    def plain(self) -> dict[str, Any]:
        return {"level": self.level, "where": self.where, "message": self.message, **place_fields(self.place)}


@click.command("check")
@click.argument("pipelines", metavar="PIPELINE...", nargs=-1, required=True, shell_complete=complete_files)
@only_option
@variable_options
@click.option("--strict", is_flag=True, help="Exit with 1 if there are warnings.")
@click.option("--connect", is_flag=True, help=_HELP["connect"])
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@click.option("--host", type=click.Choice(["stream", "realtime", "batch", "memory"]), help=_HELP["host"])
@spark_options
@json_option
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

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. Of a file with several pipelines
    all are checked, or that of --only. Findings are printed as
    `file:line: error|warning: message`. The exit code is 2 if there is an error.

    With --connect each thing that a run of the pipeline needs is tried, and has a line. The exit code is 1 if one
    fails. A pipeline with errors is not tried.
    """
    if not connect and (given := [name for name in ("checkpoint", "host", "master", "conf") if is_given(name)]):
        msg = f"--{given[0]} is about what --connect tries: add --connect, or leave it out"
        raise InputError(msg)
    opened, found = dict[str, list[OpenedPipeline]](), dict[str, list[_FileFinding]]()
    for file in pipelines:
        opened[file], found[file] = _check(file)
    tried = {
        file: _connect(opened[file], checkpoint, host, spark)
        for file, lines in found.items()
        if connect and not _count(lines, "error")
    }
    levels = {line.level for lines in found.values() for line in lines}
    failed = {file for file, findings in tried.items() if any(finding.severity == "serious" for finding in findings)}
    if as_json:
        checked = [
            {"pipeline": file, "ok": not _count(lines, "error"), "findings": [line.plain() for line in lines]}
            | ({"notes": notes} if (notes := _notes(opened[file], lines)) else {})
            | ({"connections": [_plain(one) for one in tried.get(file, ())]} if connect else {})
            for file, lines in found.items()
        ]
        print_json({"ok": "error" not in levels and not failed, "pipelines": checked})
    else:
        for file, lines in found.items():
            click.echo("\n".join(_lines(file, opened[file], lines, tried.get(file, ()))))
    if "error" in levels:
        return WRONG
    return DIFFERENT if failed or (strict and "warning" in levels) else OK


def _lines(
    file: str, opened: Sequence[OpenedPipeline], lines: list[_FileFinding], tried: Sequence[Finding]
) -> Iterator[str]:
    name = file or "''"
    yield from (line.text(name) for line in lines)
    yield f"{name}: {summary([line.level for line in lines])}"
    if not _count(lines, "error"):
        # what to expect of a pipeline that runs in real time
        realtime = [one.pipeline for one in opened if one.pipeline.mode == "realtime"]
        yield from (f"{name}: {words}" for one in realtime for words in realtime_words(one).splitlines())
        yield from (f"{name}: {words}" for words in _notes(opened, lines))
    for one in tried:
        yield f"  {_WORDS[one.severity]:<9} {one.title}: {one.found}"
        yield from (f"            do: {text}" for text in one.to_do)


def _notes(opened: Sequence[OpenedPipeline], lines: list[_FileFinding]) -> list[str]:
    """Return what is said of pipelines that are right."""
    return [] if _count(lines, "error") else [words for one in opened for words in file_words(one.pipeline)]


def _check(spec: str) -> tuple[list[OpenedPipeline], list[_FileFinding]]:
    """Return the pipelines of a file, none if it cannot be read, and what is found of them."""
    try:
        opened = open_pipelines(spec)
    except PipelineError as exc:
        return [], [_FileFinding("error", error.place, "", error.message) for error in each_error(exc)]
    return opened, [finding for one in opened for finding in _check_one(one)]


def _check_one(opened: OpenedPipeline) -> list[_FileFinding]:
    place = opened.document.place if opened.document else lambda _: None
    found = [_FileFinding(one.level, place(one.where), one.where, one.message) for one in find(opened.pipeline)]
    return sorted(found, key=lambda one: one.place.line if one.place else 0)


def _connect(
    opened: Sequence[OpenedPipeline], checkpoint: Folder | None, host: HostName | None, spark: SparkOptions
) -> list[Finding]:
    """Try what the pipelines of a file need."""
    from windrow.client.run import host_of, on_host  # noqa: PLC0415 - as above
    from windrow.tools.doctor.connect import connect  # noqa: PLC0415 - a check alone needs none of it

    found: list[Finding] = []
    for one in opened:
        chosen = host or host_of(one.pipeline)
        valid = replace(one, pipeline=on_host(one.pipeline, chosen)).runnable()
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


def _count(lines: list[_FileFinding], level: str) -> int:
    return sum(line.level == level for line in lines)
