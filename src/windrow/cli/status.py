"""`windrow status`: how far a realtime run is, and how fast its last changes were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from windrow.api.load import open_pipeline
from windrow.cli.common import OK, json_option, pipeline_argument, print_json
from windrow.cli.latency import last_latencies, latency_lines
from windrow.cli.progress import format_time
from windrow.hosts.reports import counted
from windrow.model import KafkaSource, Runnable

if TYPE_CHECKING:
    from windrow.hosts.realtime.key_sample import KeySample
    from windrow.hosts.realtime.progress import Position

_MICROS = 1_000_000


@click.command("status")
@pipeline_argument
@json_option
def command(*, pipeline: str, as_json: bool) -> int:
    """Show how far a realtime run is, and how fast.

    PIPELINE is a YAML file, or FILE.py[:VARIABLE] for a pipeline written in Python. Of each
    partition: the committed offset of the consumer group windrow-NAME, how many offsets are behind it, and when the
    task began that committed it, or that it has ended. Of each topic that is written: the latencies of its last 10,000
    changes, as `windrow latency` prints them.
    """
    from windrow.hosts.realtime.key_sample import sample_keys  # noqa: PLC0415 - help needs no Kafka and no Arrow
    from windrow.hosts.realtime.progress import Positions  # noqa: PLC0415 - the same
    from windrow.hosts.realtime.topics import sinks_of, source_of  # noqa: PLC0415 - the same

    valid = open_pipeline(pipeline).in_mode("realtime").runnable()
    positions = Positions(valid).ask()
    keys = sample_keys(valid)
    options = source_of(valid).options
    has_run = any(one.owner is not None for one in positions)
    topics = {
        sink.topic: last_latencies(KafkaSource(sink.servers, sink.topic, options=options))
        for sink in (sinks_of(valid) if has_run else [])
    }
    if as_json:
        print_json(
            {
                "pipeline": valid.name,
                "behind": sum(one.lag for one in positions),
                "partitions": [_plain(one) for one in positions],
                "keys": {"sampled": keys.keys, "in_two_partitions": keys.met},
                "topics": {
                    name: {"records": records, "milliseconds": found} for name, (records, found) in topics.items()
                },
            }
        )
        return OK
    for line in _lines(valid, positions, keys):
        click.echo(line)
    for name, (records, found) in topics.items():
        click.echo(f"{name}: {counted(records, 'change')} with stamps")
        for line in latency_lines(found):
            click.echo(line)
    return OK


def _plain(position: Position) -> dict[str, Any]:
    owner = position.owner
    return {
        "partition": position.partition,
        "offset": position.committed,
        "end": position.end,
        "lag": position.lag,
        "run": None if owner is None else owner.run,
        "attempt": None if owner is None else owner.attempt,
        "begun": None if owner is None else owner.begun,
        "ended": None if owner is None else owner.ended,
    }


def _lines(pipeline: Runnable, positions: Sequence[Position], keys: KeySample) -> list[str]:
    behind = sum(one.lag for one in positions)
    lines = [f"{pipeline.name}: {counted(behind, 'offset')} behind in {counted(len(positions), 'partition')}"]
    for one in positions:
        at = "nothing committed" if one.committed is None else f"offset {one.committed:,}"
        lines.append(f"  partition {one.partition}: {at} of {one.end:,}, {one.lag:,} behind; {_owner(one)}")
    if keys.met:
        lines.append(f"{pipeline.name}: warning: {keys.text}")
    return lines


def _owner(position: Position) -> str:
    owner = position.owner
    if owner is None:
        return "it never ran"
    began = format_time(int(owner.begun * _MICROS))
    attempt = f", attempt {owner.attempt}" if owner.attempt else ""
    return f"{'ended' if owner.ended else 'running'}, begun {began}{attempt}"
