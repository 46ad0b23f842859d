"""Random pipelines, logs and cuts, small enough to shrink to a story."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from hypothesis import strategies as st
from tests.properties.aggregates import NUMBERS, aggregates
from tests.properties.emits import cumulates, emits, hops, sizes
from tests.short_forms import Pipeline

from windrow.engine.tick import PlayStep, Tick
from windrow.model import (
    Adaptive,
    BooleanType,
    Calendar,
    DataType,
    DecimalType,
    Decode,
    Delay,
    DelayByPartition,
    Derive,
    EventTime,
    Field,
    Global,
    LogSource,
    LongType,
    Punctuated,
    Session,
    SqliteSink,
    StringType,
    TimestampType,
    Watermark,
    Window,
)
from windrow.testing.transcript.run import Cut, cuts

SECOND = 1_000_000
HOUR = 3600 * SECOND
UNITS: tuple[Literal["seconds", "millis", "micros"], ...] = ("seconds", "millis", "micros")
MICROS = {"seconds": SECOND, "millis": 1_000, "micros": 1}
BASES = {
    "a day": 1_767_261_600 * SECOND,  # 2026-01-01 10:00 UTC
    "the epoch": 0,
    "summer time": 1_774_742_400 * SECOND,  # 2026-03-29 00:00 UTC
    "winter time": 1_792_886_400 * SECOND,  # 2026-10-25 00:00 UTC
    "long ago": -62_135_596_800 * SECOND + 400 * 24 * HOUR,
}
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia"]

GARBAGE = [b"", b"{", b"[1]", b"7", b"null", b"\xff", b'{"t": NaN}', b"{} {}", b'{"t": "\\ud800"}']
SPOILT: list[Any] = [None, "x", True, [1], {}, 1.5, 10**30, "1", "1e0", "a\0b", ...]
"""What a field may hold that it mostly should not; `...` is no field at all."""

KEYS: dict[str, tuple[DataType, list[Any]]] = {
    "user": (StringType(), ["A", "B", "\u00c9", "", "a b"]),
    "shop": (LongType(), [0, 1, -(2**63), 2**63 - 1]),
    "on": (BooleanType(), [True, False]),
    "price": (DecimalType(12, 2), [Decimal("0.10"), Decimal("-3.00"), Decimal("9999999999.99")]),
}
DERIVED = {
    "rest": "n % 2",
    "some": "nullif(n % 3, 0)",
    "day": "date_trunc('day', t)",
    "name": "CASE WHEN n >= 0 THEN amount::VARCHAR || weight::VARCHAR ELSE 'low' END",
}


@dataclass(frozen=True)
class Case:
    """A pipeline, and a log in steps; `keyed` says that every key is in one partition, and `seed` how it is cut."""

    pipeline: Pipeline
    feed: list[PlayStep]
    keyed: bool
    seed: int

    @property
    def recut(self) -> Cut:
        """The same log all in one step, one record a step, or in random steps."""
        return list(cuts(self.feed, 1, self.seed))[self.seed % 3]

    @property
    def partitions(self) -> list[int]:
        """The partitions that have records."""
        return sorted({partition for step in self.feed if not isinstance(step, Tick) for partition, _ in step})

    @property
    def one_order(self) -> bool:
        """Whether the changes of each window and key come in one order, whatever the steps are."""
        is_keyed = self.keyed and bool(self.pipeline.key)
        return len(self.partitions) <= 1 or (is_keyed and not isinstance(self.pipeline.window, Session))


@dataclass(frozen=True)
class Scale:
    """Where a case's records are: `span` ticks around a base (both in microseconds), and a few keys."""

    base: int
    tick: int
    unit: int
    span: int
    keys: list[dict[str, Any]]


