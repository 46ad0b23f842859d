"""State report: what the state of key groups contains, in bytes, keys, windows and blobs."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import schema
from windrow.engine.columns import unpack, unscale
from windrow.engine.duckdb_sql import Connection, query
from windrow.engine.operators.registry import build_operator
from windrow.engine.operators.route import side_schema, stream_schema
from windrow.engine.operators.session.fragments import FRAGMENT_FIELDS
from windrow.engine.operators.window.slices import windows_of_slices
from windrow.engine.operators.window.sql import window_sql
from windrow.engine.state.store import MemoryState
from windrow.engine.watermarks.clocks import PartitionClocks
from windrow.engine.watermarks.sources import sources_of
from windrow.errors import InputError
from windrow.expressions import join_sides, spec_of, stream_of


@dataclass(frozen=True)
class KeyGroupReport:
    """The state of a key group: its size in bytes, and its numbers of keys and blobs.

    A blob has the panes of a window, a slice, or a bucket of keys.
    """

    group: int
    bytes: int
    keys: int
    blobs: int


@dataclass(frozen=True)
class StateReport:
    """The state of all key groups.

    The `clocks` are identical in all key groups, and None before the first step. `windows` is the number of windows of
    all streams that are open in at least one key group; sessions are counted for each key. `revisable` is the number of
    windows, without sessions, that have fired and are kept for revisions. `kinds` has the bytes of each kind of blob,
    and `largest` has the largest blobs as (bytes, key group, kind, bucket).
    """

    clocks: PartitionClocks | None
    windows: int
    revisable: int
    groups: tuple[KeyGroupReport, ...]
    kinds: dict[str, int]
    largest: tuple[tuple[int, int, str, int], ...]


def inspect_state(graph: m.Graph, states: Iterable[tuple[int, MemoryState]], largest: int = 5) -> StateReport:
    """Count the windows, keys and bytes in the states of a pipeline's key groups."""
    clocks: PartitionClocks | None = None
    keyed = {node.name: node for node in graph.keyed}
    stores = {name: build_operator(graph, node).state for name, node in keyed.items()}
    open_windows: set[tuple[str, int]] = set()
    fired: set[tuple[str, int]] = set()
    sessions = 0
    groups: list[KeyGroupReport] = []
    kinds: Counter[str] = Counter()
    blobs: list[tuple[int, int, str, int]] = []
    for group, state in states:
        summary = state.summary()
        if summary is not None:
            fields = json.loads(summary)
            clocks = PartitionClocks.decode(fields["clocks"])
            lows = {node.name: clocks.low(sources_of(graph, node)) for node in graph.keyed}
            for name, node in keyed.items():
                own = fields["operators"][name]
                open_windows.update((name, start) for start in own.get("open", ()))
                open_windows.update((name, start) for start in _windows_of_slices(node, own, lows[name]))
                fired.update((name, start) for start in own.get("fired", ()))
                if isinstance(node, m.WindowNode) and isinstance(node.window, m.Session):
                    sessions += sum(bucket[-1] for bucket in own["buckets"])
        found: dict[str, list[pa.Table]] = {name: [] for name in keyed}
        count = 0
        for (kind, bucket), blob in state.items():
            count += 1
            kinds[kind] += len(blob)
            blobs.append((len(blob), group, kind, bucket))
            table = unpack(blob)
            stream, _, own_kind = kind.rpartition("/")
            is_text = stores[stream].get(own_kind) == "keys"
            found[stream].append(table.select(["key"] if is_text else list(keyed[stream].key)))
        blobs = sorted(blobs, reverse=True)[:largest]
        groups.append(KeyGroupReport(group, state.size, sum(map(_distinct_keys, found.values())), count))
    return StateReport(
        clocks, len(open_windows) + sessions, len(fired), tuple(groups), dict(sorted(kinds.items())), tuple(blobs)
    )


@dataclass(frozen=True)
class KeyRows:
    """The rows of a key in one stored table: the panes of a window, a slice, or a bucket of keys."""

    group: int
    kind: str
    bucket: int
    rows: pa.Table


