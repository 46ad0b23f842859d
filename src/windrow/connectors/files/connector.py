"""The connector for files that are read in the order of their names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from windrow import model as m
from windrow.connectors.base import Connector, SourceConnector
from windrow.connectors.files.names import files_matching
from windrow.connectors.not_text import refusal_of
from windrow.connectors.settings import FORMAT_DOC, format_words
from windrow.declare.findings import Finding, error, warning
from windrow.declare.formats import FILES_FORMAT
from windrow.declare.spec import FLAG, NAMES, Key, Section

_EXAMINED = 1_000
"""Number of files that a check examines; a run examines each file that it reads."""


def _findings(source: m.FilesSource) -> Iterator[Finding]:
    where = "path"
    if not source.path or "" in source.path:
        yield error(where, "is empty; name the files, such as data/*.jsonl")
        return
    for index, path in enumerate(source.path):
        at = f"{where}.{index}" if len(source.path) > 1 else where
        if Path(path).is_dir():
            yield error(at, f"{path} is a folder; name the files in it, such as {path.rstrip('/')}/*.jsonl")
        elif path.endswith(".parquet") and isinstance(source.format, m.CsvFormat):
            yield error("format", f"is CSV, and {path} is Parquet, whose rows are JSON; leave it out")
        elif path in source.path[:index]:
            yield error(at, f"{path} is listed twice, so each record would count twice; keep one of them")
        elif not (files := files_matching(path)):
            yield warning(at, f"no file matches {path} now")
        else:
            texts = (Path(file) for file in files[:_EXAMINED] if not file.endswith(".parquet"))
            yield from (error(at, message) for message in islice(filter(None, map(refusal_of, texts)), 1))
    if not source.header and not isinstance(source.format, m.CsvFormat):
        yield error("header", "is for CSV; leave it out, or give format: {csv: {columns: [...]}}")


def _not_written(source: m.FilesSource) -> str:
    return (
        f"the files {source.place} are not windrow's to write: correct the pipeline and replay them (windrow replay), "
        "or put corrected records into a new file"
    )


FILES = Connector(
    SourceConnector(
        (m.FilesSource,),
        Section(
            "wr.files",
            m.FilesSource,
            (
                Key(
                    "path",
                    NAMES,
                    "the files: a glob pattern, such as `data/**/*.jsonl`, or the name of one file. Each pattern of a "
                    "list is a partition of its own.",
                    required=True,
                    positional=True,
                ),
                Key("format", FILES_FORMAT, f"{FORMAT_DOC}; or [CSV](#csv).", default=m.FilesSource.format),
                Key(
                    "header",
                    FLAG,
                    "whether the first line of a CSV file names the columns, in the order of `format`.",
                    default=m.FilesSource.header,
                ),
            ),
        ),
        lambda source: (
            f"the files {source.place}, in the order of their names{format_words(source)}"
            + ("" if source.header else ", without headers")
        ),
        "[files](../connectors/files.md) that are written once: JSON lines, CSV or Parquet.",
        dataset=lambda source: ("file", str(Path(source.root).absolute())),
        findings=_findings,
        log="windrow.connectors.files.source:OrderedFiles",
        not_written=_not_written,
    )
)
