"""The connector of JSON lines files."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from typing import ClassVar

from windrow import model as m
from windrow.connectors import settings
from windrow.connectors.base import Connector, SinkConnector
from windrow.declare.spec import Section


@dataclass(frozen=True)
class JsonlSink(m.FolderSink):
    """JSON lines files of changes in a folder: ``PATH/TABLE/step-N.jsonl``, a file for each step."""

    section: ClassVar[str] = "jsonl"
    system: ClassVar[str] = "jsonl"

    def companion(self, name: m.Companion) -> str:
        """Return the files beside those of the changes."""
        return f"{self.table}/{name}-*.jsonl"

    @property
    def reasons(self) -> str:
        """Where the reasons of dead letters are, in words."""
        return f"the field `reason` in the files {self.path}/{self.companion('dead')}"


def jsonl(path: str | PathLike[str], *, table: str) -> JsonlSink:
    """Write changes to JSON lines files in a folder: ``PATH/TABLE/step-N.jsonl``, a file for each step.

    Beside it are ``late-N.jsonl``, ``dead-N.jsonl`` and ``clocks-N.jsonl``, where a step has such rows.
    """
    return JsonlSink(fspath(path), table)


JSONL = Connector(
    sink=SinkConnector(
        (JsonlSink,),
        Section("wr.jsonl", JsonlSink, settings.FOLDER_SINK_KEYS),
        lambda sink: f"changes in the JSON lines files {sink.table}/step-*.jsonl in {sink.path}",
        "[JSON lines files](../guides/lakes.md#json-lines) of changes, a file for each step: "
        "`PATH/TABLE/step-N.jsonl`. There is no result table, as files cannot be updated.",
        dataset=settings.folder_dataset,
        tables="windrow.connectors.jsonl.sink:JsonlFolder",
        findings=settings.folder_sink_findings,
        called="a folder of JSON lines files of changes",
        row_bytes="windrow.connectors.row_bytes:json",
    )
)