def rows_of_key(
    graph: m.Graph,
    states: Iterable[tuple[int, MemoryState]],
    key: Mapping[str, str],
    read: Callable[[pa.Field, str], Any],
) -> Iterator[KeyRows]:
    """Yield the stored rows of a key, or of all keys that have the given values.

    The function `read` converts a text to the Arrow value of a column. Raise InputError if no stream has such a key, or
    if the key belongs to a process function, which stores keys in its own form.
    """
    keys = {node.name: node.key for node in graph.keyed}
    streams = {name for name, fields in keys.items() if key.keys() <= set(fields)}
    if not streams:
        known = "; ".join(", ".join(fields) for fields in keys.values() if fields) or "none"
        msg = f"no stream has the key {', '.join(key)}; the keys are {known}"
        raise InputError(msg)
    if any(isinstance(graph.producer(name), m.ProcessNode) for name in streams):
        msg = "the state of a process function is stored in its own format, which cannot be shown by key"
        raise InputError(msg)
    for group, state in states:
        for (kind, bucket), blob in state.items():
            stream, _, _ = kind.rpartition("/")
            if stream not in streams:
                continue
            rows = unpack(blob)
            for name, text in key.items():
                field = rows.schema.field(name)
                rows = rows.filter(pc.equal(rows[name], pa.scalar(read(field, text), field.type)))
            if rows.num_rows:
                yield KeyRows(group, kind, bucket, rows)


def _windows_of_slices(node: m.KeyedNode, summary: Any, low: int) -> set[int]:  # noqa: ANN401 - plain JSON
    """Return the open windows that contain the stored slices."""
    slices = dict(summary.get("slices", ())).get(0, ())
    if not isinstance(node, m.WindowNode) or not isinstance(node.window, m.Sliced) or not slices:
        return set()
    return windows_of_slices(node.window, slices, low)


def _distinct_keys(tables: list[pa.Table]) -> int:
    """Return the number of distinct keys in tables.

    A process function stores its keys as text, but the keys of held records as columns.
    """
    by_columns: defaultdict[tuple[str, ...], list[pa.Table]] = defaultdict(list)
    for table in tables:
        by_columns[tuple(table.schema.names)].append(table)
    return max(map(_count_rows, by_columns.values()), default=0)


def _count_rows(tables: list[pa.Table]) -> int:
    if not tables[0].num_columns:  # without key columns there is a single key
        return int(any(table.num_rows for table in tables))
    rows = pa.concat_tables(tables)
    return int(rows.group_by(rows.column_names).aggregate([]).num_rows)


def state_schema(graph: m.Graph, node: m.KeyedNode | m.SinkNode, kind: str) -> pa.Schema:
    """Return the schema of the rows in a kind of a node's state, such as ``panes`` or the ``left`` side of a join."""
    match node:
        case m.WindowNode():
            spec = spec_of(graph, node)
            if stream_of(graph, node.input).is_changelog:
                return schema.record_schema(spec).append(pa.field(schema.DIFF, pa.int64()))
            records = unscale(schema.record_schema(spec).empty_table())
            for name in (schema.WINDOW, schema.END):
                records = records.append_column(name, pa.array([], pa.int64()))
            # the accumulators of a session are those of any window
            begin = window_sql(replace(spec, node=replace(node, window=m.Tumbling(1)))).begin
            panes = query(Connection(), begin, records=records).schema
            more = FRAGMENT_FIELDS if isinstance(node.window, m.Session) else ()
            columns = [column for column in panes if column.name != schema.WINDOW]
            return pa.schema([*columns, *(pa.field(name, pa.int64()) for name in more)])
        case m.JoinNode() | m.LookupNode() | m.TableJoinNode():
            left, right = join_sides(graph, node)
            side = side_schema(left if kind == "left" else right)
            return pa.schema([column for column in side if column.name != schema.SIDE])
        case m.TableNode():
            return stream_schema(stream_of(graph, node.input), schema.record_schema(spec_of(graph, node)))
        case m.RulesNode() | m.ProcessNode() | m.SinkNode():
            return schema.record_schema(spec_of(graph, node))
        case _:  # a row for each key
            records = schema.record_schema(spec_of(graph, node))
            return pa.schema([*(records.field(name) for name in node.key), records.field(schema.TIME)])
