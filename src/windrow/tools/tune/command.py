"""`windrow tune`: chooses delays and latenesses that meet goals, compares other values, and edits the file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from windrow import model as m
from windrow.authoring.load import OpenedPipeline
from windrow.authoring.pipeline_file import is_sql, read_documents, read_file
from windrow.authoring.yaml_edit import set_values
from windrow.errors import InputError, PipelineError
from windrow.model.time import UNITS
from windrow.telemetry.folders import Folder, default_checkpoint
from windrow.telemetry.numbers import percent
from windrow.terminal.common import DIFFERENT, OK, json_option, print_json
from windrow.terminal.options import DURATION, SHARE, STATE_FOLDER
from windrow.terminal.pipelines import given, open_pipeline, pipeline_argument

if TYPE_CHECKING:
    from windrow.runtime.compatibility import PipelineChange
    from windrow.tools.tune.choose import Choice, PartitionDisorder, Tuning, WhatIf
    from windrow.tools.tune.disorder import Bounds, Disorder

_DEFAULT_LATE = 0.001
_DEFAULT_EXPIRED = 0.0001
_LEAST_QUANTILE = 0.01
_WIDTH = 200
_UNITS = (*reversed(UNITS.values()),)


class _Quantile(click.ParamType[float]):
    """Parameter type for a percentage such as 99.9, converted to a fraction."""

    name = "percent"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert the text; if it is not valid, fail as click does."""
        if isinstance(value, float):
            return value
        try:
            share = float(value.removeprefix("P").removesuffix("%")) / 100
        except ValueError:
            share = -1.0
        # 0.999 means P99.9, and would be P0.999
        if not _LEAST_QUANTILE <= share < 1:
            self.fail(f"{value!r} is not a quantile; write a percentage from 1 to 100, such as 99.9", param, ctx)
        return share


_HELP = {
    "late": "Goal: at most this share is late or expired.  [default without a goal: 0.1%]",
    "quantile": "Goal: the delay covers at least this percentage of the records, such as 99.9.",
    "within": "Goal: rows are written at most this long after the end of their window, in event time.",
    "expired": "Goal: at most this share is expired; chooses the lateness.  [default without a goal: 0.01%]",
    "checkpoint": "Checkpoint of the run whose history to read.  [default: .windrow/NAME]",
    "log": "Read the source's log itself. This is exact, but reads and decodes the whole log.",
    "write": "Write the changes to the file.",
}


@click.command("tune")
@pipeline_argument
@click.option("--late", type=SHARE, metavar="PERCENT", help=_HELP["late"])
@click.option("--quantile", type=_Quantile(), metavar="PERCENT", help=_HELP["quantile"])
@click.option("--within", type=DURATION, help=_HELP["within"])
@click.option("--expired", type=SHARE, metavar="PERCENT", help=_HELP["expired"])
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@click.option("--log", is_flag=True, help=_HELP["log"])
@click.option("--write", is_flag=True, help=_HELP["write"])
@json_option
def command(
    *,
    pipeline: str,
    checkpoint: Folder | None,
    log: bool,
    write: bool,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - goals
) -> int:
    """Choose delays and latenesses from the disorder of the records.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. By default, the disorder is taken
    from the history of a run, which is exact up to the size of a window and of a bucket. With --log it is measured on
    the whole log, which is exact unless other operators come before a window; then counts are ranges. Prints the effect
    of other delays and latenesses on the same records, the disorder of each partition, and the change of the file as a
    diff. Values are chosen among round durations (10s, 1m, 5m, 1h). Shares are of (record, window) pairs.

    The exit code is 1 if a goal cannot be met, or if there are too few records to tell.
    """
    from windrow.tools.tune.choose import Goals, tune  # noqa: PLC0415 - help needs no Arrow

    opened = open_pipeline(pipeline)
    valid = opened.runnable()
    if write and not opened.is_yaml:
        is_ = "is Python" if opened.document is None else "is SQL" if is_sql(pipeline) else "has several pipelines"
        msg = f"{pipeline} {is_}, which this command does not edit: leave out --write, and set the values by hand"
        raise InputError(msg)
    if log and checkpoint is not None:
        msg = "--log reads the log instead of a history: leave out --checkpoint"
        raise InputError(msg)
    goals = Goals(**options)
    if goals == Goals():
        goals = Goals(late=_DEFAULT_LATE, expired=_DEFAULT_EXPIRED)
    disorder, origin = _read_disorder(valid, checkpoint, log=log)
    found = tune(valid, disorder, goals)
    diff, effects = _change(opened, valid, found.changes)
    is_written = write and bool(diff) and not found.problems
    if as_json:
        change = {
            "changes": found.changes,
            "effects": [effect.text for effect in effects],
            "can_resume": all(effect.means is not None for effect in effects),
            "diff": diff,
            "written": is_written,
        }
        print_json({"pipeline": valid.name, "from": origin, "goals": vars(goals), **_plain(valid, found), **change})
    else:
        _show(valid, found, origin, diff, effects)
    if is_written:
        text = read_file(opened.file)
        Path(opened.file).write_bytes(_edit(opened, valid, text, found.changes).encode())
        if not as_json:
            click.echo(f"{opened.file}: written")
    elif write and diff and not as_json:
        click.echo(f"{opened.file}: not written, since not all goals are met", err=True)
    return DIFFERENT if found.problems else OK


