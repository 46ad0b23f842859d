"""A pipeline for a sample: which field is the event time, which the key, what is added up, and how long to wait.

Everything that is guessed stands in the text with what it was guessed by. The text is read and checked as any file is,
and the sample is decoded by it: what would be dead letters is known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from windrow import model as m
from windrow.authoring.checks.base import is_name
from windrow.authoring.checks.fields import RESERVED
from windrow.authoring.pipeline_file import parse_pipeline
from windrow.engine.columns import to_micros
from windrow.engine.decode.decoder import Decoder
from windrow.engine.decode.exact import KEY, LOG_TIME_TYPE, VALUE, parse_object
from windrow.engine.decode.values import MalformedError
from windrow.errors import InputError
from windrow.expressions import decoding_spec
from windrow.telemetry.histogram import BOUNDS
from windrow.telemetry.numbers import percent, short_duration
from windrow.telemetry.reports import counted
from windrow.tools.scaffold.fields import MISFITS, SampledField, sample_fields, words_of
from windrow.tools.scaffold.sample import Sample, partitions_of
from windrow.tools.scaffold.text import Choice, DraftText
from windrow.tools.tune.choose import Goals, tune
from windrow.tools.tune.disorder import measure

_HOUR: Final = 3_600_000_000
_WINDOWS: Final = {
    "1d": 24 * _HOUR,
    "1h": _HOUR,
    "5m": 300_000_000,
    "1m": 60_000_000,
    "10s": 10_000_000,
    "1s": 1_000_000,
}
_ENOUGH_WINDOWS: Final = 12
"""Windows that the sample should fill at least."""
_MOST: Final = 0.99
"""The share of records that a delay covers of a sample with `_MANY`; the others are late, and revise rows."""
_MANY: Final = 1_000
_FEW: Final = 20
"""Records below which most values can be different, and still a key."""
_SHORTEST_DELAY: Final = 1_000_000
_FUTURES: Final = (_HOUR, 24 * _HOUR, 7 * 24 * _HOUR)
_MOST_SUMS: Final = 3
_MOST_DIGITS: Final = 28
"""Digits of a decimal that can be summed."""
_NARROW: Final = 13
"""Digits of a decimal whose sums fit into the 15 digits of SQLite's NUMERIC."""
_LONGEST_NAME: Final = 50
_OTHER_COLUMN: Final = re.compile(rf"(?:events|{'|'.join(RESERVED)})$|total_|max_")
"""The names that columns besides the key can have."""

_HAPPENED: Final = frozenset({"event", "occurred", "happened", "observed", "measured", "recorded"})
_BEGAN: Final = frozenset({"created", "placed", "ordered", "clicked", "started", "timestamp", "time", "ts", "t"})
_HANDLED: Final = frozenset(
    {"ingest", "ingested", "ingestion", "processed", "processing", "received", "arrival", "arrived",
     "updated", "modified", "sent", "log", "logged", "server", "loaded", "written", "expires", "expiry",
     "due", "birth", "end", "ended", "valid", "published", "deleted", "delivered", "shipped"}
)  # fmt: skip
_WHO: Final = frozenset(
    {"user", "customer", "account", "device", "sensor", "card", "client", "host", "machine", "vehicle",
     "session", "player", "member", "merchant", "store", "shop", "symbol", "product", "sku", "city",
     "page", "url", "key", "station", "driver"}
)  # fmt: skip
_NAMES: Final = frozenset({"id", "key", "name", "no", "code", "uid", "uuid"})
_MEASURED: Final = frozenset(
    {"amount", "count", "qty", "quantity", "price", "value", "total", "size", "duration", "temperature",
     "lat", "lon", "latitude", "longitude", "bytes", "score", "rate", "level", "version", "message",
     "text", "comment", "description"}
)  # fmt: skip


@dataclass(frozen=True)
class Draft:
    """A pipeline as text; of the `records` of its sample `dead` would be dead letters, by kind."""

    text: str
    pipeline: m.Graph
    records: int
    dead: Mapping[str, int]


@dataclass(frozen=True)
class _Records:
    """The records of a sample that are JSON objects, with their partitions and keys."""

    values: Sequence[Mapping[str, object]]
    partitions: Sequence[int]
    keys: Sequence[bytes | None]


def draft_pipeline(sample: Sample, source: str) -> Draft:
    """Return a pipeline for a sample, whose source is the text `source` in YAML.

    Raise InputError if no record is a JSON object, or none of their fields can be the event time.
    """
    is_log = not isinstance(sample.source, m.KafkaSource)
    records = _read(sample)
    fields = sample_fields(records.values)
    text = DraftText(sample.name, source, counted(sample.raw.num_rows, "record"), sample.place, whole=sample.whole)
    usable = [*_usable(fields, text, is_log=is_log)]
    time = _time(usable, fields, sample, text, is_log=is_log)
    key = _key([one for one in usable if one is not time], records, text)
    _decode(usable, time, key, text)
    _results([one for one in usable if one not in (time, key)], text)
    return _timed(sample, text)