@st.composite
def cases(draw: st.DrawFn, *, most_records: int = 30, most_partitions: int = 4) -> Case:
    """Draw a pipeline and up to `most_records` records in up to `most_partitions` partitions."""
    unit = draw(st.sampled_from(UNITS))
    calendar = draw(st.integers(0, 7)) == 0
    tick = 5 * HOUR if calendar else MICROS[unit]
    keyed = draw(st.booleans())
    partitions = draw(st.integers(1, most_partitions))
    ticking = draw(st.integers(0, 3)) == 0
    one = keyed or partitions == 1
    least_fields = 1 if keyed and partitions > 1 else 0
    pipeline = draw(
        pipelines(TimestampType(unit), tick, calendar=calendar, one=one, ticking=ticking, least_fields=least_fields)
    )
    key = st.fixed_dictionaries({name: st.sampled_from(KEYS[name][1]) for name in pipeline.key if name in KEYS})
    scale = Scale(
        base=BASES[draw(st.sampled_from(list(BASES) if calendar else ["a day", "a day", "the epoch"]))],
        tick=tick,
        unit=MICROS[unit],
        span=draw(st.sampled_from([4, 8, 12, 40])),
        keys=draw(st.lists(key, min_size=1, max_size=5)),
    )
    least = draw(st.sampled_from([1, most_records // 4, most_records // 2]))
    entry = st.tuples(st.integers(0, partitions - 1), records(pipeline, scale, keyed=keyed), st.integers(0, 2))
    feed: list[PlayStep] = []
    now = 0
    for partition, (number, value), more in draw(st.lists(entry, min_size=least, max_size=most_records)):
        if ticking and draw(st.integers(0, 2)) == 0:
            now += draw(st.integers(0, 3)) * SECOND
            feed.append(Tick(scale.base + now))
        record = (number % partitions if keyed else partition, value)
        if more and feed and not isinstance(feed[-1], Tick):
            feed[-1] = [*feed[-1], record]
        else:
            feed.append([record])
    return Case(pipeline, feed, keyed, draw(st.integers(0, 999)))


@st.composite
def pipelines(
    draw: st.DrawFn,
    time: TimestampType,
    tick: int,
    *,
    calendar: bool,
    one: bool,
    ticking: bool,
    least_fields: int = 0,
) -> Pipeline:
    """Draw a pipeline with a key of up to two fields and one to four aggregates; lengths are a few ticks.

    `one` says that every key lives in one partition, `ticking` that there is processing time.
    """
    count = draw(st.sampled_from([1, 1, 2, 2, least_fields]))
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=count, max_size=count, unique=True))
    derive = draw(st.lists(st.sampled_from(sorted(DERIVED)), max_size=2, unique=True))
    fields = [Field("t", time)]
    fields += [Field(name, KEYS[name][0]) for name in keys]
    # of numbers that a record may lack, or have under an old name, too
    alias = [(), (), ("old",)]
    fields += [
        Field(name, type_, draw(st.integers(0, 2)) == 0, tuple(f"{one}_{name}" for one in draw(st.sampled_from(alias))))
        for name, (type_, _) in NUMBERS.items()
    ]
    delays: list[Watermark] = [Delay(ticks * tick) for ticks in (0, 0, 1, 2, 3, 5, 8)]
    by_partition = DelayByPartition(tick, ((0, 5 * tick), (2, 0)))
    watermark = draw(
        st.sampled_from([Punctuated("w"), Punctuated("w"), Adaptive(0.9, 0, 2 * tick), by_partition, *delays])
    )
    sent = "s" if draw(st.integers(0, 9)) == 0 else None
    fields += [Field("w", time)] if isinstance(watermark, Punctuated) else []
    fields += [Field("s", time)] if sent else []
    future = draw(st.none() | st.none() | st.integers(0, 40).map(lambda ticks: ticks * tick))
    is_guarded = not isinstance(watermark, Punctuated) and draw(st.booleans())
    jump = draw(st.sampled_from([0, 1, 3, 8])) * tick if is_guarded else None
    idle = draw(st.sampled_from([None, SECOND, 4 * SECOND])) if ticking else None
    window = draw(windows(tick, calendar=calendar))
    return Pipeline(
        name="random",
        source=LogSource("random"),
        decode=Decode(tuple(draw(st.permutations(fields)))),
        time=EventTime(
            "t",
            watermark,
            future,
            sent,
            idle=idle,
            all_idle="hold" if idle is None else draw(st.sampled_from(["hold", "advance"])),
            jump=jump,
        ),
        # a derived key may be in several partitions
        key=(*keys, *(derive if not one and draw(st.booleans()) else [])),
        window=window,
        aggregates=draw(aggregates(derive)),
        emit=draw(emits(window, tick, one=one, ticking=ticking)),
        sink=SqliteSink("random.db", "random"),
        key_groups=draw(st.sampled_from([1, 1, 1, 2, 3])),
        derive=tuple(Derive(name, DERIVED[name]) for name in derive),
    )


@st.composite
def windows(draw: st.DrawFn, tick: int, *, calendar: bool) -> Window:
    """Draw a window of a few ticks, or of a few days."""
    if calendar:
        unit: Literal["day", "week", "month"] = draw(st.sampled_from(["day", "day", "week", "month"]))
        offset = draw(st.sampled_from([0, 0, HOUR, 5 * HOUR // 2]))
        return Calendar(draw(st.integers(1, 3)), unit, draw(st.sampled_from(ZONES)), offset)
    sessions = st.integers(1, 6).map(lambda gap: Session(gap * tick))
    return draw(sizes(tick) | hops(tick) | cumulates(tick) | sessions | st.just(Global()))


@st.composite
def records(draw: st.DrawFn, pipeline: Pipeline, scale: Scale, *, keyed: bool) -> tuple[int, bytes]:
    """Draw a record with the number of its key: mostly good, some marks, some that are not good."""
    number = draw(st.integers(0, len(scale.keys) - 1))
    # equal keys have equal numbers
    number = scale.keys.index(scale.keys[number])
    kind = draw(st.sampled_from(["good"] * 14 + ["mark"] * 3 + ["spoilt", "garbage"]))
    if kind == "garbage":
        return number, draw(st.sampled_from(GARBAGE))
    if kind == "mark" and isinstance(pipeline.time.watermark, Punctuated):
        return number, _json({"w": draw(_time(scale))})
    fields: dict[str, Any] = {"t": draw(_time(scale))}
    if isinstance(pipeline.time.watermark, Punctuated) and draw(st.integers(0, 4)) == 0:
        fields["w"] = draw(_time(scale))
    if pipeline.time.sent is not None:
        fields["s"] = draw(_time(scale))
    for name, (_, numbers) in NUMBERS.items():
        fields |= draw(_number(pipeline.decode.field(name), numbers))
    if draw(st.integers(0, 3)) == 0 or (pipeline.time.sent is not None and draw(st.integers(0, 9)) > 0):
        fields["_log_time"] = (scale.base + draw(st.integers(-20, 40)) * scale.tick) // 1000
    spoilt = sorted(fields) if keyed else sorted({*fields, *scale.keys[number]})
    fields.update(scale.keys[number])
    if kind == "spoilt":
        name = draw(st.sampled_from(spoilt))
        fields[name] = draw(st.sampled_from(SPOILT))
        if fields[name] is ...:
            del fields[name]
    return number, _json(fields)


@st.composite
def _number(draw: st.DrawFn, field: Field, numbers: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Draw what a record has of a field: a value under one of its names, nothing or null, or two values."""
    if field.optional and draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([{}, {field.name: None}, dict.fromkeys((field.name, *field.alias))]))
    found = {draw(st.sampled_from((field.name, *field.alias))): draw(numbers)}
    if field.alias and draw(st.integers(0, 5)) == 0:
        same = draw(st.just(next(iter(found.values()))) | numbers)
        found |= {name: same for name in (field.name, *field.alias) if name not in found}
    return found


def _time(scale: Scale) -> st.SearchStrategy[int]:
    """Draw a time in the field's unit, some ticks from the base; around the epoch some are before it."""
    ticks = st.integers(-scale.span // 2, scale.span)
    jitter = st.just(0) if scale.tick == scale.unit else st.sampled_from([0, 0, -1, 1, 12 * HOUR // 5 // scale.unit])
    return st.builds(lambda ticks, jitter: (scale.base + ticks * scale.tick) // scale.unit + jitter, ticks, jitter)


def _json(fields: dict[str, Any]) -> bytes:
    """Write an object; no digit of a decimal goes through a float."""
    parts = [
        f"{json.dumps(name)}: {value if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)}"
        for name, value in fields.items()
    ]
    return f"{{{', '.join(parts)}}}".encode()
