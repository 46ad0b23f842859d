"""`windrow doctor`: a rule-based review of a pipeline, its run, checkpoint, tables and log."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from windrow.authoring.load import OpenedPipeline
from windrow.errors import Place
from windrow.telemetry.folders import Folder, default_checkpoint
from windrow.telemetry.numbers import printable
from windrow.terminal.common import DIFFERENT, OK, echo_error, json_option, place_fields, print_json
from windrow.terminal.options import STATE_FOLDER
from windrow.terminal.pipelines import command_lines, open_pipeline, pipeline_argument

if TYPE_CHECKING:
    from windrow.tools.doctor import Examined, Finding

_HELP = {
    "checkpoint": "Checkpoint directory of the run, or its URL.  [default: .windrow/NAME]",
    "no_restore": "Skip the trial restore of a copy of the checkpoint, which starts Spark.",
}
_WIDEST, _NARROWEST = 120, 40
_HEADS: Final = {"serious": "serious", "advice": "advice", "fine": "fine", "unknown": "not checked"}


@click.command("doctor")
@pipeline_argument
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@click.option("--no-restore", is_flag=True, help=_HELP["no_restore"])
@json_option
def command(*, pipeline: str, checkpoint: Folder | None, no_restore: bool, as_json: bool) -> int:
    """Review a pipeline, its run, checkpoint, tables and log, and report findings as serious, advice or fine.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. Each finding says what was found,
    why it matters and what to do. Rules that could not be checked (no run yet, a broker that cannot be reached) have
    neither passed nor failed and are listed at the end. Nothing is changed, and the pipeline can keep running.

    The exit code is 1 if a finding is serious.
    """
    from windrow.tools.doctor import review  # noqa: PLC0415 - help needs none of it
    from windrow.tools.doctor.examine import examine  # noqa: PLC0415 - the same

    opened = open_pipeline(pipeline)
    valid = opened.runnable()
    folder = checkpoint or default_checkpoint(valid.name)

    def before_restore(_: object) -> None:
        if not as_json:
            echo_error("restoring a copy of the checkpoint, which starts Spark (--no-restore skips this)")

    commands = command_lines(pipeline, checkpoint or "")
    examined = examine(commands, valid, folder, restore=None if no_restore else before_restore)
    findings = review(examined)
    if as_json:
        print_json(_plain(opened, examined, folder, findings))
    else:
        width = min(_WIDEST, max(_NARROWEST, shutil.get_terminal_size((_WIDEST, 1)).columns))
        click.echo("\n".join(_lines(opened, examined, findings, width)))
    return DIFFERENT if any(finding.severity == "serious" for finding in findings) else OK


_FIELDS: Final = ("rule", "title", "severity", "found", "why", "to_do", "where")


def _plain(opened: OpenedPipeline, examined: Examined, folder: Folder, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "pipeline": examined.graph.name,
        "checkpoint": str(folder),
        "counts": {severity: sum(finding.severity == severity for finding in findings) for severity in _HEADS},
        "findings": [
            {
                **{name: getattr(finding, name) for name in _FIELDS},
                **place_fields(_place(opened, finding)),
            }
            for finding in findings
        ],
    }


def _place(opened: OpenedPipeline, finding: Finding) -> Place | None:
    return opened.document.place(finding.where) if finding.where and opened.document else None


def _lines(opened: OpenedPipeline, examined: Examined, findings: Sequence[Finding], width: int) -> Iterator[str]:
    counts = [
        f"{number} {head}"
        for severity, head in _HEADS.items()
        if (number := sum(finding.severity == severity for finding in findings))
    ]
    yield f"{examined.graph.name}: {', '.join(counts)}"
    for severity, head in _HEADS.items():
        own = [finding for finding in findings if finding.severity == severity]
        if own:
            yield from ("", _style(head, severity))
        if severity in {"serious", "advice"}:
            for finding in own:
                yield from _finding_lines(finding, _place(opened, finding), width)
            continue
        # many rules find that there is no run
        titles = defaultdict[tuple[str, tuple[str, ...]], list[str]](list)
        for finding in own:
            titles[finding.found, finding.to_do].append(finding.title)
        for (found, to_do), names in titles.items():
            yield from _wrap(f"{', '.join(names)}: {found}", "  ", "    ", width)
            yield from (f"    {text}" for text in to_do)


def _finding_lines(finding: Finding, place: Place | None, width: int) -> Iterator[str]:
    """Yield the lines of a finding, its reason and its remedies.

    Commands stay on one line, so that they can be copied.
    """
    yield from _wrap(f"{finding.title}{f' ({place})' if place else ''}: {finding.found}", "  ", "    ", width)
    yield from _wrap(f"why: {finding.why}", "    ", "         ", width)
    for number, text in enumerate(finding.to_do):
        yield f"    {'     ' if number else 'do:  '}{text}"


def _wrap(text: str, first: str, others: str, width: int) -> list[str]:
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _style(head: str, severity: str) -> str:
    colors = {"serious": "red", "advice": "yellow", "fine": "green"}
    return click.style(head, fg=colors.get(severity), bold=True) if sys.stdout.isatty() else head
