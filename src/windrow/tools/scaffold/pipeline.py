"""Drafts a pipeline from a sample of records by guessing its event time, key, aggregates and delay.

Each guess appears in the YAML with its reason. The YAML is parsed and checked like any pipeline file, and it is used to
decode the sample, so the dead letters of the sample are known.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import yaml

from windrow import model as m
from windrow.authoring.checks.fields import RESERVED
from windrow.authoring.pipeline_file import parse_pipeline
from windrow.declare.findings import is_name
from windrow.engine.columns import MIN_TIME, Micros, distinct, to_micros
from windrow.engine.decode.decoder import Decoder
from windrow.engine.decode.exact import LOG_TIME_TYPE
from windrow.engine.decode.json_text import parse_object
from windrow.engine.decode.values import MalformedError
from windrow.engine.watermarks.guard import IN_A_ROW, NO_CLOCK, follow_clock
from windrow.errors import InputError
from windrow.expressions import decoding_spec
from windrow.telemetry.histogram import BOUNDS
from windrow.telemetry.numbers import percent, short_duration
from windrow.telemetry.reports import counted
from windrow.tools.scaffold.fields import MISFITS, SampledField, sample_fields, words_of
from windrow.tools.scaffold.sample import Sample
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
"""Least number of windows that the sample should fill."""
_MOST: Final = 0.99
"""The share of records that a delay covers in a sample with `_MANY`; the others are late, and revise rows."""
_MANY: Final = 1_000
_FEW: Final = 20
"""With fewer records, a field with mostly different values can still be the key."""
_SHORTEST_DELAY: Final = 1_000_000
_FUTURES: Final = (_HOUR, 24 * _HOUR, 7 * 24 * _HOUR)
_JUMPS: Final = (24 * _HOUR, 7 * 24 * _HOUR, 30 * 24 * _HOUR)
_MOST_SUMS: Final = 3
_MOST_DIGITS: Final = 28
"""Digits of a decimal that can be summed."""
_NARROW: Final = 13
"""Digits of a decimal whose sums fit into the 15 digits of SQLite's NUMERIC."""
_LONGEST_NAME: Final = 50
_COMMENT_AT: Final = 44
"""The column of comments, if the lines are not longer."""
_WIDEST: Final = 120
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
class Scaffold:
    """A drafted pipeline as YAML, the number of records in its sample, and the number of dead letters of each kind."""

    text: str
    pipeline: m.Graph
    records: int
    dead: Mapping[str, int]


@dataclass(frozen=True)
class Choice:
    """A chosen value as YAML, and the reason for it."""

    value: str
    why: str


@dataclass
class PipelineText:
    """The chosen parts of a pipeline, rendered as YAML, which is valid once fields and a time have been set.

    `is_wide` is True if sums may have more digits than NUMERIC columns of SQLite keep.
    """

    name: str
    source: str
    size: str
    place: str
    whole: bool
    time: Choice = Choice("", "")
    delay: Choice = Choice("10m", "")
    key: Choice = Choice("[]", "")
    lateness: Choice = Choice("1h", "")
    future: str | None = "1h"
    jump: str | None = None
    window: str = "1m"
    results: dict[str, str] = dataclasses.field(default_factory=lambda: {"events": "count()"})
    dead: list[str] = dataclasses.field(default_factory=list)
    is_wide: bool = False
    _fields: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    _left: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    def add_field(self, name: str, type_: str, path: Sequence[str], why: str) -> None:
        """Add a field; `path` is empty if the records have the field under its own name."""
        value = type_
        if path:
            value = f"{{type: {yaml_scalar(type_)}, path: {yaml_scalar('.'.join(path))}}}"
        self._fields.append((f"  {yaml_scalar(name)}: {value}", why))

    def leave_out(self, name: str, why: str) -> None:
        """Note a field of the records that the pipeline leaves out."""
        self._left.append((name, why))

    @property
    def table(self) -> str:
        """The name of the result table."""
        word = re.sub(r"\W+", "_", self.name, flags=re.ASCII).strip("_").lower()[:40] or "records"
        return f"{word if word[0].isalpha() else f't_{word}'}_{self.window}"

    def render(self) -> str:
        """Return the pipeline as YAML."""
        return "\n".join(_align(self._lines())) + "\n"

    def _lines(self) -> Iterator[tuple[str, str]]:
        named = re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip("._-")[:80] or "records"
        yield (
            f"# Drafted by `windrow init --from {self.place}` from {self.size}{'' if self.whole else ' (not all)'}.",
            "",
        )
        yield (
            "# Each guess has its reason beside it. Change what is wrong, then check the file with `windrow check`.",
            "",
        )
        for reason in self.dead:
            yield f"# Dead letters of the sample: {reason}"[:_WIDEST], ""
        yield f"name: {yaml_scalar(named)}", ""
        yield f"source: {self.source}", ""
        yield "decode:", ""
        yield from self._fields
        for name, why in self._left:
            yield f"  # left out: {' '.join(name.split())} ({why})"[:_WIDEST], ""
        yield "time:", ""
        yield f"  field: {yaml_scalar(self.time.value)}", self.time.why
        yield f"  delay: {self.delay.value}", self.delay.why
        if self.future is not None:
            yield f"  future: {self.future}", "a record farther ahead of its log timestamp has a wrong clock"
        if self.jump is not None:
            yield (
                f"  jump: {self.jump}",
                "a record farther ahead of those before it has a wrong clock",
            )
        yield f"key: {self.key.value}", self.key.why
        yield f"window: {{tumbling: {self.window}}}", ""
        yield "aggregate:", ""
        yield from ((f"  {yaml_scalar(name)}: {sql}", "") for name, sql in self.results.items())
        yield f"emit: {{lateness: {self.lateness.value}}}", self.lateness.why
        digits = ", decimals: text" if self.is_wide else ""
        yield f"sink: {{sqlite: {{path: {self.table}.db, table: {self.table}{digits}}}}}", ""