def _read_disorder(graph: m.Graph, checkpoint: Folder | None, *, log: bool) -> tuple[Disorder, str]:
    """Return the disorder of the records, and where it was read from."""
    from windrow.telemetry.history import history_of, read_history  # noqa: PLC0415 - the same
    from windrow.tools.tune.disorder import read_log, read_recorded  # noqa: PLC0415 - help needs no Arrow

    if log:
        return read_log(graph), "the log"
    path = history_of(checkpoint or default_checkpoint(graph.name))
    try:
        reports = read_history(path)
    except InputError as exc:
        msg = f"{exc.message}; or use --log to read the log itself"
        raise InputError(msg) from exc
    return read_recorded(graph, reports), str(path)


def _change(opened: OpenedPipeline, graph: m.Graph, changes: Mapping[str, int]) -> tuple[str, list[PipelineChange]]:
    """Return the change of the file as a diff (empty if it is not YAML), and its effects on a run that resumes."""
    from windrow.runtime.compatibility import pipeline_changes  # noqa: PLC0415 - help needs no Arrow
    from windrow.runtime.savepoint import fingerprint  # noqa: PLC0415 - the same
    from windrow.tools.tune.choose import with_settings  # noqa: PLC0415 - the same

    if not changes:
        return "", []
    found = pipeline_changes(fingerprint(graph), fingerprint(with_settings(graph, changes)))
    if not opened.is_yaml:
        return "", found
    text = read_file(opened.file)
    before, after = (t.splitlines(keepends=True) for t in (text, _edit(opened, graph, text, changes)))
    lines = difflib.unified_diff(before, after, f"a/{opened.file}", f"b/{opened.file}")
    diff = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return diff, found


def _edit(opened: OpenedPipeline, graph: m.Graph, text: str, changes: Mapping[str, int]) -> str:
    """Return the text of the file with new values; raise PipelineError if more than these values would change."""
    from windrow.tools.tune.choose import with_settings  # noqa: PLC0415 - help needs no Arrow

    edited = set_values(text, opened.file, {path: m.format_duration(micros) for path, micros in changes.items()})
    if read_documents(edited, opened.file, given())[0].pipeline != with_settings(graph, changes):
        values = ", ".join(f"{path}: {m.format_duration(micros)}" for path, micros in changes.items())
        msg = f"{opened.file} cannot be edited without changing other settings, too; set these by hand: {values}"
        raise PipelineError(msg)
    return edited


def _show(graph: m.Graph, found: Tuning, origin: str, diff: str, effects: Sequence[PipelineChange]) -> None:
    # a row of a table is one line, whatever the width of the terminal
    console = Console(highlight=False, soft_wrap=True, width=_WIDTH)
    for line in _head(graph, found, origin):
        click.echo(line)
    for delay in found.delays:
        click.echo(f"\n{delay.path}: {_words(delay.now, delay.chosen)}; {delay.records:,} records")
        if delay.records:
            console.print(_delay_table(delay))
            console.print(_partition_table(graph, delay))
    has_changes = any(delay.chosen not in {None, delay.now} for delay in found.delays)
    under = ", under the choices above" if has_changes else ""
    for lateness in found.latenesses:
        click.echo(f"\n{lateness.path}: {_words(lateness.now, lateness.chosen)}; of {lateness.records:,}{under}")
        if lateness.records:
            console.print(_lateness_table(lateness))
    click.echo("")
    for problem in found.problems:
        click.echo(f"not met: {problem}")
    for line in _meaning(effects):
        click.echo(line)
    if diff:
        click.echo(f"\n{diff}", nl=False)
    if not found.changes and not found.problems:
        click.echo("nothing to change")


def _head(graph: m.Graph, found: Tuning, origin: str) -> Iterator[str]:
    log = "is exact" if found.is_log_exact else "is more precise"
    how = f"ranges up to the size of windows and buckets; --log {log}"
    if found.is_exact:
        how = "exact"
    elif found.is_of_log:
        how = "ranges if an operator before a window may drop, join or aggregate records"
    yield f"{graph.name}: from {origin} ({how})"
    yield from (f"skipped: {reason}" for reason in found.skipped)


def _words(now: int, chosen: int | None) -> str:
    if chosen is None or chosen == now:
        return f"{m.format_duration(now)}, unchanged" if chosen == now else f"{m.format_duration(now)} now"
    return f"{m.format_duration(now)} now, {m.format_duration(chosen)} chosen"


