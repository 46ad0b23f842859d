"""Checks of alerts: their limits and receivers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any
from urllib.parse import urlsplit

from windrow import model as m
from windrow.declare.findings import Finding, error, warning
from windrow.model.references import fill_placeholders, is_reference, mask_arguments

_SHORTEST = 1_000_000
"""The interval at which a run evaluates its alerts."""
_NUMBERS = {"share", "times", "records"}
"""Limits that are not durations."""


def alert_limits(graph: m.Graph) -> Iterator[Finding]:
    """Check that the limits of alerts are within bounds, and that the webhook is a URL."""
    alerts = graph.alerts
    for name, limit in alerts.limits.items():
        for field in fields(limit):
            where = f"alerts.{name}.{'for' if field.name == 'span' else field.name}"
            yield from _limit(where, field.name, getattr(limit, field.name))
    savepoint = alerts.checkpoint.savepoint if isinstance(alerts.checkpoint, m.CheckpointLimit) else None
    if graph.mode == "realtime" and savepoint is not None:
        yield error(
            "alerts.checkpoint.savepoint", "applies to savepoints, which a realtime run does not have; remove it"
        )
    yield from _never_raised(graph)
    yield from _receivers(graph)


def _never_raised(graph: m.Graph) -> Iterator[Finding]:
    """Warn about configured alerts that can never be raised, because the runs do not measure their figures."""
    limits, usual = graph.alerts.limits, m.DEFAULT_ALERTS.limits
    changed = [name for name, limit in limits.items() if limit != usual.get(name)]
    is_realtime = graph.mode == "realtime"
    for name in changed:
        if is_realtime and name in m.COUNTING_ALERTS:
            yield warning(f"alerts.{name}", "is never raised: a realtime run only reports offsets")
    has_times = any(isinstance(source.source.records, m.KafkaSource) for source in graph.sources)
    if "latency" in changed and not (has_times or is_realtime):
        message = "is never raised: only records in Kafka have the log timestamp that it needs"
        yield warning("alerts.latency", message)
    lag = limits.get("lag")
    if "lag" in changed and isinstance(lag, m.LagLimit) and lag.records is None and (is_realtime or not has_times):
        of = "a realtime run" if is_realtime else "a log other than Kafka"
        yield warning("alerts.lag", f"is never raised: the lag of {of} is not measured in time; set `records` too")


def _limit(where: str, kind: str, value: Any) -> Iterator[Finding]:  # noqa: ANN401 - a number or None
    if kind == "share" and not 0 < value < 1:
        yield error(
            where, f"must be more than 0 and less than 1, not {value:g}: other shares are always or never exceeded"
        )
    if kind == "times" and value <= 1:
        yield error(where, f"{value:g} times the usual share is not a spike: give more than 1, such as 3")
    if kind == "records" and value is not None and value < 1:
        yield error(where, f"{value} is always exceeded: give at least 1")
    if kind not in _NUMBERS and value is not None:
        least = _SHORTEST if kind == "span" else 1
        if value < least:
            yield error(where, f"{m.format_duration(value)} is too short: give at least {m.format_duration(least)}")
        elif value > m.MAX_DURATION:
            yield error(where, "is longer than a hundred years")


def _receivers(graph: m.Graph) -> Iterator[Finding]:
    """Check the command and the webhook. Messages do not quote the webhook's URL, because it may hold a secret."""
    match mask_arguments(graph.alerts.command):
        case (text,) if len(words := text.split()) > 1 and "/" not in words[0]:
            message = (
                f"{text!r} is one program name with spaces, because no shell splits it; "
                f"did you mean [{', '.join(words)}]?"
            )
            yield warning("alerts.command", message)
    url = graph.alerts.webhook
    if url is None or is_reference(url):
        return
    try:
        parts = urlsplit(fill_placeholders(url))
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_url = False
    if not is_url or any(letter.isspace() for letter in url):
        yield error(
            "alerts.webhook", "must be a URL such as https://hooks.example.com/windrow, or refer to one: ${NAME}"
        )
