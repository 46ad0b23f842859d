"""`windrow status`: show whether a run is active, its progress, and what holds it back."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windrow import model as m
from windrow.authoring.load import OpenedPipeline
from windrow.errors import InputError
from windrow.telemetry.facts import internal_of
from windrow.telemetry.folders import Folder, default_checkpoint
from windrow.telemetry.health import OVER, STATES
from windrow.telemetry.history import FILES, history_of
from windrow.telemetry.numbers import first_line, format_time, printable, short_bytes, short_duration, short_number
from windrow.telemetry.reports import Alert, counted, now_micros, truncations_of
from windrow.telemetry.status import PartitionStatus, RunStatus, last_alerts
from windrow.terminal.common import DIFFERENT, OK, complete_files, interruptible, json_option, print_json
from windrow.terminal.display import aligned
from windrow.terminal.options import STATE_FOLDER
from windrow.terminal.pipelines import only_option, open_pipeline, variable_options

if TYPE_CHECKING:
    from windrow.runtime.realtime.key_sample import KeySample
    from windrow.runtime.realtime.progress import Position
    from windrow.runtime.realtime.stopping import Announced

_MICROS = 1_000_000
_WATCH_SECONDS = 1.0
_NAMED = 10
"""Maximum number of keys or partitions in a list."""
_HOT = 0.01
"""Minimum share of the records that makes a key hot."""
_HELP = {
    "host": "Whether the pipeline runs as a stream or in real time.  [default: the pipeline's mode]",
    "checkpoint": "Checkpoint directory of the run, or its URL.  [default: .windrow/NAME]",
    "watch": "Print the status again each second, until Ctrl-C.",
}


@click.command("status")
@click.argument("pipeline", metavar="[PIPELINE]", required=False, shell_complete=complete_files)
@only_option
@variable_options
@click.option("--host", type=click.Choice(["stream", "realtime"]), help=_HELP["host"])
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@click.option("--watch", is_flag=True, help=_HELP["watch"])
@json_option
def command(*, pipeline: str | None, host: str | None, checkpoint: Folder | None, watch: bool, as_json: bool) -> int:
    """Show whether a run is active, its progress, and what holds it back.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. Without PIPELINE, all runs with a
    checkpoint in .windrow are shown. The status of a stream, with its active alerts, is read from files beside its
    checkpoint, on the machine of the run. They are at most two seconds old, or from the end of the run. The exit code
    is 1 if a run has failed, is stalled (records have waited for a commit for 2 minutes or 10 triggers), or has lost
    its process.

    The status of a realtime run is read from its brokers, from any machine, but its alerts only on the machine of the
    run. It has, for each partition, the committed offset of the consumer group windrow-NAME, the lag, and when the task
    that committed the offset began, or that it has ended, or that a run is starting and has not committed yet; for each
    list in a topic, the number of entries, and the keys that cannot be entries; and for each topic that is written, the
    latency of the last 10,000 changes by stage, in milliseconds: from the event to the log, to the poll, to the
    decision, and to the topic.
    """
    opened = None if pipeline is None else open_pipeline(pipeline)
    if opened is not None and (host or ("realtime" if opened.pipeline.mode == "realtime" else "stream")) == "realtime":
        if checkpoint is not None:
            msg = "a realtime run has no checkpoint: leave out --checkpoint, or give --host stream"
            raise InputError(msg)
        look = partial(_realtime, opened.in_mode("realtime").runnable())
    elif host == "realtime":
        msg = "--host realtime needs a PIPELINE: give the one that runs in real time"
        raise InputError(msg)
    else:
        look = partial(_streams, opened, checkpoint)
    if not watch:
        plain, lines, code = look()
        if as_json:
            print_json(plain)
        else:
            click.echo("\n".join(map(printable, lines)))
        return code
    code = OK
    with suppress(KeyboardInterrupt), interruptible():
        while True:
            plain, lines, code = look()
            lines = list(map(printable, lines))
            click.echo(json.dumps(plain, ensure_ascii=False) if as_json else _screen(lines))
            time.sleep(_WATCH_SECONDS)
    return code


def _screen(lines: Sequence[str]) -> str:
    """Return text that replaces the previous status on a terminal, cut to its size; elsewhere, return all lines."""
    if not sys.stdout.isatty():
        return "\n".join([*lines, ""])
    import shutil  # noqa: PLC0415 - only to watch

    width, height = shutil.get_terminal_size()
    kept = [line[: width - 1] for line in lines][: height - 1]
    return "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in kept) + "\x1b[J"


def _streams(opened: OpenedPipeline | None, checkpoint: Folder | None) -> tuple[Any, list[str], int]:
    """Return the status of the chosen runs as plain JSON and as lines, and the exit code."""
    if opened is not None or checkpoint is not None:
        name = "" if opened is None else opened.pipeline.name
        graph = None if opened is None else opened.pipeline
        found = RunStatus.read(history_of(checkpoint or default_checkpoint(name)), now_micros(), graph)
        return found.plain(), list(_stream_lines(found, name)), _code(found)
    paths = sorted(Path(".windrow").glob(f"*/{FILES[0]}"))
    if not paths:
        msg = "there is no checkpoint of a run in .windrow: give a PIPELINE or a --checkpoint"
        raise InputError(msg)
    lines: list[str] = []
    runs: list[dict[str, Any]] = []
    code = OK
    for path in paths:
        name = path.parent.name
        of = f".windrow/{name}"
        try:
            found = RunStatus.read(path, now_micros())
        except InputError as exc:  # the other runs are shown all the same
            lines.append(f"{name}: {exc.message}")
            runs.append({"checkpoint": of, "state": "unreadable", "error": exc.message})
            code = DIFFERENT
            continue
        first, *others = _stream_lines(found, name)
        lines += [first, f"  checkpoint {of}", *others]
        runs.append({"checkpoint": of, **found.plain()})
        code = max(code, _code(found))
    return {"runs": runs}, lines, code


def _code(status: RunStatus) -> int:
    return DIFFERENT if STATES[status.state][0] == "bad" else OK


def _stream_lines(status: RunStatus, name: str) -> Iterator[str]:
    """Yield the status of a run as lines: whether it is active, how far it is, what holds it back, and its counts."""
    record, last, now = status.record, status.last, status.now
    yield f"{name if record is None else record.pipeline}: {_state_text(status)}"
    if record is not None and record.error is not None:
        yield f"  error: {first_line(record.error)}"
    if record is not None and record.fault is not None and record.fault_at is not None:
        ago = short_duration(max(0, now - record.fault_at) / _MICROS)
        yield f"  last fault, {ago} {_before(status)}: {first_line(record.fault)}"
    yield from _alert_lines(status.alerts)
    if last is None:
        yield "  no step has been committed"
        return
    if last.committed is not None:
        ago = short_duration(max(0, now - last.committed) / _MICROS)
        yield f"  epoch {last.epoch:,}, committed {ago} {_before(status)}; {short_number(status.per_second)} events/s"
    yield from _lag_lines(status)
    yield from _slot_lines(status)
    yield from _watermark_lines(status)
    if record is not None and record.totals is not None:
        yield from _total_lines(record.totals, only_offsets=last.only_offsets)
    yield from _state_lines(last)
    for node, shares in status.hot_keys.items():
        hot = [f"{key or repr(key)} {share:.1%}" for key, share in shares.items() if share >= _HOT][:_NAMED]
        if hot:
            yield f"  hot keys{f' of {node}' if node else ''}: {', '.join(hot)}"
    yield from _table(status.partitions)


def _alert_lines(alerts: Sequence[Alert]) -> Iterator[str]:
    """Yield a line for each active alert."""
    for alert in alerts:
        if alert.is_active:
            yield f"  alert {alert.name}, raised {format_time(alert.raised)}: {alert.message} ({alert.runbook})"


def _state_text(status: RunStatus) -> str:
    record = status.record
    if record is None:
        return "it was run by an older version of windrow, which recorded only its steps"
    seen, ended = format_time(record.seen), f" at {format_time(record.ended or record.seen)}"
    when = {"ended": ended, "failed": ended, "killed": f", last seen at {seen}", "lost": f" since {seen}"}
    since = f"process {record.pid} on {record.machine}, {record.host} host, begun {format_time(record.began)}"
    return f"{STATES[status.state][1]}{when.get(status.state, '')} ({since})"


def _before(status: RunStatus) -> str:
    return "before that" if status.state in OVER else "ago"


def _lag_lines(status: RunStatus) -> Iterator[str]:
    lag = status.lag
    if lag is None:
        return
    then = " then" if status.state in OVER else ""
    if not lag.behind:
        yield f"  lag{then}: none, all records of the log {'had' if then else 'have'} been read"
        return
    seconds = "" if lag.longest is None else f", {short_duration(lag.longest)}"
    trend = ""
    if status.lag_trend is not None and abs(status.lag_trend) >= 1:
        word = "growing" if status.lag_trend > 0 else "shrinking"
        trend = f", {word} by {short_number(abs(status.lag_trend))}/s"
    clear = "" if status.until_clear is None else f" (none in {short_duration(status.until_clear)})"
    yield f"  lag{then}: {counted(lag.behind, 'record')}{seconds}{trend}{clear}"


def _slot_lines(status: RunStatus) -> Iterator[str]:
    """Yield a line for each replication slot, which says how far the log is behind the table."""
    for slot in () if status.lag is None else status.lag.slots:
        if slot.bytes is None or slot.seconds is None:
            lag = "unknown, the database does not answer"
        elif not slot.bytes:
            lag = "no lag, the log has all committed changes"
        else:
            lag = f"{short_bytes(slot.bytes)}, {short_duration(slot.seconds)} behind the table"
        yield f"  slot {slot.slot}{' then' if status.state in OVER else ''}: {lag}"


def _watermark_lines(status: RunStatus) -> Iterator[str]:
    last = status.last
    if last is None or last.only_offsets:
        return
    if last.low_watermark is None or status.watermark_lag is None:
        yield "  low watermark: none yet"
    else:
        behind = short_duration(max(0.0, status.watermark_lag))
        then = " then" if status.state in OVER else ""
        yield f"  low watermark: {format_time(last.low_watermark)}, {behind} behind the clock{then}"
    for partition in [partition for partition in status.partitions if partition.held is not None][:_NAMED]:
        yield f"    held by partition {partition.partition}: {partition.held}"
    if last.idle:
        yield f"    idle: {counted(len(last.idle), 'partition')}"


def _total_lines(totals: Any, *, only_offsets: bool) -> Iterator[str]:  # noqa: ANN401 - plain JSON
    counts = f"{counted(totals['events'], 'event')} in {counted(totals['steps'], 'step')}"
    if not only_offsets:
        dead = counted(totals["dead"] + totals["rejected"], "dead letter")
        internal = sum(internal_of(totals.get("dead_reasons", {})).values())
        dead += f" ({internal:,} internal)" if internal else ""
        counts += f"; {totals['late']:,} late, {totals['expired']:,} expired, {dead}, "
        counts += f"{counted(totals['duplicates'], 'duplicate')}; {counted(totals['inserts'], 'insert')}, "
        counts += counted(totals["revisions"], "revision")
    yield f"  since it began: {counts}"
    truncations = truncations_of(totals.get("dead_reasons", {}))
    if truncations is not None:
        yield f"  {truncations}"
    spans = [
        f"{stage} p50 {short_duration(found['p50'])}, p99 {short_duration(found['p99'])}"
        for stage, name in (("from log to commit", "latency_seconds"), ("sink", "commit_seconds"))
        if (found := totals.get(name))
    ]
    if spans:
        yield f"  latency: {'; '.join(spans)}"


def _state_lines(last: Any) -> Iterator[str]:  # noqa: ANN401 - a report
    if last.only_offsets:
        return
    size = "" if last.state_bytes is None else short_bytes(last.state_bytes)
    rows = "" if last.state_rows is None else f" in {counted(last.state_rows, 'row')}"
    held = f"state: {size}{rows}; " if size else ""
    yield f"  {held}{counted(last.open_windows, 'open window')}"
    if len(last.state_by_node) > 1:
        for node, (rows, size) in last.state_by_node.items():
            yield f"    {node}: {short_bytes(size)} in {counted(rows, 'row')}"


def _table(partitions: Sequence[PartitionStatus]) -> Iterator[str]:
    """Yield a header, and a line for each partition."""
    columns = ("partition", "offset", "lag", "records/s", "watermark", "")
    rows = []
    for partition in partitions:
        known = partition.lag and partition.lag_seconds is not None
        seconds = f" ({short_duration(partition.lag_seconds or 0)})" if known else ""
        rows.append(
            (
                partition.partition,
                "-" if partition.offset is None else f"{partition.offset:,}",
                "-" if partition.lag is None else f"{partition.lag:,}{seconds}",
                short_number(partition.per_second),
                "-" if partition.watermark is None else format_time(partition.watermark),
                "idle" if partition.is_idle else "holds the watermark" if partition.held is not None else "",
            )
        )
    yield from (f"  {line}" for line in aligned(columns, rows, [name not in {"partition", ""} for name in columns]))


def _realtime(valid: m.Graph) -> tuple[Any, list[str], int]:
    """Read the status of a realtime run from its brokers; return it as plain JSON and as lines, with the exit code."""
    from windrow.connectors.kafka.lists import read_list  # noqa: PLC0415 - the same
    from windrow.runtime.realtime.key_sample import sample_keys  # noqa: PLC0415 - a stream needs no Kafka and no Arrow
    from windrow.runtime.realtime.progress import Positions  # noqa: PLC0415 - the same
    from windrow.runtime.realtime.stamps import last_latencies  # noqa: PLC0415 - the same
    from windrow.runtime.realtime.stopping import announced  # noqa: PLC0415 - the same
    from windrow.runtime.realtime.topics import sinks_of, source_of, topic_lists  # noqa: PLC0415 - the same

    positions, last = Positions(valid).ask(), announced(valid)
    starting = [position.partition for position in positions if last is not None and last.is_starting(position)]
    keys = sample_keys(valid)
    lists = {topic_list.name: read_list(topic_list, source_of(valid)) for topic_list in topic_lists(valid)}
    options = source_of(valid).options
    has_run = any(position.owner is not None for position in positions)
    topics = {
        sink.topic: last_latencies(m.KafkaSource(sink.servers, sink.topic, options=options))
        for sink in (sinks_of(valid) if has_run else [])
    }
    plain: dict[str, Any] = {
        "pipeline": valid.name,
        "behind": sum(position.lag for position in positions),
        "starting": None if last is None or not starting else {"run": last.run, "begun": last.begun},
        "partitions": [_plain(position) for position in positions],
        "keys": {"sampled": keys.keys, "in_two_partitions": keys.met},
        "lists": {name: {"entries": len(found.entries), "wrong": list(found.wrong)} for name, found in lists.items()},
        "topics": {name: {"records": records, "milliseconds": found} for name, (records, found) in topics.items()},
    }
    alerts = last_alerts(history_of(default_checkpoint(valid.name)))
    plain["alerts"] = [alert.plain() for alert in alerts]
    lines = [*_lines(valid, positions, last, keys), *_alert_lines(alerts)]
    for name, entries in lists.items():
        number = len(entries.entries)
        lines.append(f"list {name}: {number:,} {'entry' if number == 1 else 'entries'}")
        if entries.warning is not None:
            lines.append(f"{valid.name}: warning: {entries.warning}")
    for name, (records, latencies) in topics.items():
        lines += [f"{name}: {counted(records, 'change')} with stamps", *_latency_lines(latencies)]
    return plain, lines, OK


def _latency_lines(found: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield latencies as a table, with a line for each stage and a column for each quantile."""
    width = max(map(len, found), default=0)
    if found:
        yield " " * width + "".join(f"{label:>10}" for label in next(iter(found.values())))
    for name, values in sorted(found.items(), key=lambda pair: pair[0].startswith("in all")):
        yield f"{name:{width}}" + "".join(f"{value:10,.1f}" for value in values.values())


