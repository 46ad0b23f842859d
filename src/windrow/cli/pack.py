"""`windrow pack`: pack this environment for the executors of a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from windrow.errors import InputError
from windrow.runtime.spark.pack import pack_environment
from windrow.telemetry.numbers import short_bytes
from windrow.telemetry.reports import counted
from windrow.terminal.common import OK, json_option, print_json


@click.command("pack")
@click.argument("archive", type=click.Path(path_type=Path, dir_okay=False))
@json_option
def command(*, archive: Path, as_json: bool) -> int:
    """Pack the Python environment of this command for the executors of a cluster.

    ARCHIVE is a .tgz file, for `windrow run --master ... --conf spark.archives=ARCHIVE#environment`.
    """
    if archive.suffixes[-1:] != [".tgz"] and archive.suffixes[-2:] != [".tar", ".gz"]:
        msg = f"{archive} must end in .tgz or .tar.gz, so that Spark unpacks it"
        raise InputError(msg)
    packed = pack_environment(archive)
    needs = None if packed.interpreter is None else str(packed.interpreter)
    if as_json:
        print_json({"archive": str(archive), "bytes": packed.bytes, "files": packed.files, "interpreter": needs})
        return OK
    click.echo(f"{archive}: {counted(packed.files, 'file')}, {short_bytes(packed.bytes)}")
    if needs is not None:
        click.echo(f"  each host must have the interpreter {needs}, which the environment links to")
    click.echo(f"  to use it: windrow run PIPELINE --master URL --conf spark.archives={archive}#environment")
    return OK
