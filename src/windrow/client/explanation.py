"""The explanation of a row in words: the records, verdicts and revisions behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from windrow import model as m
from windrow.client.tables import Query, condition, conditions_of, find_table
from windrow.connectors.database import Condition
from windrow.errors import InputError
from windrow.telemetry.folders import Folder, default_checkpoint, folder_of
from windrow.telemetry.numbers import format_time, printable, short_duration
from windrow.telemetry.reports import counted
from windrow.terminal.display import aligned, null_text
from windrow.tools.why.explain import Explanation, explain_row
from windrow.tools.why.row_replay import DEAD, RECORDS, ExplainedRecord


@dataclass(frozen=True, repr=False)
class Why:
    """The explanation of a row, as `windrow show --why` prints it.

    `explanation` has the records with their verdicts, the changes to the row, and dead letters that may belong to it.
    """

    explanation: Explanation
    options: str = ""
    """The prefix of options in the text: two hyphens for a command line."""

    def plain(self) -> dict[str, Any]:
        """Return the explanation as plain JSON; times are in ISO 8601."""
        return self.explanation.plain()

    def __repr__(self) -> str:
        return "\n".join(printable(line) for line in _lines(self.explanation, self.options))


def explain(
    graph: m.Graph,
    sink: str,
    where: Sequence[Condition],
    checkpoint: Folder | None,
    *,
    most: int = RECORDS,
    options: str = "",
) -> Why:
    """Explain a row, with at most `most` of its records; see `windrow.tools.why.explain.explain_row`."""
    folder = checkpoint or default_checkpoint(graph.name)
    found = explain_row(
        graph,
        sink,
        where,
        checkpoint=folder,
        is_default=checkpoint is None,
        most=most,
        option=f"{options}where " if options else "",
    )
    return Why(found, options)


def explain_where(
    graph: m.Graph,
    where: Mapping[str, object],
    table: str | None,
    checkpoint: str | PathLike[str] | None,
    limit: int,
) -> Why:
    """Explain the row of a table that has the values `where`."""
    sink, spec, named = find_table(graph, table)
    if named.name != spec.sink.table:
        msg = f"only a row of {spec.sink.table} can be explained, not of {named.name}: choose that table"
        raise InputError(msg)
    conditions = [condition(named, option, text) for option, text in Query(conditions_of(where)).named_conditions()]
    return explain(graph, sink, conditions, None if checkpoint is None else folder_of(str(checkpoint)), most=limit)


def _lines(found: Explanation, options: str) -> Iterator[str]:
    yield f"{found.table}: {_title(found)}"
    yield "there is no such row" if found.row is None else _values(found.row, but=(*found.key, *m.WINDOW_BOUNDS))
    yield ""
    yield from _records(found, options)
    yield from _revisions(found)
    yield from _dead(found)
    yield from _conclusion(found)
    yield from (f"note: {note}" for note in found.notes)


def _title(found: Explanation) -> str:
    key = ", ".join(f"{name}={value}" for name, value in found.key.items())
    if found.window is None:
        return key
    start, end = map(format_time, found.window)
    return ", ".join([*([key] if key else []), f"window {start} to {end} UTC"])


def _values(row: Mapping[str, Any], but: Sequence[str] = ()) -> str:
    return ", ".join(f"{name} {null_text(value)}" for name, value in row.items() if name not in but)


def _records(found: Explanation, options: str) -> Iterator[str]:
    total = sum(found.counts.values())
    yield _counts(f"{counted(total, 'record')} of the log", found.counts)
    if len(found.counts_by_source) > 1:
        yield from (_counts(f"  {source}", counts) for source, counts in found.counts_by_source.items())
    if found.records:
        names = list(dict.fromkeys(name for record in found.records for name in record.values))
        # a log may have no timestamps, and a watermark no clock
        times: dict[str, list[int | None]] = {
            "event time": [record.event_time for record in found.records],
            "log time": [record.log_time for record in found.records],
            "clock": [record.clock for record in found.records],
            "watermark": [record.watermark for record in found.records],
        }
        shown = {
            name: list(map(_time, column)) for name, column in times.items() if any(time is not None for time in column)
        }
        columns = {
            "partition": [record.partition for record in found.records],
            "offset": [record.offset for record in found.records],
            **shown,
            **{
                name: [null_text(record.values[name]) if name in record.values else "" for record in found.records]
                for name in names
            },
            "verdict": [_verdict(record) for record in found.records],
        }
        rows = list(zip(*columns.values(), strict=True))
        numeric = [name in {"partition", "offset", *names} for name in columns]
        yield from (f"  {line}" for line in aligned(list(columns), rows, numeric))
    if total > len(found.records):
        yield f"  ... and {counted(total - len(found.records), 'more record')}: {options}limit shows more"
    yield ""


def _counts(title: str, counts: Mapping[str, int]) -> str:
    by_verdict = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items())
    return f"{title}: {by_verdict or 'none'}"


def _time(micros: int | None) -> str:
    if micros is None:
        return ""
    thousandths = micros // 1_000 % 1_000
    return format_time(micros) + (f".{thousandths:03}" if thousandths else "")


def _verdict(record: ExplainedRecord) -> str:
    """Return the verdict on a record, and how far the watermark was past the end of the row's window.

    For a record outside the interval of a join, return how far outside it is.
    """
    verdict = record.verdict.replace("_", " ")
    if record.apart is not None and record.beyond is not None:
        span = short_duration(abs(record.apart) / 1_000_000)
        way = "after" if record.apart > 0 else "before"
        return f"{verdict} by {short_duration(record.beyond / 1_000_000)}, {span} {way} the other record"
    if record.verdict not in {"late", "expired"} or record.watermark is None or record.window_end is None:
        return verdict
    # the session may have become longer since
    past = record.watermark - record.window_end
    return f"{verdict} by {short_duration(past / 1_000_000)}" if past >= 0 else verdict


def _revisions(found: Explanation) -> Iterator[str]:
    yield f"{counted(len(found.revisions), 'change')} of the row"
    for revision in found.revisions:
        if revision.before is None or revision.after is None:
            does, content = ("inserts", revision.after) if revision.before is None else ("deletes", revision.before)
            values = _values(content or {})
        else:
            does, before, after = "updates", revision.before, revision.after
            changed = [name for name in after if before.get(name) != after[name]] or list(after)
            values = ", ".join(f"{name} {null_text(before.get(name))} -> {null_text(after[name])}" for name in changed)
        yield f"  epoch {revision.epoch}, pane {revision.pane}, revision {revision.revision}: {does} {values}"
    yield ""


def _dead(found: Explanation) -> Iterator[str]:
    if not found.dead_letters:
        return
    why = "the text has the key's values" if found.key else "the row has no key to look for in them"
    yield f"{counted(found.dead_letters, 'dead letter')} that may belong to it: {why}"
    for letter in found.dead:
        place = "a row" if letter.partition is None else f"partition {letter.partition}, offset {letter.offset}"
        yield f"  {place}: {letter.reason}"
        yield f"    {letter.raw}"
    if found.dead_letters > len(found.dead):
        yield f"  ... and {found.dead_letters - len(found.dead):,} more; at most {DEAD} are listed"
    yield ""


def _conclusion(found: Explanation) -> Iterator[str]:
    """Yield whether the records explain the row."""
    if found.differences:
        yield "The records of the log do not give this row:"
        yield from (f"  {difference}" for difference in found.differences)
        yield "Perhaps the log has lost records, or the row is from another log or version of the pipeline."
    elif found.row is None:
        at = f"; the low watermark is at {_time(found.low_watermark)}" if found.low_watermark is not None else ""
        yield f"The records of the log give no such row either{at}."
    elif found.counted == 1:
        yield "The record that counts gives exactly this row."
    else:
        yield f"The {found.counted:,} records that count give exactly this row."