def _plain(position: Position) -> dict[str, Any]:
    plain = {"partition": position.partition, "offset": position.committed, "end": position.end, "lag": position.lag}
    return plain | {name: getattr(position.owner, name, None) for name in ("run", "attempt", "begun", "ended")}


def _lines(graph: m.Graph, positions: Sequence[Position], last: Announced | None, keys: KeySample) -> list[str]:
    behind = sum(position.lag for position in positions)
    lines = [f"{graph.name}: {counted(behind, 'offset')} behind in {counted(len(positions), 'partition')}"]
    for position in positions:
        at = "nothing committed" if position.committed is None else f"offset {position.committed:,}"
        lines.append(
            f"  partition {position.partition}: {at} of {position.end:,}, "
            f"{position.lag:,} behind; {_owner(position, last)}"
        )
    if keys.met:
        lines.append(f"{graph.name}: warning: {keys.text}")
    return lines


def _owner(position: Position, last: Announced | None) -> str:
    if last is not None and last.is_starting(position):
        return f"starting, begun {format_time(int(last.begun * _MICROS))}"
    owner = position.owner
    if owner is None:
        return "it has never run"
    began = format_time(int(owner.begun * _MICROS))
    attempt = f", attempt {owner.attempt}" if owner.attempt else ""
    return f"{'ended' if owner.ended else 'running'}, begun {began}{attempt}"
