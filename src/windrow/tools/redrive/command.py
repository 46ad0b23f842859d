"""`windrow redrive`: puts dead letters back into the log after the pipeline was corrected."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from windrow import model as m
from windrow.errors import InputError
from windrow.telemetry.folders import Folder, default_checkpoint
from windrow.telemetry.numbers import printable
from windrow.telemetry.reports import counted
from windrow.terminal.common import DIFFERENT, OK, json_option, print_json
from windrow.terminal.options import STATE_FOLDER, TIME
from windrow.terminal.pipelines import command_lines, open_pipeline, pipeline_argument

if TYPE_CHECKING:
    from windrow.connectors.database import Value
    from windrow.tools.redrive.copies import Letter

_HELP = {
    "list": "Print the number of dead letters for each reason, and redrive none.",
    "all": "Redrive all dead letters.",
    "reason": "Redrive those whose reason begins with TEXT, such as 'missing: amount'. May be repeated.",
    "partition": "Redrive those of this partition.",
    "offset": "Redrive the one at this offset; needs --partition. May be repeated.",
    "since": "Redrive those with this log timestamp or a later one (UTC unless it has a zone).",
    "key": "Redrive those that are now good and have this key, such as user_id=u00017. May be repeated.",
    "dry_run": "Print what would happen to each dead letter, and redrive none.",
    "attempts": "Maximum number of times that a record is redriven.",
    "checkpoint": "Checkpoint of the run that resumed with the corrected pipeline.  [default: .windrow/NAME]",
}
_MOST = 20
"""Dead letters that are printed with a line of their own."""
_NOT: dict[str, str] = {
    "already": "redriven before",
    "dead": "still dead",
    "expired": "not redriven, it would be expired",
    "counted": "not redriven, the run decodes the original",
    "attempts": "not redriven, it was redriven too often",
    "lost": "not redriven, it is no longer in the log",
}


@click.command("redrive")
@pipeline_argument
@click.option("--list", "as_list", is_flag=True, help=_HELP["list"])
@click.option("--all", "all_", is_flag=True, help=_HELP["all"])
@click.option("--reason", metavar="TEXT", multiple=True, help=_HELP["reason"])
@click.option("--partition", type=click.IntRange(0, m.MAX_PARTITIONS - 1), help=_HELP["partition"])
@click.option("--offset", type=click.IntRange(min=0), multiple=True, help=_HELP["offset"])
@click.option("--since", type=TIME, metavar="TIME", help=_HELP["since"])
@click.option("--key", metavar="FIELD=VALUE", multiple=True, help=_HELP["key"])
@click.option("--dry-run", is_flag=True, help=_HELP["dry_run"])
@click.option("--max-attempts", type=click.IntRange(min=1), default=3, show_default=True, help=_HELP["attempts"])
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@json_option
def command(
    *,
    pipeline: str,
    as_list: bool,
    all_: bool,
    reason: tuple[str, ...],
    partition: int | None,
    offset: tuple[int, ...],
    since: int | None,
    key: tuple[str, ...],
    dry_run: bool,
    max_attempts: int,
    checkpoint: Folder | None,
    as_json: bool,
) -> int:
    """Put dead letters back into the log after the pipeline was corrected.

    A copy of each selected record is appended to its partition. The run that resumed from a savepoint with the
    corrected pipeline then counts the record at its new offset. A record that would be a dead letter again, or expired,
    is not redriven. No record is redriven twice, so the command can be run again after any failure. The table
    windrow_redrives lists all copies, with who made them and when. The exit code is 1 if a selected record has not been
    redriven, or if there is no dead letter at a given offset.

    Late records are not redriven, because they would be even later: increase `emit.lateness` and replay the log.
    """
    from windrow.tools.redrive.copies import Choice, check_redrivable, redrive  # noqa: PLC0415 - help needs no Arrow

    choices = {"all": all_, "reason": reason, "partition": partition, "offset": offset, "since": since, "key": key}
    # 0 is a partition
    given = [name for name, value in choices.items() if value is not None and value is not False and value != ()]
    if as_list and (given or dry_run):
        msg = f"--list shows all dead letters: leave out --{'dry-run' if not given else ' and --'.join(given)}"
        raise InputError(msg)
    if "all" in given and len(given) > 1:
        msg = f"--all selects all dead letters: leave out --{' and --'.join(given[1:])}, or --all"
        raise InputError(msg)
    if offset and partition is None:
        msg = "--offset needs a partition: give --partition, too"
        raise InputError(msg)
    graph = open_pipeline(pipeline).runnable()
    check_redrivable(graph)
    if as_list:
        return _list(graph, pipeline, as_json=as_json)
    if not given:
        msg = "choose what to redrive: --reason, --partition (and --offset), --since, --key, or --all; --list shows all"
        raise InputError(msg)
    choice = Choice(reason, partition, offset, since, tuple(_pair(graph, text) for text in key))
    folder = checkpoint or default_checkpoint(graph.name)
    letters = redrive(
        graph, choice, folder, attempts=max_attempts, dry_run=dry_run, file=command_lines(pipeline).pipeline
    )
    # with further conditions a dead letter may be left out
    is_by_place = set(given) == {"partition", "offset"}
    missing = sorted(set(offset) - {letter.offset for letter in letters}) if is_by_place else []
    if as_json:
        plain = [_plain(letter, dry_run=dry_run) for letter in letters]
        print_json({"pipeline": graph.name, "dry_run": dry_run, "letters": plain, "missing": missing})
    else:
        _show(graph, letters, dry_run=dry_run)
        for at in missing:
            click.echo(f"  partition {partition}, offset {at}: no dead letter")
    is_done = not missing and all(letter.outcome in {"redriven", "already"} for letter in letters)
    return OK if is_done else DIFFERENT


def _pair(graph: m.Graph, text: str) -> tuple[str, Value]:
    """Parse ``FIELD=VALUE``; raise InputError if the key has no such field, or the value does not fit its type."""
    from windrow.connectors.database import read_value  # noqa: PLC0415 - as above
    from windrow.engine.schema import key_fields  # noqa: PLC0415 - as above
    from windrow.expressions import decoding_spec, key_of  # noqa: PLC0415 - as above

    fields = {field.name: field for field in key_fields(key_of(decoding_spec(graph)))}
    name = max((name for name in fields if text.startswith(f"{name}=")), key=len, default=None)
    if name is None:
        msg = f"--key {text!r} does not begin with a field of the key ({', '.join(fields) or 'it has no fields'}): "
        raise InputError(msg + "write --key FIELD=VALUE")
    return name, read_value(fields[name], text[len(name) + 1 :], "--key")


def _list(graph: m.Graph, file: str, *, as_json: bool) -> int:
    from windrow.tools.redrive.copies import list_letters  # noqa: PLC0415 - as above

    found, late = list_letters(graph)
    if as_json:
        print_json({"pipeline": graph.name, "reasons": [vars(listed) for listed in found], "late": late})
        return OK
    total = sum(listed.letters for listed in found)
    click.echo(f"{graph.name}: {counted(total, 'dead letter')}")
    for listed in found:
        numbers = f"{listed.letters:,}, {listed.redriven:,} redriven"
        click.echo(printable(f"  {listed.reason}: {numbers}; the first: {listed.example}"))
    if late:
        click.echo(
            f"  {counted(late, 'row')} of late output: to count such records, increase emit.lateness and replay the log"
            f" (windrow replay {file})"
        )
    return OK


def _show(graph: m.Graph, letters: list[Letter], *, dry_run: bool) -> None:
    if not letters:
        click.echo(f"{graph.name}: no such dead letters")
        return
    for letter in letters[:_MOST]:
        place = f"partition {letter.partition}, offset {letter.offset}"
        text = f"  {place} ({letter.reason}): {_text(letter, dry_run=dry_run)}"
        click.echo(printable(text))
    if len(letters) > _MOST:
        click.echo(f"  ... and {len(letters) - _MOST:,} more: --json shows all")
    counts = Counter(letter.outcome for letter in letters)
    done = f"{counts.pop('redriven', 0):,} of {counted(len(letters), 'dead letter')}"
    others = "".join(f"; {number:,} {_NOT[outcome]}" for outcome, number in counts.most_common())
    click.echo(
        f"{graph.name}: {'would redrive' if dry_run else 'redrove'} {done} into {graph.sources[0].source.label}{others}"
    )


def _text(letter: Letter, *, dry_run: bool) -> str:
    match letter.outcome:
        case "redriven":
            again = "" if letter.attempt == 1 else f", attempt {letter.attempt}"
            place = "to be redriven" if dry_run else f"redriven to offset {letter.copy}"
            return f"{place}{again}; {_FORECASTS[letter.verdict]}"
        case "already":
            return f"redriven before, to offset {letter.copy}"
        case "dead":
            return f"still dead: {letter.now}"
        case outcome:
            return _NOT[outcome]


_FORECASTS = {
    "on time": "on time at the current watermark",
    "late": "late, so it revises a result",
    "expired": "expired",
    "unknown": "no watermark is known, so it may be late",
}


def _plain(letter: Letter, *, dry_run: bool) -> dict[str, Any]:
    outcome = "would redrive" if dry_run and letter.outcome == "redriven" else letter.outcome
    return {**vars(letter), "outcome": outcome}
