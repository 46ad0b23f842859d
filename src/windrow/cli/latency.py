"""`windrow latency`: what the changes in a topic say about when they were made."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import click

from windrow.errors import SourceError
from windrow.model import KafkaSource
from windrow.terminal.common import DIFFERENT, OK, interruptible, json_option, print_json
from windrow.terminal.options import DURATION

STAGES = ("event", "logged", "read", "decided", "appended", "arrived")
"""The stages of a change, in order: each is a time in microseconds."""
_OPEN_SECONDS = 10.0
"""How long changes at the end of a topic are waited for whose transaction is not ended."""
_QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
_HELP = {
    "servers": "`HOST:PORT` of the brokers, or several separated by commas.",
    "option": "Connection option, by its name in Kafka's clients; may be repeated.",
    "records": "How many of the topic's last records to look at.",
    "seconds": "Follow the topic for so long instead, and measure the arrival here too.",
    "uncommitted": "With --seconds, do not wait for the transactions of what is written.",
}


@click.command("latency")
@click.argument("topic", metavar="TOPIC")
@click.option("--servers", required=True, help=_HELP["servers"])
@click.option("--option", "options", metavar="NAME=VALUE", multiple=True, help=_HELP["option"])
@click.option("--records", type=click.IntRange(min=1), default=10_000, show_default=True, help=_HELP["records"])
@click.option("--seconds", type=DURATION, metavar="DURATION", help=_HELP["seconds"])
@click.option("--uncommitted", is_flag=True, help=_HELP["uncommitted"])
@json_option
def command(
    *,
    topic: str,
    servers: str,
    options: tuple[str, ...],
    records: int,
    seconds: int | None,
    uncommitted: bool,
    as_json: bool,
) -> int:
    """Print how long changes took to their topic, by stage, in milliseconds.

    TOPIC is written by a realtime run, which stamps each change with the time of its event, when its record was logged,
    when it was read, and when it was decided; the broker says when it was appended. Of a poll with several records, the
    stamps are those of the first. The exit code is 1 if there is no such change.
    """
    pairs = tuple((name, value) for name, _, value in (option.partition("=") for option in options))
    source = KafkaSource(servers, topic, options=pairs)
    with interruptible():
        stamps = list(_follow(source, seconds, uncommitted) if seconds is not None else _last(source, records))
    found = latencies(stamps)
    if as_json:
        print_json({"topic": topic, "records": len(stamps), "milliseconds": found})
    else:
        click.echo(f"{topic}: {len(stamps):,} changes with stamps")
        for line in latency_lines(found):
            click.echo(line)
    return OK if stamps else DIFFERENT


def last_latencies(source: KafkaSource, records: int = 10_000) -> tuple[int, dict[str, dict[str, float]]]:
    """Return how many of a topic's last changes have stamps, and their `latencies`."""
    stamps = list(_last(source, records))
    return len(stamps), latencies(stamps)


def latencies(stamps: Sequence[Mapping[str, int]]) -> dict[str, dict[str, float]]:
    """Return p50, p95, p99 and max of each stage since the one before, and of all since the record was logged."""
    spans: dict[str, list[int]] = {}
    for one in stamps:
        there = [stage for stage in STAGES if stage in one]
        for before, after in pairwise(there):
            spans.setdefault(f"{before} to {after}", []).append(one[after] - one[before])
        first = "logged" if "logged" in one else there[0]
        spans.setdefault(f"in all, since {first}", []).append(one[there[-1]] - one[first])
    return {name: {label: _quantile(values, q) for label, q in _QUANTILES} for name, values in spans.items()}


def _quantile(values: list[int], q: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * q))] / 1000, 1)


def latency_lines(found: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield latencies as a table."""
    width = max([len(name) for name in found], default=0)
    if found:
        yield " " * width + "".join(f"{label:>10}" for label, _ in _QUANTILES)
    for name, values in sorted(found.items(), key=lambda pair: pair[0].startswith("in all")):
        yield f"{name:{width}}" + "".join(f"{value:10,.1f}" for value in values.values())


def _last(source: KafkaSource, records: int) -> Iterator[dict[str, int]]:
    """Yield the stamps of the last records of a topic."""
    from windrow.connectors.kafka.source import log_ends, preflight  # noqa: PLC0415 - a broker only where one is asked

    places = preflight(source)
    ends = log_ends(source)
    share = -(-records // max(1, len(places)))
    begins = {number: max(first, end - share) for number, (first, end) in places.items()}
    left = {number for number, begin in begins.items() if begin < ends[number]}
    consumer = _consumer(source, begins, isolation="read_committed")
    deadline = time.monotonic() + _OPEN_SECONDS
    while left and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                yield from _stamps(message)
                continue
            number = _ended(message, source)
            # a reader of committed changes is said to be at the end before an open transaction, too
            if message.offset() >= ends[number]:
                left.discard(number)
    consumer.close()


def _follow(source: KafkaSource, micros: int, uncommitted: bool) -> Iterator[dict[str, int]]:  # noqa: FBT001 - an option
    """Yield the stamps of what comes for so long, with its arrival."""
    from windrow.connectors.kafka.source import preflight  # noqa: PLC0415 - as above

    ends = {number: end for number, (_, end) in preflight(source).items()}
    consumer = _consumer(source, ends, isolation="read_uncommitted" if uncommitted else "read_committed")
    deadline = time.monotonic() + micros / 1_000_000
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            _ended(message, source)
            continue
        for stamps in _stamps(message):
            yield {**stamps, "arrived": time.time_ns() // 1000}
    consumer.close()


def _consumer(source: KafkaSource, begins: Mapping[int, int], isolation: str) -> Any:  # noqa: ANN401 - librdkafka's, which is loaded here
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - as above

    from windrow.connectors.kafka.client import client_of  # noqa: PLC0415 - the same
    from windrow.connectors.kafka.options import client_options  # noqa: PLC0415 - the same

    meaning = {"group.id": "windrow-latency", "enable.auto.commit": False, "enable.partition.eof": True}
    settings = {"fetch.wait.max.ms": 5, **client_options(source), **meaning, "isolation.level": isolation}
    consumer = client_of(Consumer, source.topic, settings)
    consumer.assign([TopicPartition(source.topic, number, at) for number, at in begins.items()])
    return consumer


def _ended(message: Any, source: KafkaSource) -> int:  # noqa: ANN401 - librdkafka's
    """Return the partition of which a message says that it ends; raise SourceError for another fault."""
    from confluent_kafka import KafkaError  # noqa: PLC0415 - as above

    if message.error().code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name
        msg = f"topic {source.topic} at {source.servers}: {message.error().str()}"
        raise SourceError(msg)
    return int(message.partition())


def _stamps(message: Any) -> Iterator[dict[str, int]]:  # noqa: ANN401 - librdkafka's
    """Yield the stamps of a change, if it has some."""
    headers = {name: value for name, value in message.headers() or () if name in STAGES and value is not None}
    if "decided" in headers:
        yield {name: int(value) for name, value in headers.items()} | {"appended": message.timestamp()[1] * 1000}
