"""Random pipelines, logs and cuts, small enough to shrink to a story."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from hypothesis import strategies as st

from windrow.model import (
    Aggregate,
    Avg,
    BooleanType,
    Count,
    DataType,
    DecimalType,
    Decode,
    Delay,
    DoubleType,
    Emit,
    EventTime,
    Field,
    Function,
    LogSource,
    LongType,
    Max,
    Min,
    Pipeline,
    Punctuated,
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
    Tumbling,
    Watermark,
)

SECOND = 1_000_000
BASE = 1_767_261_600 * SECOND
"""2026-01-01 10:00 UTC; windows and times are near it, so that boundaries are hit often."""
UNITS: tuple[Literal["seconds", "millis", "micros"], ...] = ("seconds", "millis", "micros")
MICROS = {"seconds": SECOND, "millis": 1_000, "micros": 1}

Steps = list[list[tuple[int, bytes]]]

GARBAGE = [b"", b"{", b"[1]", b"7", b"null", b"\xff", b'{"t": NaN}', b"{} {}", b'{"t": "\\ud800"}']
SPOILT: list[Any] = [None, "x", True, [1], {}, 1.5, 10**30, "1", "1e0", "a\0b", ...]
"""What a field may hold that it mostly should not; `...` is no field at all."""

KEYS: dict[str, tuple[DataType, list[Any]]] = {
    "user": (StringType(), ["A", "B", "\u00c9", "", "a b"]),
    "shop": (LongType(), [0, 1, -(2**63), 2**63 - 1]),
    "on": (BooleanType(), [True, False]),
    "price": (DecimalType(12, 2), [Decimal("0.10"), Decimal("-3.00"), Decimal("9999999999.99")]),
}
NUMBERS: dict[str, tuple[DataType, st.SearchStrategy[Any]]] = {
    "n": (LongType(), st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)),
    "amount": (
        DecimalType(12, 2),
        st.decimals(allow_nan=False, places=2, min_value=-10, max_value=10)
        | st.decimals(allow_nan=False, places=2, min_value="-9999999999.99", max_value="9999999999.99"),
    ),
    # quarters of small numbers: their sums are exact in any order
    "weight": (DoubleType(), st.integers(-4000, 4000).map(lambda quarters: quarters / 4)),
}


@dataclass(frozen=True)
class Case:
    """A pipeline, a log in steps, the same log in other steps, and all in one step or one record a step."""

    pipeline: Pipeline
    steps: Steps
    recut: Steps
    extreme: Steps

    @property
    def log(self) -> dict[int, list[bytes]]:
        """The values of each partition, by offset."""
        log: dict[int, list[bytes]] = {}
        for step in self.steps:
            for partition, value in step:
                log.setdefault(partition, []).append(value)
        return log


@dataclass(frozen=True)
class Scale:
    """Where a case's records are: `span` ticks around a base (both in microseconds), and a few keys."""

    base: int
    tick: int
    span: int
    keys: list[dict[str, Any]]


