"""Event-time analytics on Spark with results that stay the same when the log is replayed."""

# ruff: noqa: E402 - Ctrl-C is handled first

import os as _os
import signal as _signal
import sys as _sys


def _end_process(*_: object) -> None:
    _os._exit(130)


# The imports below take a tenth of a second in a process that is the command (not a program that imports windrow).
# Ctrl-C can end it meanwhile without harm, and should print no stack trace.
if (
    _os.path.basename(_sys.argv[0]) == "windrow"  # noqa: PTH119 - quick to load
    or (_sys.argv[0] == "-m" and "windrow" in _sys.orig_argv)
) and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _end_process)

from collections.abc import Mapping as _Mapping
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import TypeAlias as _TypeAlias

from windrow.client.arguments import checked as _checked
from windrow.client.fluent.aggregates import (
    approx_count_distinct,
    approx_quantile,
    avg,
    bool_and,
    bool_or,
    bottom_k_by,
    collect_list,
    collect_list_in_log,
    collect_set,
    count,
    count_distinct,
    custom,
    first,
    first_in_log,
    formula,
    last,
    last_in_log,
    max,  # noqa: A004 the field's name, read as wr.max
    max_by,
    min,  # noqa: A004 the field's name, read as wr.min
    min_by,
    quantile,
    stddev,
    sum,  # noqa: A004 the field's name, read as wr.sum
    top_k,
    top_k_by,
    variance,
)
from windrow.client.fluent.alerts import alerts
from windrow.client.fluent.connectors import file, files, kafka, log, postgres_cdc
from windrow.client.fluent.formats import avro, csv, json_schema, protobuf, registry
from windrow.client.fluent.graph import graph
from windrow.client.fluent.process import list_state, map_state, value_state
from windrow.client.fluent.rules import list_file, list_topic, recent, rule
from windrow.client.fluent.streams import field
from windrow.client.fluent.windows import (
    adaptive,
    all_of,
    any_of,
    cumulate,
    delay_by_partition,
    every,
    every_count,
    every_event_time,
    global_window,
    hopping,
    repeat,
    session,
    tumbling,
    when,
)
from windrow.client.pipeline import Pipeline
from windrow.errors import PipelineError as _PipelineError
from windrow.errors import WindrowError
from windrow.model import Context, CustomAggregate, PaneSoFar, Timer

if _TYPE_CHECKING:
    from windrow.client import plot
    from windrow.client.compare import diff
    from windrow.client.tables import read_table
    from windrow.connectors.delta.connector import delta
    from windrow.connectors.duckdb.connector import duckdb
    from windrow.connectors.jsonl.connector import jsonl
    from windrow.connectors.kafka.connector import kafka_sink
    from windrow.connectors.parquet.connector import parquet
    from windrow.connectors.postgres.connector import postgres
    from windrow.connectors.sqlite.connector import sqlite

__all__ = [
    "Context",
    "CustomAggregate",
    "PaneSoFar",
    "Pipeline",
    "ProcessPipeline",
    "RulesPipeline",
    "Timer",
    "WindrowError",
    "adaptive",
    "alerts",
    "all_of",
    "any_of",
    "approx_count_distinct",
    "approx_quantile",
    "avg",
    "avro",
    "bool_and",
    "bool_or",
    "bottom_k_by",
    "collect_list",
    "collect_list_in_log",
    "collect_set",
    "count",
    "count_distinct",
    "csv",
    "cumulate",
    "custom",
    "delay_by_partition",
    "delta",
    "diff",
    "duckdb",
    "every",
    "every_count",
    "every_event_time",
    "field",
    "file",
    "files",
    "first",
    "first_in_log",
    "formula",
    "global_window",
    "graph",
    "hopping",
    "json_schema",
    "jsonl",
    "kafka",
    "kafka_sink",
    "last",
    "last_in_log",
    "list_file",
    "list_state",
    "list_topic",
    "load",
    "log",
    "map_state",
    "max",
    "max_by",
    "min",
    "min_by",
    "parquet",
    "plot",
    "postgres",
    "postgres_cdc",
    "protobuf",
    "quantile",
    "read_table",
    "recent",
    "registry",
    "repeat",
    "rule",
    "session",
    "sql",
    "sqlite",
    "stddev",
    "sum",
    "top_k",
    "top_k_by",
    "tumbling",
    "value_state",
    "variance",
    "when",
]


ProcessPipeline: _TypeAlias = Pipeline
"""A pipeline whose rows a process function makes."""
RulesPipeline: _TypeAlias = Pipeline
"""A pipeline whose rows are alerts of rules."""

_LATER = {
    "plot": "windrow.client.plot",
    "diff": "windrow.client.compare",
    "read_table": "windrow.client.tables",
    "kafka_sink": "windrow.connectors.kafka.connector",
    **{
        name: f"windrow.connectors.{name}.connector"
        for name in ("delta", "duckdb", "jsonl", "parquet", "postgres", "sqlite")
    },
}
"""The functions, and the module `plot`, that are imported at their first use."""


def __getattr__(name: str) -> object:
    if name not in _LATER:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module = _import_module(_LATER[name])
    if name == "plot":
        return module
    found = getattr(module, name)
    # connectors cannot import the module that checks arguments
    found = globals()[name] = _checked(found) if _LATER[name].startswith("windrow.connectors.") else found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


@_checked
def load(
    path: str | _os.PathLike[str],
    *,
    vars: _Mapping[str, str] | None = None,  # noqa: A002 - as the option is called
    profile: str | None = None,
    only: str | None = None,
) -> Pipeline:
    """Read a pipeline or graph from a YAML or SQL file, ``file.py`` or ``file.py:variable``.

    `vars` replace ``${NAME}`` in the file, before the environment and the `profile` in ``windrow.yaml`` beside it (by
    default the profile in WINDROW_PROFILE). `only` selects a pipeline by name if the file has several. Paths in the
    file are relative to the current directory. Raise a PipelineError that lists all errors with file:line.
    """
    # imported here because few importers of windrow read YAML, and Spark's workers do not
    from windrow.authoring.load import open_pipeline, split_spec  # noqa: PLC0415
    from windrow.authoring.variables import Given  # noqa: PLC0415 - as above

    try:
        return Pipeline(open_pipeline(_os.fspath(path), Given(vars or {}, profile, only)).runnable())
    except _PipelineError as exc:
        if split_spec(_os.fspath(path)):
            raise
        raise exc from None  # its cause may quote the value of a variable, which the error hides


@_checked
def sql(text: str) -> Pipeline:
    """Read a pipeline or graph from SQL text; raise the same errors as `load`."""
    from windrow.authoring.load import parse_sql  # noqa: PLC0415 - as above

    return Pipeline(parse_sql(text))
