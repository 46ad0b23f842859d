"""The connector for embedded logs."""

from __future__ import annotations

from collections.abc import Iterator

from windrow import model as m
from windrow.connectors.base import Connector, SourceConnector
from windrow.connectors.settings import FORMAT_DOC, format_words, log_dataset
from windrow.declare.findings import Finding, error
from windrow.declare.formats import TEXT_FORMAT
from windrow.declare.spec import TEXT, Key, Section


def _findings(source: m.LogSource) -> Iterator[Finding]:
    if not source.path:
        yield error("path", "is empty; name the folder that holds partition-0.jsonl ...")


LOG = Connector(
    SourceConnector(
        (m.LogSource,),
        Section(
            "wr.log",
            m.LogSource,
            (
                Key("path", TEXT, "the folder.", required=True, positional=True),
                Key("format", TEXT_FORMAT, f"{FORMAT_DOC}.", default=m.LogSource.format),
            ),
        ),
        lambda source: f"the embedded log {source.path}, each partition in offset order{format_words(source)}",
        "[an embedded log](../connectors/log.md) on disk: a folder of JSON lines.",
        dataset=log_dataset,
        findings=_findings,
        log="windrow.connectors.log.source:EmbeddedLog",
        appender="windrow.connectors.log.append:log_appender",
    )
)
