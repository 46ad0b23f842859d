"""`windrow check`: errors in pipelines, and warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from windrow.api.load import OpenedPipeline
from windrow.api.printing.text import realtime_words
from windrow.cli.common import DIFFERENT, OK, WRONG, complete_files, json_option, place_fields, print_json
from windrow.cli.pipelines import only_option, open_pipelines, variable_options
from windrow.core.lists import list_problems
from windrow.errors import PipelineError, Place, each_error


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
@json_option
def command(pipelines: tuple[str, ...], *, strict: bool, as_json: bool) -> int:
    """Report errors in pipelines, and warn of likely mistakes.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. Of a file with several pipelines
    all are checked, or that of --only. Findings are printed as
    `file:line: error|warning: message`. The exit code is 2 if there is an error.
    """
    found = {file: _check(file) for file in pipelines}
    levels = {line.level for lines in found.values() for line in lines}
    if as_json:
        checked = [
            {"pipeline": file, "ok": not _count(lines, "error"), "findings": [line.plain() for line in lines]}
            for file, lines in found.items()
        ]
        print_json({"ok": "error" not in levels, "pipelines": checked})
    else:
        for file, lines in found.items():
            name = file or "''"
            for line in lines:
                click.echo(line.text(name))
            click.echo(f"{name}: {_summary(lines)}")
            if not _count(lines, "error"):
                for words in _realtime(file):
                    click.echo(f"{name}: {words}")
    if "error" in levels:
        return WRONG
    return DIFFERENT if strict and "warning" in levels else OK


def _check(spec: str) -> list[_FileFinding]:
    try:
        opened = open_pipelines(spec)
    except PipelineError as exc:
        return [_FileFinding("error", error.place, "", error.message) for error in each_error(exc)]
    return [finding for one in opened for finding in _check_one(one)]


def _check_one(opened: OpenedPipeline) -> list[_FileFinding]:
    found = [_FileFinding(finding.level, place, finding.where, finding.message) for place, finding in opened.findings()]
    lists = [] if _count(found, "error") else list_problems(opened.pipeline)
    place = opened.document.place if opened.document else lambda _: None
    return [*found, *(_FileFinding("error", place(where), where, message) for where, message in lists)]


def _realtime(spec: str) -> list[str]:
    """Return what to expect of the pipelines that run in real time; nothing of others."""
    pipelines = [one.pipeline for one in open_pipelines(spec)]
    return [line for one in pipelines if one.mode == "realtime" for line in realtime_words(one).splitlines()]


def _summary(lines: list[_FileFinding]) -> str:
    counts = [(level, _count(lines, level)) for level in ("error", "warning")]
    said = [f"{number} {level}{'s' if number > 1 else ''}" for level, number in counts if number]
    if not _count(lines, "error"):
        said.insert(0, "ok")
    return ", ".join(said)


def _count(lines: list[_FileFinding], level: str) -> int:
    return sum(line.level == level for line in lines)
