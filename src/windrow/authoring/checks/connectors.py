"""Checks of sources and sinks: the findings of their connectors, and the sink's key and digits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from windrow import model as m
from windrow.authoring.checks.base import ResultSpec, decoded_type, no_field, result_names, sink_path, type_of
from windrow.declare.findings import Finding, error, warning
from windrow.expressions import WindowSpec


def source_settings(node: m.SourceNode) -> Iterator[Finding]:
    """The settings of the source are valid for its connector."""
    from windrow.connectors.registry import source_connector  # noqa: PLC0415 - it loads YAML

    source = node.source
    for finding in source_connector(source).findings(source):
        yield replace(finding, where=f"source.{source.section}.{finding.where}")


def sink_settings(sink: m.Sink) -> Iterator[Finding]:
    """The settings of the sink are valid for its connector."""
    from windrow.connectors.registry import sink_connector  # noqa: PLC0415 - as above

    for finding in sink_connector(sink).findings(sink):
        yield replace(finding, where=f"{sink_path(sink)}.{finding.where}")


def file_fields(node: m.SourceNode) -> Iterator[Finding]:
    """A file has a key of decoded fields, and decodes whether a row was deleted."""
    if not isinstance(node.source, m.FileSource):
        return
    if not node.source.key:
        yield error("source.file.key", "is empty; name the fields that identify a row of the file")
    for index, name in enumerate(node.source.key):
        if decoded_type(node, name) is None:
            yield error(f"source.file.key.{index}", no_field(node, name))
        elif node.decode.field(name).path:
            yield error(f"source.file.key.{index}", f"{name!r} is in a nested object; use a field that has no path")
    deleted = decoded_type(node, m.DELETED)
    if deleted is None:
        message = (
            f"a row that is removed from the file is read once more, with {m.DELETED!r}; decode {m.DELETED}: boolean"
        )
        yield warning("decode", message)
    elif deleted != m.BooleanType():
        yield error(f"decode.{m.DELETED}", f"{m.DELETED!r} is a {deleted}, but in the log of a file it is a boolean")


def sink_key(spec: ResultSpec, sink: m.Sink) -> Iterator[Finding]:
    """The key distinguishes windows and keys, and does not change in revisions."""
    key = sink.key
    if not key:
        return
    where = f"{sink_path(sink)}.key"
    if isinstance(spec.node, m.RulesNode):
        yield error(where, "is for windows: the table of alerts has the primary key alert_id; remove `key`")
        return
    # with mode discard each pane is a row
    revision = ("revision",) if isinstance(spec.node, m.WindowNode) and spec.node.emit.mode == "discard" else ()
    # cumulate windows share their starts
    is_cumulate = isinstance(spec.node, m.WindowNode) and isinstance(spec.node.window, m.Cumulate)
    bounds = ("window_start", "window_end") if is_cumulate else ("window_start",)
    missing = [name for name in (*bounds, *spec.key, *revision) if name not in key]
    if missing:
        yield error(where, f"lacks {', '.join(missing)}, so rows would overwrite each other; add it, or remove `key`")
    identity = ("window_start", "window_end", *spec.key, *revision)
    values = {name for _, name in result_names(spec)}
    for index, name in enumerate(key):
        if name in values:
            message = f"{name!r} is a result, which revisions change; a key consists of {', '.join(identity)}"
            yield error(f"{where}.{index}", message)
        elif name not in identity:
            yield error(f"{where}.{index}", f"there is no column {name!r}; a key consists of {', '.join(identity)}")
        if name in key[:index]:
            yield error(f"{where}.{index}", f"{name!r} is given twice in the key; keep one of them")


_SQLITE_DIGITS = 15


def sqlite_digits(spec: WindowSpec, sink: m.Sink) -> Iterator[Finding]:
    """SQLite keeps 15 digits of a NUMERIC; a sum is assumed to be up to a hundred times its terms."""
    if not isinstance(sink, m.SqliteSink) or sink.decimals == "text":
        return
    for aggregate in spec.node.aggregates:
        type_, more = _digits_needed(spec, aggregate.function)
        if isinstance(type_, m.DecimalType) and type_.precision + more > _SQLITE_DIGITS:
            message = (
                f"over a {type_} can need more than {_SQLITE_DIGITS} digits, which NUMERIC rounds; set `decimals: text`"
            )
            yield warning(f"aggregate.{aggregate.name}", message)


def _digits_needed(spec: WindowSpec, function: m.Function) -> tuple[m.DataType | None, int]:
    """Return the type of an aggregate's argument, and how many more digits its result may have."""
    if isinstance(function, m.Count | m.Custom | m.Formula):
        return None, 0
    more = {"argument": 0, "sum": 2, "mean": 6}.get(m.function_spec(function).result)
    return (None, 0) if more is None else (type_of(spec, function.of), more)
