"""Event-time analytics on Spark whose answers do not change when the log is replayed."""

from __future__ import annotations

from os import PathLike, fspath

from windrow.api.fluent.functions import avg, count
from windrow.api.fluent.functions import max_ as max  # noqa: A004 the field's name, read as wr.max
from windrow.api.fluent.functions import min_ as min  # noqa: A004 the same
from windrow.api.fluent.functions import sum_ as sum  # noqa: A004 the same
from windrow.api.fluent.sinks import postgres, sqlite
from windrow.api.fluent.sources import kafka, log
from windrow.api.fluent.windows import tumbling
from windrow.errors import WindrowError
from windrow.model import Pipeline

__all__ = [
    "Pipeline",
    "WindrowError",
    "avg",
    "count",
    "kafka",
    "load",
    "log",
    "max",
    "min",
    "postgres",
    "sqlite",
    "sum",
    "tumbling",
]


def load(path: str | PathLike[str]) -> Pipeline:
    """Read a pipeline from a YAML file, or from ``file.py`` or ``file.py:variable``.

    Paths in the file are relative to the current directory. Raise PipelineError, with file:line, for all that is wrong.
    """
    # YAML is read by few who import windrow: Spark's workers, for one, do without
    from windrow.api.opened import open_pipeline  # noqa: PLC0415

    return open_pipeline(fspath(path)).valid()
