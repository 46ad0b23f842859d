"""The pipelines of the net that only Python can say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa
from tests.net.adapter import TEXT

import windrow as wr

Record = Mapping[str, Any]


def decoded(**more: str) -> Any:  # noqa: ANN401 - a stage of the fluent form
    return wr.log("log").decode(
        user="string", t="timestamp_micros", amount="decimal(12,2)", n="long", flag="boolean", url="string", **more
    )


by_user = decoded().event_time("t", delay="1m").key_by("user")
sink = wr.sqlite("net.db", table="net", decimals="text")


def few(pane: wr.PaneSoFar) -> bool:
    return pane.since >= 2 + pane.panes and pane.records < 20


def on_the_minute(pane: wr.PaneSoFar) -> bool:
    return pane.event_time % 60_000_000 == 0 or pane.event_time - pane.window_start < 10_000_000


def results(windowed: Any) -> Any:  # noqa: ANN401
    return windowed.aggregate(total=wr.sum("amount"), records=wr.count(), last=wr.last("n"))


when = results(by_user.window(wr.tumbling("5m"))).emit(early=wr.when(few), lateness="10m").to(sink, key_groups=2)
when_hopping = (
    results(by_user.window(wr.hopping("6m", slide="3m")))
    .emit(early=wr.any_of(wr.when(on_the_minute), wr.every("2m")), lateness="5m", late="batch")
    .to(sink, key_groups=2)
)
running = by_user.running(total=wr.sum("amount"), n=wr.count(), top=wr.top_k("url", 2)).to(sink, key_groups=2)


class Alternating:
    """The sum of amounts, those of flagged records taken off, and the longest URL."""

    returns = TEXT

    def zero(self) -> list[Any]:
        return [0, ""]

    def step(self, state: list[Any], columns: Mapping[str, pa.Array]) -> list[Any]:
        total, longest = state
        for n, flag, url in zip(*(columns[name].to_pylist() for name in ("n", "flag", "url")), strict=True):
            total += -n if flag else n
            longest = max(longest, url, key=lambda text: (len(text), text))
        return [total, longest]

    def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
        return [one[0] + other[0], max(one[1], other[1], key=lambda text: (len(text), text))]

    def finish(self, state: list[Any]) -> str:
        return f"{state[0]} {state[1]}"


def customs(windowed: Any) -> Any:  # noqa: ANN401
    return windowed.aggregate(
        own=wr.custom(Alternating(), "n", "flag", "url"),
        positive=wr.custom(Alternating(), "n", "flag", "url", where="n > 0"),
        records=wr.count(),
    )


custom = customs(by_user.window(wr.tumbling("5m"))).emit(lateness="10m").to(sink, key_groups=2)
custom_sessions = customs(by_user.window(wr.session("150s"))).emit(lateness="10m").to(sink, key_groups=2)


def count(ctx: wr.Context, record: Record) -> None:
    seen = ctx.state.seen.get(0) + 1
    ctx.state.seen.set(seen)
    ctx.emit(seen=seen, n=record["n"])


def count_by_two(ctx: wr.Context, record: Record) -> None:
    seen = ctx.state.seen.get(0) + 2
    ctx.state.seen.set(seen)
    ctx.emit(seen=seen, n=-record["n"])


COUNTED: dict[str, Any] = {"state": {"seen": wr.value_state("long")}, "returns": {"seen": "long", "n": "long"}}

counts = by_user.process(count, **COUNTED).to(sink, key_groups=2)
counts_in_order = by_user.process(count, order="event_time", **COUNTED).to(sink, key_groups=2)
doubles_in_order = by_user.process(count_by_two, order="event_time", **COUNTED).to(sink, key_groups=2)


def remember(ctx: wr.Context, record: Record) -> None:
    state = ctx.state
    if record["flag"]:
        state.amounts.append(record["amount"])
    if record["n"] % 7 == 0:
        state.amounts.clear()
    state.urls.set(record["url"], record["n"])
    if record["n"] < 0:
        state.urls.delete("/")
    if record["n"] > 600:
        state.last.clear()
    if record["n"] % 5 == 0:
        state.seldom.set(record["n"])
    before = state.last.get()
    state.last.set(record["t"])
    ctx.emit(
        total=sum(state.amounts.get(), start=0 * record["amount"]),
        amounts=len(state.amounts),
        urls=" ".join(f"{url}={n}" for url, n in state.urls.items()),
        before=before,
        seldom=state.seldom.get(),
        watermark=ctx.watermark,
    )


REMEMBERED: dict[str, Any] = {
    "state": {
        "last": wr.value_state("timestamp"),
        "seldom": wr.value_state("long"),
        "amounts": wr.list_state("decimal(12,2)"),
        "urls": wr.map_state("string", "long"),
    },
    "returns": {
        "total": "decimal(20,2)",
        "amounts": "long",
        "urls": "string",
        "before": "timestamp",
        "seldom": "long",
        "watermark": "timestamp",
    },
}

states = by_user.process(remember, **REMEMBERED).to(sink, key_groups=2)
states_ttl = by_user.process(remember, ttl="12m", **REMEMBERED).to(sink, key_groups=2)
states_ttl_groups = by_user.process(remember, ttl="12m", **REMEMBERED).to(sink, key_groups=5)
states_ttl_in_order = by_user.process(remember, ttl="12m", order="event_time", **REMEMBERED).to(sink, key_groups=2)


def set_timers(ctx: wr.Context, record: Record) -> None:
    ctx.state.total.set(ctx.state.total.get(0 * record["amount"]) + record["amount"])
    ctx.timer(at=record["t"] + timedelta(minutes=2), name="quiet")
    if record["n"] > 300:
        ctx.timer(at=record["t"] - timedelta(minutes=1), name="passed")
    if record["n"] < -100:
        ctx.cancel("quiet")
    ctx.emit(what="record", total=ctx.state.total.get(), at=ctx.event_time)


def ring(ctx: wr.Context, timer: wr.Timer) -> None:
    ctx.emit(what=timer.name, total=ctx.state.total.get(), at=timer.at)
    if timer.name == "quiet":
        ctx.timer(at=timer.at + timedelta(minutes=5), name="gone")
    elif timer.name == "gone":
        ctx.state.total.clear()


TIMED: dict[str, Any] = {
    "state": {"total": wr.value_state("decimal(12,2)")},
    "returns": {"what": "string", "total": "decimal(12,2)", "at": "timestamp"},
    "on_timer": ring,
}
WIDER: dict[str, Any] = TIMED | {
    "state": {"total": wr.value_state("decimal(20,4)")},
    "returns": {"what": "string", "total": "decimal(20,4)", "at": "timestamp"},
}

timers = by_user.process(set_timers, **TIMED).to(sink, key_groups=2)
timers_wider = by_user.process(set_timers, **WIDER).to(sink, key_groups=2)
timers_in_order = by_user.process(set_timers, order="event_time", ttl="30m", **TIMED).to(sink, key_groups=2)
timers_held = by_user.process(set_timers, order="event_time", **TIMED).to(sink, key_groups=2, at_end="hold")
timers_idle = (
    decoded()
    .event_time("t", delay="30s", idle="2m", all_idle="advance")
    .key_by("user")
    .process(set_timers, ttl="10m", **TIMED)
    .to(sink, key_groups=2)
)
punctuated = (
    decoded(w="timestamp_micros?")
    .event_time("t", punctuated="w")
    .key_by("user")
    .process(set_timers, order="event_time", **TIMED)
    .to(sink, key_groups=2)
)


def set_processing_timer(ctx: wr.Context, record: Record) -> None:
    ctx.state.total.set(record["amount"])
    ctx.processing_timer(after="2m", name="soon")
    ctx.emit(what="record", total=record["amount"], at=ctx.event_time)


def ring_by_clock(ctx: wr.Context, timer: wr.Timer) -> None:
    ctx.emit(what=timer.name, total=ctx.state.total.get(), at=timer.at)


processing_timers = by_user.process(
    set_processing_timer, **(TIMED | {"on_processing_timer": ring_by_clock}), ttl="20m"
).to(sink, key_groups=2)


def visited(ctx: wr.Context, record: Record) -> None:
    ctx.state.urls.set(record["url"], record["t"])
    ctx.emit(urls=len(ctx.state.urls))


distinct_urls = by_user.process(
    visited,
    state={"urls": wr.map_state("string", "timestamp")},
    ttl="1h",
    returns={"urls": "long"},
    order="event_time",
).to(sink, key_groups=2)