def _meaning(effects: Sequence[PipelineChange]) -> Iterator[str]:
    """Yield lines about the effects of the change on an existing run and on its rows."""
    if not effects:
        return
    yield "for a run that resumes:"
    yield from (f"  {effect.text}" for effect in effects)
    if any(effect.means is None for effect in effects):
        yield "  so it cannot resume: start over and read the log again (windrow run --fresh)"
        return
    yield (
        "  stop it and write a savepoint before the file changes (windrow savepoint), then resume from that "
        "(windrow run --from-savepoint)"
    )
    yield "  existing rows stay as they are; windrow run --fresh rebuilds them all from the log"


def _delay_table(found: Choice) -> Table:
    table = _table("delay", "not on time", "expired", "rows later by", "state")
    for row in found.table:
        moved = row.delay - found.now
        by = "" if not moved else f"{'-' if moved < 0 else '+'}{m.format_duration(abs(moved))}"
        value = _mark(row.delay, found.now, found.chosen)
        late, expired = (_shares(bounds, row.missed.pairs) for bounds in (row.missed.late, row.missed.expired))
        table.add_row(value, late, expired, by, f"{row.held:.2f} x")
    return table


def _lateness_table(found: Choice) -> Table:
    table = _table("lateness", "expired", "state")
    for row in found.table:
        value = _mark(row.lateness or 0, found.now, found.chosen)
        table.add_row(value, _shares(row.missed.expired, row.missed.pairs), f"{row.held:.2f} x")
    return table


def _mark(value: int, now: int, chosen: int | None) -> str:
    mark = "chosen" if value == chosen else "now" if value == now else ""
    return f"{m.format_duration(value)} {mark:>6}" if mark else f"{m.format_duration(value)}       "


def _shares(bounds: Bounds, total: int) -> str:
    least, most = (percent(number / total if total else 0.0) for number in (bounds.least, bounds.most))
    number = f"{bounds.most:,}" if bounds.least == bounds.most else f"{bounds.least:,} to {bounds.most:,}"
    return f"{number} ({most})" if least == most else f"{number} ({least} to {most})"


def _partition_table(graph: m.Graph, found: Choice) -> Table:
    table = _table("partition", "records", "P50", "P99", "P99.9", "most behind", "delay by the goals")
    for partition in found.partitions:
        needed = "" if partition.needed is None else m.format_duration(partition.needed)
        behind = (_short(partition.quantiles[share]) for share in (0.5, 0.99, 0.999, 1.0))
        table.add_row(str(graph.partition_name(partition.partition)), f"{partition.records:,}", *behind, needed)
    return table


def _short(micros: int) -> str:
    """Format a duration in at most two units, rounded up."""
    if micros > _UNITS[0] * 1_000_000:
        return "more"
    unit = next((below for above, below in pairwise(_UNITS) if micros >= above), 1)
    return m.format_duration(-(-micros // unit) * unit)


def _table(first: str, *others: str) -> Table:
    table = Table(first, *others, box=None, padding=(0, 2, 0, 2), header_style="bold")
    for column in table.columns:
        column.justify, column.no_wrap = "right", True
    return table


def _plain(graph: m.Graph, found: Tuning) -> dict[str, Any]:
    """Return the choices as plain JSON; times are microseconds."""
    return {
        "exact": found.is_exact,
        "delays": [
            {**_plain_choice(delay, "records"), "partitions": [_plain_partition(graph, p) for p in delay.partitions]}
            for delay in found.delays
        ],
        "latenesses": [_plain_choice(lateness, "pairs") for lateness in found.latenesses],
        "skipped": list(found.skipped),
        "problems": found.problems,
    }


def _plain_choice(choice: Choice, unit: str) -> dict[str, Any]:
    rows = [_plain_row(row) for row in choice.table]
    return {
        "path": choice.path, unit: choice.records, "now": choice.now, "chosen": choice.chosen, "what_if": rows,
    }  # fmt: skip


def _plain_partition(graph: m.Graph, part: PartitionDisorder) -> dict[str, Any]:
    behind = {f"p{share * 100:g}": micros for share, micros in part.quantiles.items()}
    name = graph.partition_name(part.partition)
    return {"partition": name, "records": part.records, "behind": behind, "delay": part.needed}


def _plain_row(row: WhatIf) -> dict[str, Any]:
    """Return a row as JSON: times are microseconds, and counts are [lower, upper] bounds."""
    late, expired = ([bounds.least, bounds.most] for bounds in (row.missed.late, row.missed.expired))
    of = {"delay": row.delay, "not_on_time": late} if row.lateness is None else {"lateness": row.lateness}
    return {**of, "pairs": row.missed.pairs, "expired": expired, "state": row.held}
