"""The connector for small tables in files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from windrow import model as m
from windrow.connectors.base import Connector, SourceConnector
from windrow.connectors.not_text import refusal_of
from windrow.connectors.settings import log_dataset
from windrow.declare.findings import Finding, error, warning
from windrow.declare.spec import NAMES, TEXT, Key, Section

_ENDINGS = (".csv", ".jsonl", ".ndjson")


def _findings(source: m.FileSource) -> Iterator[Finding]:
    if not source.path.endswith(_ENDINGS):
        yield error("path", f"{source.path!r} must be CSV (its name ends in .csv) or JSON lines (.jsonl, .ndjson)")
    elif not Path(source.path).is_file():
        yield warning("path", f"there is no file {source.path}, and a run needs it when it starts")
    elif (message := refusal_of(Path(source.path))) is not None:
        yield error("path", message)
    if not source.log:
        yield error("log", "is empty; name the folder in which changes to the file are kept")


FILE = Connector(
    SourceConnector(
        (m.FileSource,),
        Section(
            "wr.file",
            m.FileSource,
            (
                Key(
                    "path",
                    TEXT,
                    "the file: CSV with a header (`.csv`), or one JSON object per line (`.jsonl`, `.ndjson`).",
                    required=True,
                    positional=True,
                ),
                Key("key", NAMES, "the decoded fields that identify a row of the file.", required=True),
                Key("log", TEXT, "the folder of the log; created if it does not exist.", required=True),
            ),
        ),
        lambda source: (
            f"the file {source.path}, whose changes by {', '.join(source.key)} are in the embedded log {source.log}"
        ),
        "[a small table in a file](../connectors/file.md), CSV or JSON lines, that people edit.",
        dataset=log_dataset,
        findings=_findings,
        follower="windrow.connectors.file.source:follow_file",
        not_written=lambda source: (
            f"the log {source.label} is written by the run that follows {source.path}: change the file instead, which "
            "is then read again"
        ),
    )
)
