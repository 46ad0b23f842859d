"""`windrow relay`: sends the rows of an outbox to a topic or a log."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import click

from windrow import model as m
from windrow.errors import InputError
from windrow.telemetry.reports import counted
from windrow.terminal.common import OK, echo_error, json_option, print_json
from windrow.terminal.interrupts import stopping
from windrow.terminal.options import DURATION, TABLE, LogTarget
from windrow.terminal.pipelines import open_pipeline, pipeline_argument

if TYPE_CHECKING:
    from windrow.connectors.postgres.outbox import OutboxLag

_HELP = {
    "table": "Result table whose outbox to send, if several tables have one.",
    "until_empty": "Stop when the outbox is empty.",
    "every": "How often to check an empty outbox for new rows.",
    "option": "Option of the Kafka connection, such as security.protocol=SSL. May be repeated.",
}
_MICROS = 1_000_000
_REPORT_SECONDS = 10.0


@click.command("relay")
@pipeline_argument
@click.argument("target")
@click.option("--table", type=TABLE, help=_HELP["table"])
@click.option("--until-empty", is_flag=True, help=_HELP["until_empty"])
@click.option("--every", type=DURATION, default="500ms", show_default=True, help=_HELP["every"])
@click.option("--option", "options", metavar="NAME=VALUE", multiple=True, help=_HELP["option"])
@json_option
def command(
    *,
    pipeline: str,
    target: str,
    table: str | None,
    until_empty: bool,
    every: int,
    options: tuple[str, ...],
    as_json: bool,
) -> int:
    """Send the rows of an outbox to a topic or a log, each exactly once, and delete them.

    TARGET is an existing topic as kafka://HOST:PORT/TOPIC, or the folder of an embedded log. Rows are sent in commit
    order until Ctrl-C; all rows of a key go to the same partition. A relay can be killed and restarted at any time:
    consumers that read committed records see each row once. Only one relay at a time can empty an outbox.
    """
    from windrow.tools.relay.outbox import outbox_sink, run  # noqa: PLC0415 - help needs no Arrow

    to = LogTarget.read(target)
    log = m.LogSource(to.name) if to.servers is None else m.KafkaSource(to.servers, to.name, options=_pairs(options))
    if options and to.servers is None:
        msg = f"--option is for Kafka, but {to} is a folder: leave it out"
        raise InputError(msg)
    graph = open_pipeline(pipeline).runnable()
    sink = outbox_sink(graph, table)
    outbox = f"{sink.table}_outbox"

    stop, last = threading.Event(), dict[str, Any]()

    def on_report(rows: int, lag: OutboxLag) -> None:
        last.update(sent=rows, waiting=lag.rows, oldest_seconds=round(lag.seconds, 3))
        waiting = (
            f"{counted(lag.rows, 'row')} left, the oldest from {lag.seconds:.1f} s ago" if lag.rows else "it is empty"
        )
        if not as_json:
            click.echo(f"{outbox}: sent {counted(rows, 'row')} to {to}; {waiting}")

    with stopping(lambda _: echo_error("stopping (again to stop at once)")) as on_start:
        on_start(stop.set)
        run(
            sink,
            log,
            until_empty=until_empty,
            every=every / _MICROS,
            stop=stop,
            report=_REPORT_SECONDS,
            on_report=on_report,
            on_trouble=lambda message: echo_error(f"warning: {message}"),
        )
    if as_json:
        print_json({"pipeline": graph.name, "outbox": outbox, "target": str(to), **last})
    return OK


def _pairs(options: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    pairs = [text.partition("=") for text in options]
    wrong = next((name for name, equals, _ in pairs if not name or not equals), None)
    if wrong is not None:
        msg = f"--option {wrong!r} is not NAME=VALUE, such as security.protocol=SSL"
        raise InputError(msg)
    return tuple((name, value) for name, _, value in pairs)