def _read(sample: Sample) -> _Records:
    values, partitions, keys = [], [], []
    rows = zip(*(sample.raw.column(name).to_pylist() for name in ("value", "partition", "key")), strict=True)
    why = ""
    for value, partition, key in rows:
        try:
            record = parse_object(value)
        except MalformedError as exc:
            why = why or str(exc)
            continue
        if VALUE not in record:  # a tombstone of an embedded log
            values.append(record)
            partitions.append(partition)
            # of files it is the place of the record
            keys.append(None if isinstance(sample.source, m.FilesSource) else key)
    if not values:
        msg = f"no record of {sample.place} is a JSON object ({why}): a pipeline for other formats is written by hand"
        raise InputError(msg)
    return _Records(values, partitions, keys)


def _usable(fields: Sequence[SampledField], text: DraftText, *, is_log: bool) -> Iterator[SampledField]:
    """Yield the fields that a pipeline of one stream can have; the others are listed in the text."""
    seen: set[str] = set()
    for field in fields:
        shown = ".".join(field.path)
        if is_log and field.path in {(m.LOG_TIME,), (KEY,), (VALUE,)}:
            continue
        if not is_name(field.name) or field.name.startswith("__"):
            text.left_out(shown, "its name cannot be that of a field")
        elif field.name.lower() in seen:
            text.left_out(shown, f"there is a field {field.name} already, by a name that SQL takes for the same")
        elif isinstance(field.type, m.ArrayType):
            text.left_out(shown, f"{field.type}, for flat_map in a file with sources and streams")
        elif field.type is None:
            text.left_out(shown, field.why)
        else:
            seen.add(field.name.lower())
            yield field


def _time(
    usable: Sequence[SampledField], fields: Sequence[SampledField], sample: Sample, text: DraftText, *, is_log: bool
) -> SampledField:
    """Return the field that is the event time, a time that nearly all records have."""
    total = sample.raw.num_rows
    found = [one for one in usable if isinstance(one.type, m.TimestampType) and one.missing <= MISFITS * total]
    if (
        not found
        and is_log
        and (logged := [field for field in fields if field.path == (m.LOG_TIME,) and not field.missing])
    ):
        logged[0].type = LOG_TIME_TYPE
        text.time = Choice(m.LOG_TIME, "the log timestamp, as no field is a time that all records have")
        return logged[0]
    if not found:
        msg = (
            f"no field of {sample.place} is a time that all records have (ISO 8601 text, or seconds, milliseconds or "
            f"microseconds since 1970); the fields are {', '.join('.'.join(field.path) for field in fields)}"
        )
        raise InputError(msg)
    best = max(found, key=_likely_time)
    others = [one.name for one in found if one is not best]
    text.time = Choice(best.name, f"by its name, not {', '.join(others)}" if others else "the only time of all records")
    return best


def _likely_time(one: SampledField) -> int:
    words = set(one.words)
    score = 4 * bool(words & _HAPPENED) + 2 * bool(words & _BEGAN) - 5 * bool(words & _HANDLED)
    return score - len(one.path) + 1


def _key(usable: Sequence[SampledField], records: _Records, text: DraftText) -> SampledField | None:
    """Return the field that is the key: text or a whole number that many records share; None if none seems to be."""
    best: tuple[float, SampledField, str] | None = None
    for one in usable:
        is_candidate = isinstance(one.type, m.StringType | m.LongType) and one.missing <= MISFITS * len(records.values)
        if not is_candidate or _OTHER_COLUMN.match(one.name.lower()) or len(one.name.encode()) > _LONGEST_NAME:
            continue
        score, why = _likely_key(one, records)
        if score > 0 and (best is None or score > best[0]):
            best = score, one, why
    if best is None:
        text.key = Choice("[]", "no field seems to be a key: one row for all records of a window")
        return None
    text.key = Choice(f"[{text.scalar(best[1].name)}]", best[2])
    return best[1]


def _likely_key(one: SampledField, records: _Records) -> tuple[float, str]:
    """Return how likely a field is the key (above 0: likely), and what speaks for it."""
    words, distinct, total = set(one.words), len(set(map(str, one.values))), len(one.values)
    score = 0.0
    why = [f"{distinct:,} values"]
    score += 3 * bool(words & _WHO) + bool(words & _NAMES) - 4 * bool(words & _MEASURED) - 3 * (distinct == 1)
    if distinct > total / 2 and (total >= _FEW or distinct == total):
        score -= 6  # another in nearly each record: its id
    elif not isinstance(one.type, m.LongType):
        score += 1
    values = [_at(record, one.path) for record in records.values]
    kept = [(value, key) for value, key in zip(values, records.keys, strict=True) if key is not None]
    if kept and sum(str(value).encode() == key for value, key in kept) >= (1 - MISFITS) * len(values):
        score += 10
        why.append("the key of the records in the topic")
    homes = set(zip(map(str, values), records.partitions, strict=True))
    if len(set(records.partitions)) > 1 and distinct > 1 and len(homes) <= len(set(map(str, values))) * (1 + MISFITS):
        score += 4
        why.append("each in one partition")
    return score, ", ".join(why)


