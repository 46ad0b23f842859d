"""`windrow init`: a starter project, or a pipeline drafted from the records of a log."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from windrow import model as m
from windrow.errors import InputError
from windrow.telemetry.reports import counted
from windrow.terminal.common import OK, json_option, print_json
from windrow.terminal.options import FOLDER

if TYPE_CHECKING:
    from windrow.tools.scaffold.sample import Sample

_RECORDS: Final = 100_000
_FILES: Final = ("README.md", "pipeline.yaml", "pytest.ini", "stories/late_record.yaml")
"""The files of the starter."""
_EVENTS, _USERS, _SPAN = 20_000, 200, 6 * 3_600_000_000
"""The generated log of the starter project: purchases of six hours."""
_HELP = {
    "from": "Draft the pipeline from a sample: a file of JSON lines, a folder with an embedded log or with files "
    "(JSON lines, Parquet), or a topic as kafka://HOST:PORT/TOPIC.",
    "records": "Maximum number of records in the sample.",
}
_README: Final = """\
# {name}

`pipeline.yaml` was drafted from {size} of `{place}`. Read it first: each guess has its reason beside it.
Run these commands in this folder.

```sh
windrow check pipeline.yaml --connect --host memory     # check the file, and what a run needs
windrow explain pipeline.yaml                           # the pipeline in words
windrow run pipeline.yaml --until-end --host memory     # run it in this process; without --host, on Spark
windrow show pipeline.yaml --limit 10                   # the results
windrow show pipeline.yaml dead --limit 10              # what could not be read, and why
```

For a log with about 10,000 records or more, `windrow tune pipeline.yaml --log` chooses delay and lateness by goals.
"""


@click.command("init")
@click.argument("folder", type=FOLDER, default=".")
@click.option("--from", "sample", metavar="SAMPLE", help=_HELP["from"])
@click.option("--records", type=click.IntRange(min=1), default=_RECORDS, show_default=True, help=_HELP["records"])
@json_option
def command(*, folder: Path, sample: str | None, records: int, as_json: bool) -> int:
    """Create a project in FOLDER, which is created if it does not exist; no existing file is replaced.

    Without --from the project has a commented pipeline, a small generated log and a test, all ready to run; README.md
    lists the commands.

    With --from it has a pipeline for your records: the types of their fields, the event time, a key, and a delay that
    covers their disorder, each with the reason for the choice. The records of a file are copied into an embedded log.
    """
    made = _write_starter(folder) if sample is None else _write_scaffold(folder, sample, records)
    if as_json:
        print_json({"folder": str(folder), **made})
        return OK
    for file in made["files"]:
        click.echo(f"made {folder / file}")
    if sample is not None:
        dead = sum(made["dead_letters"].values())
        click.echo(
            f"pipeline.yaml decodes {made['records'] - dead:,} of {counted(made['records'], 'record')}"
            + (f"; {counted(dead, 'dead letter')}, listed in its first lines" if dead else "")
        )
        if not made["whole"] and Path(sample).is_file():
            log = folder / made["files"][-1]
            click.echo(f"{log} has only the first {made['records']:,} records of {sample}: copy more with --records")
    where = "" if folder == Path() else f"cd {folder}; "
    click.echo(f"next:  {where}windrow run pipeline.yaml --until-end --host memory    # README.md has more")
    return OK


def _write_starter(folder: Path) -> dict[str, Any]:
    from windrow.tools.generate import LogSpec, write_log  # noqa: PLC0415 - help needs none of it

    log = Path("data/spend")
    texts = resources.files("windrow.cli") / "starter"
    files = {name: (texts / name).read_text(encoding="utf-8") for name in _FILES}
    spec = LogSpec(events=_EVENTS, users=_USERS, duration=_SPAN)
    _write(folder, files, log, partial(write_log, spec))
    return {"files": [*files, f"{log}/"]}


def _write_scaffold(folder: Path, text: str, records: int) -> dict[str, Any]:
    from windrow.tools.scaffold.pipeline import scaffold_pipeline  # noqa: PLC0415 - help needs none of it
    from windrow.tools.scaffold.sample import read_sample  # noqa: PLC0415 - the same

    sample = read_sample(text, records)
    log = Path("data") / sample.name if sample.source is None else None
    scaffold = scaffold_pipeline(sample, _source(sample, folder, log))
    size = counted(sample.raw.num_rows, "record")
    files = {
        "README.md": _README.format(name=scaffold.pipeline.name, size=size, place=sample.place),
        "pipeline.yaml": scaffold.text,
    }
    _write(folder, files, log, partial(_write_lines, sample))
    return {
        "files": [*files, *([f"{log}/"] if log else [])],
        "pipeline": scaffold.pipeline.name,
        "records": scaffold.records,
        "whole": sample.whole,
        "dead_letters": dict(scaffold.dead),
    }


def _source(sample: Sample, folder: Path, log: Path | None) -> str:
    """Return the pipeline's source as YAML, with paths relative to the project folder."""
    from windrow.tools.scaffold.pipeline import yaml_scalar as scalar  # noqa: PLC0415 - as above

    if isinstance(sample.source, m.KafkaSource):
        return f"{{kafka: {{servers: {scalar(sample.source.servers)}, topic: {scalar(sample.source.topic)}}}}}"
    if isinstance(sample.source, m.FilesSource):
        return f"{{files: {{path: {scalar(os.path.relpath(sample.source.path[0], folder))}}}}}"
    path = str(log) if log is not None else os.path.relpath(sample.place, folder)
    return f"{{log: {{path: {scalar(path)}}}}}"


def _write_lines(sample: Sample, log: Path) -> None:
    log.mkdir(parents=True)
    (log / "partition-0.jsonl").write_bytes(sample.lines)


def _write(folder: Path, files: Mapping[str, str], log: Path | None, write: Callable[[Path], object]) -> None:
    """Write files and a log; if one of them exists, raise InputError and write nothing."""
    existing = [str(folder / file) for file in (*files, *([str(log)] if log else [])) if (folder / file).exists()]
    if existing:
        msg = f"{', '.join(existing)} already {'exists' if len(existing) == 1 else 'exist'}: choose another FOLDER"
        raise InputError(msg)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if log is not None:
            write(folder / log)
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as exc:
        msg = f"{exc.filename or folder} cannot be created: {exc.strerror}; choose another FOLDER"
        raise InputError(msg) from exc
