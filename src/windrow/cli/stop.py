"""`windrow stop`: stop a realtime run from any machine."""

from __future__ import annotations

import click

from windrow.terminal.common import OK, json_option, print_json
from windrow.terminal.options import DURATION
from windrow.terminal.pipelines import open_pipeline, pipeline_argument

_HELP = {"wait": "How long to wait for the run to end."}
_MICROS = 1_000_000


@click.command("stop")
@pipeline_argument
@click.option("--wait", type=DURATION, default="60s", show_default=True, help=_HELP["wait"])
@json_option
def command(*, pipeline: str, wait: int, as_json: bool) -> int:
    """Stop a realtime run from any machine that can reach its brokers, and wait for it to end.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. The tasks of the run finish their
    transactions, as they do after Ctrl-C on the machine of the run. The exit code is 1 if no run is active, or if the
    run does not end in time.
    """
    from windrow.runtime.realtime.stopping import stop_run  # noqa: PLC0415 - help needs no Kafka

    valid = open_pipeline(pipeline).in_mode("realtime").runnable()
    positions = stop_run(valid, wait / _MICROS)
    if as_json:
        offsets = {position.partition: position.committed for position in positions}
        print_json({"pipeline": valid.name, "ended": "asked", "offsets": offsets})
    else:
        places = ", ".join(
            f"partition {position.partition} at {position.committed:,}" for position in positions if position.committed
        )
        click.echo(f"{valid.name}: stopped on request at {places or 'no offset'}")
    return OK