@st.composite
def cases(draw: st.DrawFn, *, most_records: int = 30, most_partitions: int = 4) -> Case:
    """Draw a pipeline and up to `most_records` records in up to `most_partitions` partitions."""
    unit = draw(st.sampled_from(UNITS))
    pipeline = draw(pipelines(TimestampType(unit), MICROS[unit]))
    key = st.fixed_dictionaries({name: st.sampled_from(KEYS[name][1]) for name in pipeline.key})
    scale = Scale(
        base=draw(st.sampled_from([BASE, BASE, 0])),
        tick=MICROS[unit],
        span=draw(st.sampled_from([4, 8, 12, 40])),
        keys=draw(st.lists(key, min_size=1, max_size=5)),
    )
    partition = st.integers(0, draw(st.integers(0, most_partitions - 1)))
    entry = st.tuples(partition, records(pipeline, scale), st.integers(0, 2))
    least = draw(st.sampled_from([1, most_records // 4, most_records // 2]))
    entries = draw(st.lists(entry, min_size=least, max_size=most_records))
    steps = _cut([(number, value) for number, value, _ in entries], [more > 0 for *_, more in entries])
    turns = draw(st.permutations([number for number, *_ in entries]))
    values = {number: iter([value for n, value, _ in entries if n == number]) for number in turns}
    recut = [(number, next(values[number])) for number in turns]
    joins = draw(st.lists(st.booleans(), min_size=len(turns), max_size=len(turns)))
    extreme = _cut(recut, [draw(st.booleans())] * len(turns))
    return Case(pipeline, steps, _cut(recut, joins), extreme)


def _cut(log: list[tuple[int, bytes]], joins: list[bool]) -> Steps:
    """Cut a log into steps: a record that joins is in the step of the one before it."""
    steps: Steps = []
    for record, join in zip(log, joins, strict=True):
        if join and steps:
            steps[-1].append(record)
        else:
            steps.append([record])
    return steps


@st.composite
def pipelines(draw: st.DrawFn, time: TimestampType, tick: int) -> Pipeline:
    """Draw a pipeline with one or two key fields and one to four aggregates; lengths are a few ticks."""
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2, unique=True))
    fields = [Field("t", time)]
    fields += [Field(name, KEYS[name][0]) for name in keys]
    fields += [Field(name, type_) for name, (type_, _) in NUMBERS.items()]
    delays: list[Watermark] = [Delay(ticks * tick) for ticks in (0, 0, 1, 2, 3, 5, 8)]
    watermark = draw(st.sampled_from([Punctuated("w"), Punctuated("w"), *delays]))
    if isinstance(watermark, Punctuated):
        fields.append(Field("w", time))
    future = draw(st.none() | st.none() | st.integers(0, 40).map(lambda ticks: ticks * tick))
    functions = draw(st.lists(_functions(), min_size=1, max_size=4))
    return Pipeline(
        name="random",
        source=LogSource("random"),
        decode=Decode(tuple(draw(st.permutations(fields)))),
        time=EventTime("t", watermark, future),
        key=tuple(keys),
        window=Tumbling(draw(st.sampled_from([1, 2, 5, 7])) * tick, draw(st.integers(0, 10)) * tick),
        aggregates=tuple(Aggregate(f"a{number}", function) for number, function in enumerate(functions)),
        emit=Emit(
            lateness=draw(st.sampled_from([0, 1, 3, 10, 30, 60])) * tick,
            late=draw(st.sampled_from(["each", "each", "batch"])),
            at_end=draw(st.sampled_from(["fire", "fire", "hold"])),
        ),
        sink=SqliteSink("random.db", "random"),
        key_groups=draw(st.sampled_from([1, 2, 3])),
    )


def _functions() -> st.SearchStrategy[Function]:
    fields = st.sampled_from(sorted(NUMBERS))
    return st.just(Count()) | fields.map(Sum) | fields.map(Min) | fields.map(Max) | fields.map(Avg)


@st.composite
def records(draw: st.DrawFn, pipeline: Pipeline, scale: Scale) -> bytes:
    """Draw a record: mostly good, some marks, some that are not good."""
    kind = draw(st.sampled_from(["good"] * 14 + ["mark"] * 3 + ["spoilt", "garbage"]))
    if kind == "garbage":
        return draw(st.sampled_from(GARBAGE))
    if kind == "mark" and isinstance(pipeline.time.watermark, Punctuated):
        return _json({"w": draw(_time(scale))})
    fields: dict[str, Any] = {"t": draw(_time(scale))}
    if isinstance(pipeline.time.watermark, Punctuated) and draw(st.integers(0, 4)) == 0:
        fields["w"] = draw(_time(scale))
    fields.update(draw(st.sampled_from(scale.keys)))
    for name, (_, numbers) in NUMBERS.items():
        fields[name] = draw(numbers)
    if draw(st.integers(0, 3)) == 0:
        fields["_log_time"] = scale.base // 1000 + draw(st.integers(-20, 40)) * max(scale.tick // 1000, 1)
    if kind == "spoilt":
        name = draw(st.sampled_from(sorted(fields)))
        fields[name] = draw(st.sampled_from(SPOILT))
        if fields[name] is ...:
            del fields[name]
    return _json(fields)


def _time(scale: Scale) -> st.SearchStrategy[int]:
    """Draw a time in whole ticks since the epoch; around the epoch some are before it."""
    return st.integers(-scale.span // 2, scale.span).map(lambda ticks: scale.base // scale.tick + ticks)


def _json(fields: dict[str, Any]) -> bytes:
    """Write an object; no digit of a decimal goes through a float."""
    parts = [
        f"{json.dumps(name)}: {value if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)}"
        for name, value in fields.items()
    ]
    return f"{{{', '.join(parts)}}}".encode()
