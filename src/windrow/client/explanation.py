"""The records, verdicts and revisions behind one row, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from windrow import model as m
from windrow.client.tables import Query, condition, find_table
from windrow.connectors.database import Condition
from windrow.errors import InputError
from windrow.telemetry.folders import Folder, default_checkpoint, folder_of
from windrow.telemetry.numbers import format_time, printable, short_duration
from windrow.telemetry.reports import counted
from windrow.terminal.display import aligned
from windrow.tools.why.explain import Explanation, explain_row
from windrow.tools.why.row_replay import DEAD, RECORDS, ExplainedRecord

_VERDICTS = {
    "on_time": "on time",
    "late": "late",
    "expired": "expired",
    "duplicate": "duplicate",
    "taken": "taken",
    "outside": "outside",
}


@dataclass(frozen=True, repr=False)
class Why:
    """Why a row is what it is; it is shown as `windrow show --why` prints it.

    `explanation` has the records with their verdicts, the changes of the row, and dead letters that may be of it.
    """

    explanation: Explanation
    options: str = ""
    """The prefix of options in what is printed: two hyphens for a command line."""

    def plain(self) -> dict[str, Any]:
        """Return it as plain JSON; times are in ISO 8601."""
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
    """Explain a row, with `most` of its records; see `windrow.tools.why.explain.explain_row`."""
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
    """Explain the row of a table that has these values."""
    sink, spec, named = find_table(graph, table)
    if named.name != spec.sink.table:
        msg = f"a row of {spec.sink.table} is explained, not of {named.name}: name that table"
        raise InputError(msg)
    conditions = [condition(named, *one) for one in Query.of(where, (), None).named()]
    return explain(graph, sink, conditions, None if checkpoint is None else folder_of(str(checkpoint)), most=limit)


def _lines(found: Explanation, options: str) -> Iterator[str]:
    yield f"{found.table}: {_title(found)}"
    yield "there is no such row" if found.row is None else _values(found.row, but=(*found.key, *_WINDOW))
    yield ""
    yield from _records(found, options)
    yield from _revisions(found)
    yield from _dead(found)
    yield _verdict(found)
    yield from (f"note: {note}" for note in found.notes)


_WINDOW = ("window_start", "window_end")


def _title(found: Explanation) -> str:
    key = ", ".join(f"{name}={value}" for name, value in found.key.items())
    if found.window is None:
        return key
    start, end = map(format_time, found.window)
    return ", ".join([*([key] if key else []), f"window {start} to {end} UTC"])


def _values(row: Mapping[str, Any], but: Sequence[str] = ()) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in row.items() if name not in but)


def _text(value: object) -> str:
    return "null" if value is None else str(value)


def _records(found: Explanation, options: str) -> Iterator[str]:
    total = sum(found.counts.values())
    yield _counts(f"{counted(total, 'record')} of the log", found.counts)
    if len(found.counts_by_source) > 1:
        yield from (_counts(f"  {source}", counts) for source, counts in found.counts_by_source.items())
    if found.records:
        names = list(dict.fromkeys(name for record in found.records for name in record.values))
        # not every log has timestamps, and not every watermark a clock
        times: dict[str, list[int | None]] = {
            "event time": [record.event_time for record in found.records],
            "log time": [record.log_time for record in found.records],
            "clock": [record.clock for record in found.records],
            "watermark": [record.watermark for record in found.records],
        }
        shown = {
            name: list(map(_time, column)) for name, column in times.items() if any(one is not None for one in column)
        }
        columns = {
            "partition": [record.partition for record in found.records],
            "offset": [record.offset for record in found.records],
            **shown,
            **{
                name: [_text(record.values[name]) if name in record.values else "" for record in found.records]
                for name in names
            },
            "verdict": [_judged(record) for record in found.records],
        }
        rows = list(zip(*columns.values(), strict=True))
        numeric = [name in {"partition", "offset", *names} for name in columns]
        yield from (f"  {line}" for line in aligned(list(columns), rows, numeric))
    if total > len(found.records):
        yield f"  ... and {counted(total - len(found.records), 'more record')}: {options}limit shows more"
    yield ""


def _counts(title: str, counts: Mapping[str, int]) -> str:
    by_verdict = ", ".join(f"{number:,} {_VERDICTS[name]}" for name, number in counts.items())
    return f"{title}: {by_verdict or 'none'}"


def _time(micros: int | None) -> str:
    if micros is None:
        return ""
    thousandths = micros // 1_000 % 1_000
    return format_time(micros) + (f".{thousandths:03}" if thousandths else "")


def _judged(one: ExplainedRecord) -> str:
    """Return the verdict on a record, and how far the watermark was past the window's end, if that is the row's.

    Of a record outside a join's interval, how far it is outside.
    """
    verdict = _VERDICTS[one.verdict]
    if one.apart is not None and one.beyond is not None:
        span = short_duration(abs(one.apart) / 1_000_000)
        way = "after" if one.apart > 0 else "before"
        return f"{verdict} by {short_duration(one.beyond / 1_000_000)}, {span} {way} the other record"
    if one.verdict not in {"late", "expired"} or one.watermark is None or one.window_end is None:
        return verdict
    # a session may have become longer after it
    past = one.watermark - one.window_end
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
            values = ", ".join(f"{name} {_text(before.get(name))} -> {_text(after[name])}" for name in changed)
        yield f"  epoch {revision.epoch}, pane {revision.pane}, revision {revision.revision}: {does} {values}"
    yield ""


def _dead(found: Explanation) -> Iterator[str]:
    if not found.dead_letters:
        return
    why = "the text has the key's values" if found.key else "the row has no key that they could lack"
    yield f"{counted(found.dead_letters, 'dead letter')} that may be of it: {why}"
    for one in found.dead:
        place = "a row" if one.partition is None else f"partition {one.partition}, offset {one.offset}"
        yield f"  {place}: {one.reason}"
        yield f"    {one.raw}"
    if found.dead_letters > len(found.dead):
        yield f"  ... and {found.dead_letters - len(found.dead):,} more; at most {DEAD} are listed"
    yield ""


def _verdict(found: Explanation) -> str:
    """Say whether the records make the row."""
    if found.differences:
        why = "the log no longer has all of its records, or another version of the pipeline, or another log, made it"
        return "\n".join(
            [
                "The records of the log do not make the row:",
                *(f"  {difference}" for difference in found.differences),
                f"Perhaps {why}.",
            ]
        )
    if found.row is None:
        at = f"; the low watermark is at {_time(found.low_watermark)}" if found.low_watermark is not None else ""
        return f"The records of the log make no such row either{at}."
    if found.counted == 1:
        return "The record that was not left out makes the row as it is."
    return f"The {found.counted:,} records that were not left out make the row as it is."
