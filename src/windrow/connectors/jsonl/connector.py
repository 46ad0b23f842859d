"""The connector for JSON lines files."""

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
    """JSON lines files of changes in a folder, one file per step: ``PATH/TABLE/step-N.jsonl``."""

    section: ClassVar[str] = "jsonl"
    system: ClassVar[str] = "jsonl"

    def companion(self, name: m.Companion) -> str:
        """Return the pattern of the companion files of a kind, such as the dead letters."""
        return f"{self.table}/{name}-*.jsonl"

    @property
    def reasons(self) -> str:
        """A description of where the reasons of dead letters are stored."""
        return f"the field `reason` in the files {self.path}/{self.companion('dead')}"


def jsonl(path: str | PathLike[str], *, table: str) -> JsonlSink:
    """Write changes to JSON lines files in a folder, one file per step: ``PATH/TABLE/step-N.jsonl``.

    Late output, dead letters and clocks are written to ``late-N.jsonl``, ``dead-N.jsonl`` and ``clocks-N.jsonl``
    beside it, if a step has any.
    """
    return JsonlSink(fspath(path), table)


JSONL = Connector(
    sink=SinkConnector(
        (JsonlSink,),
        Section("wr.jsonl", JsonlSink, settings.FOLDER_SINK_KEYS),
        lambda sink: f"changes in the JSON lines files {sink.table}/step-*.jsonl in {sink.path}",
        "[JSON lines files](../connectors/jsonl.md) of changes, a file for each step.",
        dataset=settings.folder_dataset,
        tables="windrow.connectors.jsonl.sink:JsonlFolder",
        findings=settings.folder_sink_findings,
        called="a folder of JSON lines files of changes",
        row_bytes="windrow.connectors.row_bytes:json",
    )
)
