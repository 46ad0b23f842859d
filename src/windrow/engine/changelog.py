"""Outputs of a step: changelog, late output, dead letters and clock journal, in the schemas of `windrow.engine.schema`.

The late output has a row for each window that an expired record missed, with the record's lateness.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import schema
from windrow.engine.columns import Micros, to_micros
from windrow.engine.duckdb_sql import Connection, identifier, literal, query
from windrow.engine.schema import END, ID, OFFSET, PARTITION, TIME, WATERMARK, WINDOW
from windrow.errors import INTERNAL, TRUNCATION
from windrow.expressions import AnySpec, Rows, sink_specs


@dataclass(frozen=True)
class StepOutput:
    """The output rows of a step, or of one key group in a step, in the schemas of `windrow.engine.schema`."""

    changes: pa.Table
    late: pa.Table
    dead: pa.Table
    clocks: pa.Table

    @staticmethod
    def empty(rows: Rows) -> StepOutput:
        """Return an output without rows."""
        return StepOutput(schema.changes(rows).empty_table(), schema.NO_LATE, schema.NO_DEAD, schema.NO_CLOCKS)

    @staticmethod
    def concat(parts: Iterable[StepOutput]) -> StepOutput:
        """Concatenate the outputs of several key groups; there must be at least one."""
        tables = zip(*((part.changes, part.late, part.dead, part.clocks) for part in parts), strict=True)
        return StepOutput(*map(pa.concat_tables, tables))


_REASON = (
    r"(?s)^((?:missing|null|wrong type|out of range|future|expression|null key|long key|conflict|unavailable|internal)"
    rf": [^ :]+|{re.escape(TRUNCATION)}|[^:]*).*$"
)
"""Matches a reason and captures its kind: the first words, and the name of the field that it is about, if any."""
_KINDS = 20


def reason_kinds(dead: Iterable[pa.Table]) -> dict[str, int]:
    """Count dead letters by the kind of their reason, such as ``missing: amount``.

    Only the 20 most frequent kinds are returned, those of defects first.
    """
    chunks = [chunk for letters in dead if letters.num_rows for chunk in letters.column("reason").chunks]
    if not chunks:
        return {}
    kinds = pc.replace_substring_regex(pa.chunked_array(chunks), _REASON, r"\1")
    counts = {count["values"]: count["counts"] for count in kinds.value_counts().to_pylist()}
    order = sorted(counts, key=lambda kind: (not kind.startswith(f"{INTERNAL}: "), -counts[kind], kind))
    return {kind: counts[kind] for kind in order[:_KINDS]}


def concat_by_sink(
    nothing: Mapping[str, StepOutput], parts: Iterable[Mapping[str, StepOutput]]
) -> dict[str, StepOutput]:
    """Concatenate the outputs of several key groups for each sink.

    The parameter `nothing` maps each sink to an output without rows.
    """
    outputs = list(parts)
    return {name: StepOutput.concat([none, *(part[name] for part in outputs)]) for name, none in nothing.items()}


def empty_by_sink(graph: m.Graph) -> dict[str, StepOutput]:
    """Map each sink of a graph to an output without rows."""
    return {name: StepOutput.empty(spec.rows) for name, spec in sink_specs(graph).items()}


def source_numbers(graph: m.Graph, partitions: pa.ChunkedArray) -> Micros:
    """Return the index of the source that each partition number of a graph belongs to."""
    numbers = to_micros(partitions)
    # rows without a record have a partition after all others
    return np.minimum(numbers // m.MAX_PARTITIONS, len(graph.sources) - 1)


def source_places(graph: m.Graph, partitions: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return the label of each partition's source, and the partition's number in that source."""
    numbers = source_numbers(graph, partitions)
    labels = pa.array([source.source.label for source in graph.sources], pa.string()).take(pa.array(numbers))
    return labels, pa.array(to_micros(partitions) - numbers * m.MAX_PARTITIONS, pa.int32())


def with_labels(graph: m.Graph, table: pa.Table) -> pa.Table:
    """Replace a graph's partition numbers with the label of the source and the partition's number in that source.

    Dead letters without a partition are not changed.
    """
    if len(graph.sources) == 1 or not table.num_rows:
        return table
    partitions = table.column("partition")
    labels, numbers = source_places(graph, partitions.fill_null(0))
    if partitions.null_count:
        labels = pc.if_else(partitions.is_valid(), labels, table.column("source"))
        numbers = pc.if_else(partitions.is_valid(), numbers, pa.scalar(None, pa.int32()))
    for name, values in (("source", labels), ("partition", numbers)):
        at = table.column_names.index(name)
        table = table.set_column(at, table.schema.field(at), values)
    return table


def with_numbers(graph: m.Graph, table: pa.Table) -> pa.Table:
    """Replace each source's own partition numbers with the graph's partition numbers: the inverse of `with_labels`."""
    if len(graph.sources) == 1:
        return table
    labels = pa.array([source.source.label for source in graph.sources], pa.string())
    sources = pc.index_in(table.column("source"), labels).cast(pa.int64())
    numbers = pc.add(pc.multiply(sources, m.MAX_PARTITIONS), table.column("partition").cast(pa.int64()))
    at = table.column_names.index("partition")
    return table.set_column(at, table.schema.field(at), numbers.cast(pa.int32()))


ROW = "__row"
"""Name of a row's `ID` in the late output, where several rows can have the same place; no field has this name."""


def late_output(connection: Connection, spec: AnySpec, expired: pa.Table) -> pa.Table:
    """Build the late output, in log order, from expired records with columns for their window and watermark."""
    if expired.num_rows == 0:
        return schema.NO_LATE
    fields = spec.decode.fields
    members = [f"{literal(field.name)}: {json_value(identifier(field.name), field.type)}" for field in fields]
    if ID in expired.column_names:
        members.append(f"{literal(ROW)}: {ID}")
    record = ", ".join(members)
    sql = f"""
        SELECT {literal(spec.source.label)} AS source, {PARTITION} AS "partition", {OFFSET} AS "offset",
            {TIME} AS event_time, {WINDOW} AS window_start, {END} AS window_end,
            ({WATERMARK} - {END}) // 1000 AS lateness_ms, 'expired' AS reason, to_json({{{record}}}) AS record
        FROM expired ORDER BY {PARTITION}, {OFFSET}, {WINDOW}, {END}
    """
    return query(connection, sql, expired=expired).cast(schema.LATE)


def json_value(value: str, type_: m.DataType, depth: int = 0) -> str:
    """Return SQL that converts a value to a form that JSON holds without loss: decimals as text, times in ISO 8601."""
    match type_:
        case m.DecimalType():
            return f"{value}::VARCHAR"
        case m.TimestampType():
            return f"strftime({value} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')"
        case m.ArrayType(element):
            variable = f"__{depth}"
            return f"list_transform({value}, lambda {variable}: {_json_element(variable, element, depth + 1)})"
        case _:
            return value


def _json_element(value: str, type_: m.SimpleType | m.StructType, depth: int) -> str:
    if not isinstance(type_, m.StructType):
        return json_value(value, type_, depth)
    members = (
        f"{literal(field.name)}: {json_value(f'{value}.{identifier(field.name)}', field.type, depth)}"
        for field in type_.fields
    )
    return f"CASE WHEN {value} IS NOT NULL THEN {{{', '.join(members)}}} END"
