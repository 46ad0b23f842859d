"""`windrow savepoint`: write the state of a stopped run, from which a changed pipeline can start."""

from __future__ import annotations

import click

from windrow.runtime.settings import SparkOptions
from windrow.telemetry.folders import Folder, default_checkpoint
from windrow.telemetry.reports import counted
from windrow.terminal.common import OK, json_option, print_json, report_spark_start
from windrow.terminal.options import STATE_FOLDER, spark_options
from windrow.terminal.pipelines import open_pipeline, pipeline_argument

_HELP = {
    "checkpoint": "Checkpoint of the run.  [default: .windrow/NAME]",
    "to": "Savepoint directory, new or empty.  [default: CHECKPOINT-EPOCH]",
}


@click.command("savepoint")
@pipeline_argument
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@click.option("--to", type=STATE_FOLDER, metavar="DIR", help=_HELP["to"])
@spark_options
@json_option
def command(*, pipeline: str, checkpoint: Folder | None, to: Folder | None, spark: SparkOptions, as_json: bool) -> int:
    """Write a savepoint: the state of a stopped run after its last committed step.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. The run must have had the same
    pipeline, unchanged. `windrow run PIPELINE --from-savepoint DIR` then starts with other key groups, another version
    of Spark or of a function, or a changed pipeline. The checkpoint is not changed; until a run starts from the
    savepoint, the old run can still be resumed.
    """
    from windrow.connectors.open_sinks import open_sinks  # noqa: PLC0415
    from windrow.runtime.savepoint import Savepoint  # noqa: PLC0415 - help needs no Arrow, and no Spark
    from windrow.runtime.stream.take_savepoint import take_savepoint  # noqa: PLC0415
    from windrow.telemetry.history import history_of, note_savepoint  # noqa: PLC0415 - the same

    valid = open_pipeline(pipeline).runnable()
    sinks = open_sinks(valid)
    checkpoint = checkpoint or default_checkpoint(valid.name)
    try:
        with report_spark_start(quiet=as_json):
            folder = take_savepoint(valid, sinks, checkpoint, to, spark)
    finally:
        sinks.close()
    note_savepoint(history_of(checkpoint), folder)
    savepoint = Savepoint.read(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    offsets = {valid.partition_name(partition): offset for partition, offset in savepoint.offsets.items()}
    if as_json:
        print_json(
            {
                "pipeline": valid.name,
                "savepoint": str(folder),
                "epoch": savepoint.epoch,
                "offsets": offsets,
                "key_groups": savepoint.key_groups,
                "bytes": size,
            }
        )
    else:
        where = ", ".join(f"partition {partition} at {offset:,}" for partition, offset in offsets.items())
        click.echo(
            f"{valid.name}: savepoint of epoch {savepoint.epoch}: {where or 'nothing read'}; "
            f"{counted(savepoint.key_groups, 'key group')}, {size:,} bytes\n  {folder}"
        )
    return OK