def yaml_scalar(text: str) -> str:
    """Return text as a YAML scalar, quoted if necessary."""
    is_plain = re.fullmatch(r"[A-Za-z_./][\w./-]*", text, re.ASCII) and yaml.safe_load(text) == text
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def _align(lines: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield lines with their comments beside them, or above them if the line is long."""
    for line, why in lines:
        comment = " ".join(f"# {why}".split())[: _WIDEST - 2]
        if not why:
            yield line
        elif max(len(line) + 2, _COMMENT_AT) + len(comment) <= _WIDEST:
            yield f"{line:<{_COMMENT_AT - 2}}  {comment}"
        else:
            indent = " " * (len(line) - len(line.lstrip()))
            yield f"{indent}{comment}"
            yield line


@dataclass(frozen=True)
class _Records:
    """The records of a sample that are JSON objects, with their partitions and keys."""

    values: Sequence[Mapping[str, object]]
    partitions: Sequence[int]
    keys: Sequence[bytes | None]


def scaffold_pipeline(sample: Sample, source: str) -> Scaffold:
    """Return a pipeline drafted from a sample; `source` is the pipeline's source as YAML.

    Raise InputError if no record is a JSON object or no field can be the event time.
    """
    is_log = not isinstance(sample.source, m.KafkaSource)
    records = _parse_records(sample)
    fields = sample_fields(records.values)
    text = PipelineText(sample.name, source, counted(sample.raw.num_rows, "record"), sample.place, whole=sample.whole)
    usable = [*_usable(fields, text, is_log=is_log)]
    time = _choose_time(usable, fields, sample, text, is_log=is_log)
    key = _choose_key([field for field in usable if field is not time], records, text)
    _add_fields(usable, time, key, text)
    _choose_results([field for field in usable if field not in (time, key)], text)
    logged = [field for field in fields if is_log and field.path == (m.LOG_TIME,)]
    missing = logged[0].missing if logged else sample.raw.num_rows
    return _choose_times(sample, text, missing if is_log else sample.raw.column("log_time").null_count)


def _parse_records(sample: Sample) -> _Records:
    values, partitions, keys = [], [], []
    rows = zip(*(sample.raw.column(name).to_pylist() for name in ("value", "partition", "key")), strict=True)
    why = ""
    for value, partition, key in rows:
        try:
            record = parse_object(value)
        except MalformedError as exc:
            why = why or str(exc)
            continue
        if m.VALUE not in record:  # a tombstone of an embedded log
            values.append(record)
            partitions.append(partition)
            # the key of a record in files is its place
            keys.append(None if isinstance(sample.source, m.FilesSource) else key)
    if not values:
        msg = f"no record of {sample.place} is a JSON object ({why}): a pipeline for other formats is written by hand"
        raise InputError(msg)
    return _Records(values, partitions, keys)


def _usable(fields: Sequence[SampledField], text: PipelineText, *, is_log: bool) -> Iterator[SampledField]:
    """Yield the fields that a pipeline with a single stream can have; note the others in the text as left out."""
    seen: set[str] = set()
    for field in fields:
        shown = ".".join(field.path)
        if is_log and field.path in {(m.LOG_TIME,), (m.KEY,), (m.VALUE,)}:
            continue
        if not is_name(field.name) or field.name.startswith("__"):
            text.leave_out(shown, "its name is not valid for a field")
        elif field.name.lower() in seen:
            text.leave_out(shown, f"in SQL its name is the same as that of another field, {field.name}")
        elif isinstance(field.type, m.ArrayType):
            text.leave_out(shown, f"{field.type}: needs flat_map, in a file with sources and streams")
        elif field.type is None:
            text.leave_out(shown, field.why)
        else:
            seen.add(field.name.lower())
            yield field


def _choose_time(
    usable: Sequence[SampledField], fields: Sequence[SampledField], sample: Sample, text: PipelineText, *, is_log: bool
) -> SampledField:
    """Return the field to use as event time, a timestamp that nearly all records have."""
    total = sample.raw.num_rows
    found = [field for field in usable if isinstance(field.type, m.TimestampType) and field.missing <= MISFITS * total]
    logged = [field for field in fields if is_log and field.path == (m.LOG_TIME,) and not field.missing]
    if not found and logged:
        logged[0].type = LOG_TIME_TYPE
        text.time = Choice(m.LOG_TIME, "the log timestamp, because no field is a time that all records have")
        return logged[0]
    if not found:
        msg = (
            f"{sample.place} has no field with a time in all records (ISO 8601 text, or seconds, milliseconds or "
            f"microseconds since 1970); the fields are {', '.join('.'.join(field.path) for field in fields)}"
        )
        raise InputError(msg)
    best = max(found, key=_likely_time)
    others = [field.name for field in found if field is not best]
    text.time = Choice(
        best.name, f"chosen by name over {', '.join(others)}" if others else "the only time that all records have"
    )
    return best


def _likely_time(field: SampledField) -> int:
    words = set(field.words)
    score = 4 * bool(words & _HAPPENED) + 2 * bool(words & _BEGAN) - 5 * bool(words & _HANDLED)
    return score - len(field.path) + 1


def _choose_key(usable: Sequence[SampledField], records: _Records, text: PipelineText) -> SampledField | None:
    """Return the field to use as key, or None if no field seems to be one.

    It is a text or a whole number that many records share.
    """
    best: tuple[float, SampledField, str] | None = None
    for field in usable:
        is_candidate = isinstance(field.type, m.StringType | m.LongType)
        is_candidate &= field.missing <= MISFITS * len(records.values)
        if not is_candidate or _OTHER_COLUMN.match(field.name.lower()) or len(field.name.encode()) > _LONGEST_NAME:
            continue
        score, why = _likely_key(field, records)
        if score > 0 and (best is None or score > best[0]):
            best = score, field, why
    if best is None:
        text.key = Choice("[]", "no field seems to be a key, so a window has one row for all records")
        return None
    text.key = Choice(f"[{yaml_scalar(best[1].name)}]", best[2])
    return best[1]


def _likely_key(field: SampledField, records: _Records) -> tuple[float, str]:
    """Return a field's score as the key (likely if above 0), and the reasons."""
    words, distinct, total = set(field.words), len(set(map(str, field.values))), len(field.values)
    score = 0.0
    why = [f"{distinct:,} values"]
    score += 3 * bool(words & _WHO) + bool(words & _NAMES) - 4 * bool(words & _MEASURED) - 3 * (distinct == 1)
    if distinct > total / 2 and (total >= _FEW or distinct == total):
        score -= 6  # another in nearly each record: its id
    elif not isinstance(field.type, m.LongType):
        score += 1
    values = [_at(record, field.path) for record in records.values]
    keyed = [(value, key) for value, key in zip(values, records.keys, strict=True) if key is not None]
    if keyed and sum(str(value).encode() == key for value, key in keyed) >= (1 - MISFITS) * len(values):
        score += 10
        why.append("the record key in the topic")
    homes = set(zip(map(str, values), records.partitions, strict=True))
    if len(set(records.partitions)) > 1 and distinct > 1 and len(homes) <= len(set(map(str, values))) * (1 + MISFITS):
        score += 4
        why.append("each in a single partition")
    return score, ", ".join(why)


def _at(record: Mapping[str, object], path: Sequence[str]) -> object:
    value: object = record
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _add_fields(
    usable: Sequence[SampledField], time: SampledField, key: SampledField | None, text: PipelineText
) -> None:
    if time not in usable:
        text.add_field(m.LOG_TIME, str(time.type), (), "the log timestamp")
    for field in usable:
        is_needed = field is time or field is key
        why = [field.why] if field.why else []
        if field.missing:
            why.append(
                f"{counted(field.missing, 'record')} of the sample {'has' if field.missing == 1 else 'have'} none"
            )
        if field.misfits:
            why.append(f"does not fit {counted(field.misfits, 'record')}")
        optional = "?" if field.missing and not is_needed else ""
        text.add_field(field.name, f"{field.type}{optional}", field.path if len(field.path) > 1 else (), "; ".join(why))


def _choose_results(usable: Sequence[SampledField], text: PipelineText) -> None:
    """Choose the aggregates: sums of decimals and of whole numbers that are not ids, and maxima of doubles."""
    for field in usable:
        words = words_of(field.name)
        is_id = bool(_NAMES.intersection(words)) or bool(_WHO.intersection(words))
        name = field.name.lower()
        if is_id or not re.fullmatch(r"[A-Za-z_]\w*", field.name, re.ASCII) or len(name) > _LONGEST_NAME:
            continue
        if len(text.results) == _MOST_SUMS:
            return
        match field.type:
            case m.DecimalType(precision) if precision > _MOST_DIGITS:
                pass
            case m.LongType() | m.DecimalType():
                text.results[f"total_{name}"] = f"sum({field.name})"
                text.is_wide |= isinstance(field.type, m.DecimalType) and field.type.precision > _NARROW
            case m.DoubleType():
                text.results[f"max_{name}"] = f"max({field.name})"
            case _:
                pass


def _choose_times(sample: Sample, text: PipelineText, missing: int) -> Scaffold:
    """Choose window, delay and lateness from the event times of the sample, and finish the text.

    The number of records without a log timestamp is `missing`.
    """
    graph = _parse(text)
    time = graph.sources[0].time
    for future in (*_FUTURES, None):
        time = replace(time, future=future)
        decoded = Decoder(decoding_spec(_with_time(graph, time))).decode(sample.raw)
        reasons: list[str] = decoded.dead.column("reason").to_pylist()
        if sum(reason.startswith("future:") for reason in reasons) <= MISFITS * sample.raw.num_rows:
            break
    if missing == sample.raw.num_rows:
        time = replace(time, future=None)
    text.future = None if time.future is None else m.format_duration(time.future)
    if not decoded.good.num_rows:
        msg = f"no record of {sample.place} has all fields; the first would be a dead letter: {reasons[0]}"
        raise InputError(msg)
    jump, times = _choose_jump(decoded.good)
    if missing:
        time = replace(time, jump=jump)
        text.jump = None if jump is None else m.format_duration(jump)
    span = int(times.max() - times.min())
    text.window = next((name for name, size in _WINDOWS.items() if span >= _ENOUGH_WINDOWS * size), [*_WINDOWS][-1])
    _delays(_with_time(_parse(text), time), sample.raw, text)
    dead = Counter(reason.partition(":")[0] for reason in reasons)
    first = {reason.partition(":")[0]: reason for reason in reversed(reasons)}
    text.dead = [f"{number:,} {kind}, such as: {first[kind]}" for kind, number in dead.most_common()]
    return Scaffold(text.render(), _parse(text), sample.raw.num_rows, dead)


def _choose_jump(good: pa.Table) -> tuple[int | None, Micros]:
    """Return the least jump that few good records exceed and no gap, and the event times of the others.

    The jump is None if there is none, and then all event times are returned.
    """
    partitions, times = (to_micros(good.column(place).cast(pa.int64())) for place in (0, 2))
    for jump in _JUMPS:
        moved = [
            follow_clock(jump, NO_CLOCK, own, np.zeros(len(own), dtype=np.bool_))
            for own in (times[partitions == partition] for partition in distinct(partitions))
        ]
        has_gap = any(np.convolve(part.is_leap, np.ones(IN_A_ROW, dtype=np.int64)).max() == IN_A_ROW for part in moved)
        if not has_gap and sum(part.leaps for part in moved) <= MISFITS * len(times):
            clock = max(part.after.clock for part in moved)
            return jump, times if clock == MIN_TIME else times[times <= clock + jump]
    return None, times


def _delays(graph: m.Graph, raw: pa.Table, text: PipelineText) -> None:
    disorder = measure(graph, raw.to_batches())
    share = _MOST if disorder.records >= _MANY else 1.0
    choice = tune(graph, disorder, Goals(quantile=share)).delays[0]
    worst, near = disorder.high.quantile(1.0), disorder.high.quantile(share)
    delay = max(BOUNDS[-1] if choice.chosen is None else choice.chosen, _SHORTEST_DELAY)
    whole = "all records" if share == 1 else f"{percent(share)} of the records"
    where = "their partition" if len(raw.column("partition").unique()) > 1 else "the log"
    behind = "not behind" if not near else f"at most {short_duration(near / 1e6)} behind"
    farthest = "" if share == 1 or worst == near else f"; the farthest is {short_duration(worst / 1e6)} behind"
    text.delay = Choice(m.format_duration(delay), f"{whole} are {behind} the newest before them in {where}{farthest}")
    rest = max(_HOUR, next((bound for bound in BOUNDS if bound >= worst - delay), BOUNDS[-1]))
    text.lateness = Choice(m.format_duration(rest), "how long late records still revise their row")


def _with_time(graph: m.Graph, time: m.EventTime) -> m.Graph:
    return graph.map_nodes(lambda node: replace(node, time=time) if isinstance(node, m.SourceNode) else node)


def _parse(text: PipelineText) -> m.Graph:
    return parse_pipeline(text.render(), "pipeline.yaml")
