"""`windrow savepoint`: what a run that has stopped knows, to go on from with another pipeline."""

from __future__ import annotations

from pathlib import Path

import click

from windrow.api.load import open_pipeline
from windrow.cli.common import OK, default_checkpoint, json_option, pipeline_argument, print_json, saying_spark_starts

_HELP = {
    "checkpoint": "Whose run it is.  [default: .windrow/NAME]",
    "to": "Where to write it: a folder that is not there, or empty.  [default: CHECKPOINT-EPOCH]",
    "master": "Spark's master.",
}


@click.command("savepoint")
@pipeline_argument
@click.option("--checkpoint", type=click.Path(path_type=Path), metavar="DIR", help=_HELP["checkpoint"])
@click.option("--to", type=click.Path(path_type=Path), metavar="DIR", help=_HELP["to"])
@click.option("--master", default="local[*]", show_default=True, help=_HELP["master"])
@json_option
def command(*, pipeline: str, checkpoint: Path | None, to: Path | None, master: str, as_json: bool) -> int:
    """Write what a stopped run knows after its last committed step.

    PIPELINE is a YAML file, or FILE.py[:VARIABLE] with a fluent one, as it was run. From there `windrow run PIPELINE
    --from-savepoint DIR` goes on with other key groups, another version of Spark or of a function, or a changed
    pipeline. The checkpoint stays as it is, and can be used until then.
    """
    from windrow.hosts.savepoint import Savepoint  # noqa: PLC0415 - help needs no Arrow, and no Spark
    from windrow.hosts.stream.take_savepoint import take_savepoint  # noqa: PLC0415
    from windrow.sinks import open_sink  # noqa: PLC0415

    valid = open_pipeline(pipeline).valid()
    sink = open_sink(valid)
    try:
        with saying_spark_starts(quiet=as_json):
            folder = take_savepoint(valid, sink, checkpoint or default_checkpoint(valid.name), to, master)
    finally:
        sink.close()
    savepoint = Savepoint.read(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    if as_json:
        print_json(
            {
                "pipeline": valid.name,
                "savepoint": str(folder),
                "epoch": savepoint.epoch,
                "offsets": savepoint.offsets,
                "key_groups": savepoint.key_groups,
                "bytes": size,
            }
        )
    else:
        where = ", ".join(f"partition {partition} at {offset:,}" for partition, offset in savepoint.offsets.items())
        click.echo(
            f"{valid.name}: savepoint of epoch {savepoint.epoch}: {where or 'nothing read'}; "
            f"{savepoint.key_groups} key groups, {size:,} bytes\n  {folder}"
        )
    return OK
