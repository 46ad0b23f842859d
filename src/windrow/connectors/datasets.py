"""Names of datasets as OpenLineage has them: the namespace, and the name within."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

_KAFKA_PORT: Final = "9092"


def file_dataset(sink: Any, table: str) -> tuple[str, str]:  # noqa: ANN401 - settings with a path
    """Return the name of a table in the file of a database: OpenLineage has none, here the file is the namespace."""
    return f"{sink.system}://{Path(sink.path).absolute()}", table


def folder_dataset(sink: Any, table: str) -> tuple[str, str]:  # noqa: ANN401 - the same
    """Return the name of a table that is a folder."""
    return "file", str(Path(sink.path).absolute() / table)


def log_dataset(source: Any) -> tuple[str, str]:  # noqa: ANN401 - the same
    """Return the name of a log that is a file or a folder."""
    return "file", str(Path(source.path).absolute())


def kafka_namespace(servers: str) -> str:
    """Return the namespace of the first of some brokers."""
    first = servers.partition(",")[0].strip().rpartition("://")[2]
    return f"kafka://{first}" if re.search(r":\d+$", first) else f"kafka://{first}:{_KAFKA_PORT}"