def _at(record: Mapping[str, object], path: Sequence[str]) -> object:
    value: object = record
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _decode(usable: Sequence[SampledField], time: SampledField, key: SampledField | None, text: DraftText) -> None:
    if time not in usable:
        text.add_field(m.LOG_TIME, str(time.type), (), "the log timestamp")
    for one in usable:
        is_needed = one is time or one is key
        why = [one.why] if one.why else []
        if one.missing:
            why.append(f"{counted(one.missing, 'record')} of the sample {'has' if one.missing == 1 else 'have'} none")
        if one.misfits:
            why.append(f"not so in {counted(one.misfits, 'record')}")
        optional = "?" if one.missing and not is_needed else ""
        text.add_field(one.name, f"{one.type}{optional}", one.path if len(one.path) > 1 else (), "; ".join(why))


def _results(usable: Sequence[SampledField], text: DraftText) -> None:
    """Choose what is added up: decimals and whole numbers that are no ids; of doubles the greatest."""
    for one in usable:
        words = words_of(one.name)
        is_id = bool(_NAMES.intersection(words)) or bool(_WHO.intersection(words))
        name = one.name.lower()
        if is_id or not re.fullmatch(r"[A-Za-z_]\w*", one.name, re.ASCII) or len(name) > _LONGEST_NAME:
            continue
        if len(text.results) == _MOST_SUMS:
            return
        match one.type:
            case m.DecimalType(precision) if precision > _MOST_DIGITS:
                pass
            case m.LongType() | m.DecimalType():
                text.results[f"total_{name}"] = f"sum({one.name})"
                text.is_wide |= isinstance(one.type, m.DecimalType) and one.type.precision > _NARROW
            case m.DoubleType():
                text.results[f"max_{name}"] = f"max({one.name})"
            case _:
                pass


def _timed(sample: Sample, text: DraftText) -> Draft:
    """Choose window, delay and lateness by the event times of the sample, and finish the text."""
    graph = _parsed(text)
    time = graph.sources[0].time
    for future in (*_FUTURES, None):
        time = replace(time, future=future)
        decoded = Decoder(decoding_spec(_with_time(graph, time))).decode(sample.raw)
        reasons: list[str] = decoded.dead.column("reason").to_pylist()
        if sum(reason.startswith("future:") for reason in reasons) <= MISFITS * sample.raw.num_rows:
            break
    text.future = None if time.future is None else m.format_duration(time.future)
    times = to_micros(decoded.good.column(2))
    if not len(times):
        msg = f"no record of {sample.place} has all fields: the first is a dead letter, {reasons[0]}"
        raise InputError(msg)
    span = int(times.max() - times.min())
    text.window = next((one for one, size in _WINDOWS.items() if span >= _ENOUGH_WINDOWS * size), [*_WINDOWS][-1])
    _delays(_with_time(_parsed(text), time), sample.raw, text)
    dead = Counter(reason.partition(":")[0] for reason in reasons)
    first = {reason.partition(":")[0]: reason for reason in reversed(reasons)}
    text.dead = [f"{number:,} {kind}, such as: {first[kind]}" for kind, number in dead.most_common()]
    return Draft(text.written(), _parsed(text), sample.raw.num_rows, dead)


def _delays(graph: m.Graph, raw: pa.Table, text: DraftText) -> None:
    disorder = measure(graph, raw.to_batches())
    share = _MOST if disorder.records >= _MANY else 1.0
    choice = tune(graph, disorder, Goals(quantile=share)).delays[0]
    worst, near = disorder.high.quantile(1.0), disorder.high.quantile(share)
    delay = max(BOUNDS[-1] if choice.chosen is None else choice.chosen, _SHORTEST_DELAY)
    whole = "all records" if share == 1 else f"{percent(share)} of the records"
    parts = len(partitions_of(raw))
    where = "their partition" if parts > 1 else "the log"
    behind = "not behind" if not near else f"at most {short_duration(near / 1e6)} behind"
    farthest = "" if share == 1 or worst == near else f", one is {short_duration(worst / 1e6)} behind"
    text.delay = Choice(m.format_duration(delay), f"{whole} are {behind} the newest of {where} before them{farthest}")
    rest = max(_HOUR, next((bound for bound in BOUNDS if bound >= worst - delay), BOUNDS[-1]))
    text.lateness = Choice(m.format_duration(rest), "so long a late record revises its row")


def _with_time(graph: m.Graph, time: m.EventTime) -> m.Graph:
    return graph.map_nodes(lambda node: replace(node, time=time) if isinstance(node, m.SourceNode) else node)


def _parsed(text: DraftText) -> m.Graph:
    return parse_pipeline(text.written(), "pipeline.yaml")
