"""Routing of a stream's records through stateless nodes to the key groups of the nodes downstream.

A router serves one node: a source, whose records come from ingest, or a node with an operator, whose streams come from
a level. The stateless nodes below it (selections, splits, ...) are its stages. They run in the process that holds the
records.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.changelog import source_places
from windrow.engine.columns import pack, to_micros
from windrow.engine.decode.decoder import KeyedDecoder
from windrow.engine.decode.evaluation import Evaluator
from windrow.engine.decode.field_columns import Mask, all_but, holds_mask, to_mask
from windrow.engine.halving import compute_rows, is_of_rows
from windrow.engine.keys import MAX_KEY_BYTES, key_groups, place_groups, text_bytes
from windrow.engine.messages import DeadLetters, Packet, Records
from windrow.engine.operators.dead_letters import DeadLetterTable, RowDeadLetters
from windrow.engine.schema import DELETED, DIFF, ID, OFFSET, PARTITION, REPLACED, SIDE, TIME, WATERMARK, record_schema
from windrow.engine.truncations import split_truncations, with_truncations
from windrow.expressions import Computed, JoinSide, Stream, analyse, join_sides, spec_of, stream_of, united

CHUNK_RECORDS = 1 << 18
CHUNK_BYTES = 64 << 20
"""The number and size of records that are collected before they are split by key group."""
_Failures = tuple[pa.Table, list[str]]
"""Rejected records, and the reason for each."""
_StageOutput = tuple[dict[str, pa.Table], pa.Table, list[str]]
"""The streams of a stage by name, and `_Failures`."""


def input_schema(graph: m.Graph, node: m.KeyedNode | m.SinkNode) -> pa.Schema:
    """Return the schema of the input records of a stateful node; records of a changelog have a `DIFF`.

    Records of a join have the fields of both sides; the fields of the other side are null.
    """
    if isinstance(node, m.AnyJoinNode):
        return pa.unify_schemas([side_schema(side) for side in join_sides(graph, node)])
    (name,) = _inputs_of(node)
    return stream_schema(stream_of(graph, name), record_schema(spec_of(graph, node)))


def _inputs_of(node: m.KeyedNode | m.SinkNode) -> tuple[str, ...]:
    """Return the input streams of a node's operator; a table reads the versions of its rows."""
    return (m.versions_of(node.name),) if isinstance(node, m.TableNode) else node.inputs


def side_schema(side: JoinSide) -> pa.Schema:
    """Return the schema of the records of one side of a join."""
    places = [pa.field(PARTITION, pa.int32()), *(pa.field(name, pa.int64()) for name in (OFFSET, TIME, WATERMARK))]
    fields = [pa.field(side.names[field.name], schema.arrow_type(field.type)) for field in side.stream.fields]
    return stream_schema(side.stream, pa.schema([*places, *fields])).append(pa.field(SIDE, pa.int8()))


def stream_schema(stream: Stream, records: pa.Schema) -> pa.Schema:
    """Return the schema of a stream's records, including `ID`, `DELETED` and `DIFF` if the stream has them."""
    if stream.has_id:
        records = records.append(pa.field(ID, pa.string()))
    if stream.is_versions:
        records = records.append(pa.field(DELETED, pa.bool_()))
    return records.append(pa.field(DIFF, pa.int64())) if stream.is_changelog else records


class Router:
    """Turns the tables of a node's streams into packets for the nodes below that have an operator.

    Nodes in `local` are at the node's level and receive their records as tables.
    """

    def __init__(
        self,
        graph: m.Graph,
        node: m.Node,
        packed: Callable[[pa.Table], bytes] = pack,
        local: Container[str] = (),
    ) -> None:
        self._stages = []
        names = set(m.operator_outputs(node))
        for below in graph.nodes:
            if isinstance(below, m.ChangesNode) and names.intersection(below.inputs):
                names.add(below.name)  # ingest decodes them
            elif type(below) in _STAGES and names.intersection(below.inputs):
                self._stages.append(_STAGES[type(below)](graph, below))
                names.update([m.versions_of(below.name)] if isinstance(below, m.TableNode) else m.outputs_of(below))
        self._routes = [
            _Route(graph, below, place, packed, is_local=below.name in local, is_raw=isinstance(node, m.SourceNode))
            for below in graph.computed
            for place, name in enumerate(_inputs_of(below))
            if name in names
        ]
        self._key_groups = graph.key_groups

    @property
    def is_idle(self) -> bool:
        """Whether there is no node with an operator below."""
        return not self._routes

    def add(self, tables: Mapping[str, pa.Table], dead_letters: DeadLetterTable) -> Iterator[Packet]:
        """Add records of streams; yield packets of dead letters, and packets of records once many are collected."""
        known = dict(tables)
        for stage in self._stages:
            made, failed, reasons = _run(stage, known)
            known |= made
            yield from self._dead(stage.name, failed, reasons, dead_letters)
        for route in self._routes:
            if route.input in known:
                failed, reasons = route.add(known[route.input])
                yield from self._dead(route.name, failed, reasons, dead_letters)
                if route.is_full and not route.is_local:
                    yield from route.close()

    def close(self) -> Iterator[Packet]:
        """Yield the packets of all records that are still collected."""
        for route in self._routes:
            if not route.is_local:
                yield from route.close()

    def hand_over(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the name and records of each local node."""
        for route in self._routes:
            if route.is_local:
                yield from ((route.name, table) for table in route.take())

    def _dead(self, name: str, failed: pa.Table, reasons: Sequence[str], table: DeadLetterTable) -> Iterator[Packet]:
        if reasons:
            yield from dead_packets(name, table(failed, reasons), self._key_groups)


def dead_packets(to: str | None, dead: pa.Table, key_groups: int) -> Iterator[Packet]:
    """Pack dead letters; they have no key, so any key group can receive them."""
    if dead.num_rows:
        # dead letters of results have no partition
        yield Packet((dead.column("partition")[0].as_py() or 0) % key_groups, DeadLetters(to, pack(dead)))


def _run(stage: _Stage, tables: Mapping[str, pa.Table]) -> _StageOutput:
    """Return the streams of a stage, and its failures, including records that fail unexpectedly."""
    try:
        return stage.run(tables)
    except Exception as exc:
        if not is_of_rows(exc):
            raise
    parts = [part for name in stage.inputs if name in tables for part in _run_in_halves(stage, name, tables[name])]
    made = {name: pa.concat_tables([streams[name] for streams, _, _ in parts]) for name in parts[0][0]}
    return made, *_join([(failed, reasons) for _, failed, reasons in parts])


def _run_in_halves(stage: _Stage, name: str, records: pa.Table) -> list[_StageOutput]:
    def dead(record: pa.Table, reason: str) -> _StageOutput:
        made, _, _ = stage.run({name: record.slice(0, 0)})
        return made, record.slice(record.num_rows - 1), [reason]

    return compute_rows(stage.step, lambda some: stage.run({name: some}), records, dead, _middle)


def _middle(records: pa.Table) -> int:
    """Return the row at which records are divided; a replaced row stays together with the record that replaces it."""
    half: int = records.num_rows // 2
    return half + int(half > 0 and REPLACED in records.column_names and records.column(REPLACED)[half - 1].as_py())


_WHERE = "__where"


class _Selection:
    """A union, a filter, derived fields and a projection.

    Changes of rows arrive together with the rows that they replace. A replaced row whose columns cannot be computed is
    left out, because it has never been in a table. No column of a truncation is computed.
    """

    step = "select"

    def __init__(self, graph: m.Graph, node: m.SelectNode) -> None:
        self.name = node.name
        self.inputs = node.inputs
        self._duck = duckdb_sql.Connection()
        self._ids = _ids_of(graph, node)
        self._where = None if node.where is None else _condition(united(graph, node), node.where, "where")
        self._derived = _columns(united(graph, node), [(field.name, field.sql) for field in node.derive])
        self._derive = Evaluator(self._derived, "derive") if self._derived else None
        made = stream_of(graph, node.name)
        self._fields = [field.name for field in made.fields]
        self._are_changes = made.lacking is not None
        self._left_out = {DIFF} if self._are_changes else {DIFF, DELETED}

    def run(self, tables: Mapping[str, pa.Table]) -> _StageOutput:
        """Return the selected stream under its name, and the records for which an expression failed."""
        # streams of other sources are in other routers
        inputs = [self._with_ids(name, tables[name]) for name in self.inputs if name in tables]
        records = pa.concat_tables([table.select(inputs[0].column_names) for table in inputs])
        records, truncations = split_truncations(records if self._are_changes else _only_rows(records))
        failures: list[tuple[pa.Table, dict[int, str]]] = []
        if self._where is not None:
            (is_true,), failed = self._where.compute(records)
            failures.append((records, failed))
            records = records.filter(pa.array(holds_mask(is_true) & all_but(records.num_rows, failed)))
        if self._derive is not None:
            columns, failed = self._derive.compute(records)
            failures.append((records, _of_records(records, failed)))
            for column, values in zip(self._derived, columns, strict=True):
                records = records.append_column(column.name, values)
            records = records.filter(pa.array(all_but(records.num_rows, failed))) if failed else records
        own = [name for name in records.column_names if name.startswith("__") and name not in self._left_out]
        changes = [DIFF] if DIFF in records.column_names else []
        made = with_truncations(records.select([*own, *self._fields, *changes]), truncations)
        return {self.name: made}, *_join_failures(records, failures)

    def _with_ids(self, name: str, records: pa.Table) -> pa.Table:
        """Return the records of a branch with the `ID` that they have in the union."""
        if name not in self._ids:
            return records
        ids = duckdb_sql.query(self._duck, f"SELECT {self._ids[name]} AS {ID} FROM records r", records=records)
        records = records.drop_columns(ID) if ID in records.column_names else records
        return records.append_column(ID, ids.column(ID))


def _ids_of(graph: m.Graph, node: m.SelectNode) -> dict[str, str]:
    """Map each branch to the SQL of the `ID` of its records, unless the records have that `ID` already."""
    ids = {name: id_sql(graph, stream_of(graph, name), "r") for name in node.inputs}
    if m.is_by_branch(graph, node):
        # names contain no /
        return {name: f"{duckdb_sql.literal(name)} || '/' || {sql}" for name, sql in ids.items()}
    has_id = stream_of(graph, node.name).has_id
    return {name: sql for name, sql in ids.items() if has_id and not stream_of(graph, name).has_id}


class _Split:
    """Named outputs: each record goes to the first output whose condition is true."""

    step = "split"

    def __init__(self, graph: m.Graph, node: m.SplitNode) -> None:
        self.name = node.name
        self.inputs = (node.input,)
        stream = stream_of(graph, node.input)
        self._outputs = [
            (f"{node.name}.{output.name}", _condition(stream, output.sql, f"split.{output.name}"))
            for output in node.outputs
        ]
        self._other = None if node.other is None else f"{node.name}.{node.other}"

    def run(self, tables: Mapping[str, pa.Table]) -> _StageOutput:
        """Return the output streams by name, and the records for which a condition failed."""
        records = _only_rows(tables[self.inputs[0]])
        records = records.drop_columns(DELETED) if DELETED in records.column_names else records
        made: dict[str, pa.Table] = {}
        failures: list[tuple[pa.Table, dict[int, str]]] = []
        for name, condition in self._outputs:
            (is_true,), failed = condition.compute(records)
            failures.append((records, failed))
            is_left = all_but(records.num_rows, failed)
            is_first = holds_mask(is_true) & is_left
            made[name] = records.filter(pa.array(is_first))
            records = records.filter(pa.array(is_left & ~is_first))
        if self._other is not None:
            made[self._other] = records
        return made, *_join_failures(records, failures)


def _only_rows(records: pa.Table) -> pa.Table:
    """Return records without truncations and replaced rows, which only tables need."""
    return _without_replaced(split_truncations(records)[0])


def _without_replaced(records: pa.Table) -> pa.Table:
    if REPLACED not in records.column_names:
        return records
    return records.filter(pc.invert(records.column(REPLACED))).drop_columns(REPLACED)


def _of_records(records: pa.Table, failed: dict[int, str]) -> dict[int, str]:
    """Return the failures of records, without the failures of replaced rows."""
    if not failed or REPLACED not in records.column_names:
        return failed
    is_replaced = records.column(REPLACED).to_numpy()
    return {row: why for row, why in failed.items() if not is_replaced[row]}


class _Versions:
    """Adds `DELETED` to the records of a table: true if the record removes the row of its key.

    Changes of rows have the column already; it is null in truncations. If a record replaces a row that has a different
    key, the removal of that row precedes the record.
    """

    step = "table"

    def __init__(self, graph: m.Graph, node: m.TableNode) -> None:
        self.name = m.versions_of(node.name)
        self.inputs = (node.input,)
        self._key = node.key
        stream = stream_of(graph, node.input)
        self._are_changes = stream.lacking is not None
        self._deleted = None if node.deleted is None else _condition(stream, node.deleted, "table.deleted")

    def run(self, tables: Mapping[str, pa.Table]) -> _StageOutput:
        """Return the stream of versions under its name, and the records for which the condition failed."""
        records, truncations = split_truncations(self._with_moved(tables[self.inputs[0]]))
        if self._deleted is None:
            is_deleted, failed = pa.repeat(pa.scalar(value=False), records.num_rows), dict[int, str]()
        else:
            (is_true,), failed = self._deleted.compute(records)
            is_deleted = pc.fill_null(is_true, fill_value=False)
        if self._are_changes:
            is_deleted = pc.or_(is_deleted, records.column(DELETED).combine_chunks())
        others = [name for name in records.column_names if name not in {DELETED, REPLACED}]
        made = records.select(others).append_column(DELETED, is_deleted)
        if failed:
            is_kept = all_but(records.num_rows, failed)
            if REPLACED in records.column_names:
                # a row stays if the record that replaces it failed
                is_kept[:-1] &= is_kept[1:] | ~records.column(REPLACED).to_numpy()[:-1]
            made = made.filter(pa.array(is_kept))
        return {self.name: with_truncations(made, truncations)}, *_join_failures(
            records, [(records, _of_records(records, failed))]
        )

    def _with_moved(self, records: pa.Table) -> pa.Table:
        """Return records together with the replaced rows whose key changes; all other replaced rows are dropped.

        Rows whose key is null or too long have never been in a table, and a record with such a key is a dead letter.
        """
        if not self._are_changes:
            return _only_rows(records)
        if REPLACED not in records.column_names:
            return records
        is_kept = np.ones(records.num_rows, dtype=np.bool_)
        old = np.flatnonzero(records.column(REPLACED).to_numpy())
        is_kept[old] = False
        old = old[old + 1 < records.num_rows]
        before, after = (records.select([PARTITION, OFFSET, *self._key]).take(pa.array(at)) for at in (old, old + 1))
        is_moved = _are_keys(before, self._key) & _are_keys(after, self._key)
        is_moved &= _are_equal(before, after, (PARTITION, OFFSET)) & ~_are_equal(before, after, self._key)
        is_kept[old[is_moved]] = True
        return records.filter(pa.array(is_kept))


def _are_keys(records: pa.Table, key: Sequence[str]) -> Mask:
    """Return the mask of the records whose key is neither null nor too long."""
    columns = [records.column(name).combine_chunks() for name in key]
    texts = [column for column in columns if pa.types.is_string(column.type)]
    is_key: Mask = np.logical_and.reduce([to_mask(column.is_valid()) for column in columns])
    return is_key & (text_bytes(texts) <= MAX_KEY_BYTES) if texts else is_key


def _are_equal(records: pa.Table, others: pa.Table, names: Sequence[str]) -> Mask:
    """Return the mask of rows that have equal values in the given columns; null is never equal."""
    masks = (pc.fill_null(pc.equal(records.column(name), others.column(name)), fill_value=False) for name in names)
    are_equal: Mask = np.logical_and.reduce([mask.to_numpy() for mask in masks])
    return are_equal


_INDEX = "__index"


class _FlatMap:
    """Turns each element of an array into a record, in order and with the position of the original record."""

    step = "flat_map"

    def __init__(self, graph: m.Graph, node: m.FlatMapNode) -> None:
        self.name = node.name
        self.inputs = (node.input,)
        self._node = node
        stream = stream_of(graph, node.input)
        self._fields = [field.name for field in stream_of(graph, node.name).fields]
        self._others = [field.name for field in stream.fields if field.name != node.field]
        self._duck = duckdb_sql.Connection()
        # a record without elements has nothing after the #
        self._id = (
            f"SELECT {id_sql(graph, stream, 'r')} || '#' || coalesce({_INDEX}::VARCHAR, '') AS {ID} FROM records r"
        )

    def run(self, tables: Mapping[str, pa.Table]) -> _StageOutput:
        """Return the stream of elements under its name; no record is expected to fail."""
        records = _only_rows(tables[self._node.input])
        array = records.column(self._node.field).combine_chunks()
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        rows = np.maximum(lengths, 1) if self._node.outer else lengths
        is_element = np.repeat(lengths > 0, rows)
        index = pa.array(np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows), pa.int64(), mask=~is_element)
        elements = array.flatten()
        if not is_element.all():
            elements = elements.take(pa.array(np.cumsum(is_element) - 1, mask=~is_element))
        own = [name for name in records.column_names if name.startswith("__") and name not in {ID, DIFF, DELETED}]
        changes = [DIFF] if DIFF in records.column_names else []
        parents = records.drop_columns(self._node.field).take(pa.array(np.repeat(np.arange(records.num_rows), rows)))
        ids = duckdb_sql.query(self._duck, self._id, records=parents.append_column(_INDEX, index)).column(ID)
        members = elements.flatten() if pa.types.is_struct(elements.type) else [elements]
        values = [*members, *([] if self._node.position is None else [index])]
        made = {name: parents.column(name) for name in own} | {ID: ids}
        made |= dict(zip(self._fields, [*map(parents.column, self._others), *values], strict=True))
        made |= {name: parents.column(name) for name in changes}
        return {self.name: pa.table(made)}, records.slice(0, 0), []


def id_sql(graph: m.Graph, stream: Stream, name: str) -> str:
    """Return the SQL of the `ID` of a stream's record; `name` is the table alias of the record in the query."""
    if stream.has_id:
        return f"{name}.{ID}"
    if len(graph.sources) == 1:
        label, partition = duckdb_sql.literal(graph.sources[0].source.label), f"{name}.{PARTITION}"
    else:
        labels = ", ".join(duckdb_sql.literal(source.source.label) for source in graph.sources)
        label = f"([{labels}])[{name}.{PARTITION} // {m.MAX_PARTITIONS} + 1]"
        partition = f"({name}.{PARTITION} % {m.MAX_PARTITIONS})"
    return f"{label} || '/' || {partition} || '/' || {name}.{OFFSET}"


def with_ids(graph: m.Graph, stream: Stream, rows: pa.Table) -> pa.Table:
    """Return the records of a stream with their `ID`, computed as in `id_sql`."""
    if stream.has_id:
        return rows
    labels, partitions = source_places(graph, rows.column(PARTITION))
    numbers = [column.cast(pa.string()) for column in (partitions, rows.column(OFFSET))]
    return rows.append_column(ID, pc.binary_join_element_wise(labels, *numbers, "/"))


def _columns(stream: Stream, texts: Sequence[tuple[str, str]]) -> tuple[Computed, ...]:
    nullable = frozenset(field.name for field in stream.fields if field.optional)
    return tuple(Computed(name, name, analyse(sql, stream.fields, nullable)) for name, sql in texts)


def _condition(stream: Stream, text: str, label: str) -> Evaluator:
    (column,) = _columns(stream, [(_WHERE, text)])
    if column.expression.type != m.BooleanType():
        msg = f"{text!r} is not a condition"
        raise TypeError(msg)
    return Evaluator((Computed(_WHERE, label, column.expression),), label)


_Stage = _Selection | _Split | _FlatMap | _Versions
_STAGES: Final[Mapping[type[m.Node], Callable[[m.Graph, Any], _Stage]]] = {
    m.SelectNode: _Selection,
    m.SplitNode: _Split,
    m.FlatMapNode: _FlatMap,
    m.TableNode: _Versions,
}


def _join_failures(records: pa.Table, failures: Sequence[tuple[pa.Table, dict[int, str]]]) -> _Failures:
    """Return the failed records, with the columns that they have in common, and the reason for each."""
    rows = [(table, sorted(failed), failed) for table, failed in failures if failed]
    found = [(table.take(pa.array(at)), [failed[row] for row in at]) for table, at, failed in rows]
    return _join(found) if found else (records.slice(0, 0), [])


def _join(failures: Sequence[_Failures]) -> _Failures:
    """Concatenate failures; the records keep the columns that they have in common."""
    tables = [table for table, _ in failures]
    names = [name for name in tables[0].column_names if all(name in table.column_names for table in tables)]
    reasons = [reason for _, reasons in failures for reason in reasons]
    return pa.concat_tables([table.select(names) for table in tables]), reasons


class _Route:
    """The route of a stream's records to a stateful node: adds the node's columns and splits records by key group.

    A record becomes a dead letter of the node if a column cannot be computed, or if the key is null or too long. For a
    pipeline in short form, the decoder has already done all this. Truncations go to all key groups of a table.
    """

    def __init__(
        self,
        graph: m.Graph,
        node: m.KeyedNode | m.SinkNode,
        place: int,
        packed: Callable[[pa.Table], bytes],
        *,
        is_local: bool,
        is_raw: bool,
    ) -> None:
        spec = spec_of(graph, node)
        self._graph = graph
        self.name = node.name
        self.is_local = is_local
        self.input = _inputs_of(node)[place]
        self._are_versions = stream_of(graph, self.input).is_versions
        self._packed = packed
        self._is_raw = is_raw
        self._are_ids = spec.is_partitioned_by_ids
        self._key, self._key_groups = spec.partition_key, spec.key_groups
        self._salt = node.salt if isinstance(node, m.WindowNode) else 1
        if isinstance(node, m.SinkNode) and not self._key and stream_of(graph, node.input).is_changelog:
            # the deletion of a row may have a different position than its insertion
            self._key = (ID,)
        # for a table of records there is no key, and any key group will do
        self._by_partition = self._are_ids and not self._key
        is_broadcast = isinstance(node, m.LookupNode) and node.broadcast
        self._is_for_all = is_broadcast and place == 1
        self._by_place = is_broadcast and not self._is_for_all
        side = join_sides(graph, node)[place] if isinstance(node, m.AnyJoinNode) else None
        self._place, self._names = place, None if side is None else side.names
        records = input_schema(graph, node) if side is None else side_schema(side)
        source = graph.producer(self.input)
        derived = [field.name for field in source.derive] if isinstance(source, m.SourceNode) else []
        self._decoder = None if graph.is_short else KeyedDecoder(spec, derived, records)
        self._duck = duckdb_sql.Connection()
        self._waiting: list[pa.Table] = []

    def add(self, records: pa.Table) -> _Failures:
        """Add records; return the rejected records and the reason for each."""
        records = records if self._are_versions else _only_rows(records)

        def dead(record: pa.Table, reason: str) -> tuple[pa.Table, _Failures]:
            accepted, _ = self._select(record.slice(0, 0))
            return accepted, (record, [reason])

        parts = compute_rows("key", self._select, records, dead)
        self._waiting += [accepted for accepted, _ in parts]
        return parts[0][1] if len(parts) == 1 else _join([failures for _, failures in parts])

    def _select(self, records: pa.Table) -> tuple[pa.Table, _Failures]:
        """Return the accepted records with the node's columns, and the rejected records with their own columns."""
        if self._decoder is None:
            return records, (records.slice(0, 0), [])
        if self._names is not None:
            side = pa.repeat(pa.scalar(self._place, pa.int8()), records.num_rows)
            records = records.rename_columns(self._names).append_column(SIDE, side)
        records, truncations = split_truncations(records)
        accepted, failed, reasons = self._decoder.select(records)
        accepted = with_truncations(accepted, truncations)
        return accepted, (failed if self._names is None else self._with_own_names(failed.drop_columns(SIDE)), reasons)

    def _with_own_names(self, records: pa.Table) -> pa.Table:
        """Return records of a side of a join with the names of their stream."""
        return records.rename_columns({there: here for here, there in (self._names or {}).items()})

    @property
    def is_full(self) -> bool:
        """Whether enough records are collected to send packets."""
        rows = sum(table.num_rows for table in self._waiting)
        size: int = sum(table.nbytes for table in self._waiting)
        return rows >= CHUNK_RECORDS or size >= CHUNK_BYTES

    def take(self) -> list[pa.Table]:
        """Return the collected records and clear the collection."""
        tables, self._waiting = self._waiting, []
        return tables

    def close(self) -> Iterator[Packet]:
        """Yield a packet for each key group with records; all groups receive the versions of a broadcast lookup."""
        tables = self.take()
        if sum(table.num_rows for table in tables) == 0:
            return
        whole = pa.concat_tables(tables)
        for part in compute_rows("exchange", self._split, whole, lambda *dead: [(range(1), self._dead(*dead))]):
            for groups, given in part:
                is_dead = isinstance(given, DeadLetters)
                for message in [given] if is_dead else compute_rows("exchange", self._pack, given, self._dead):
                    to = groups if isinstance(message, Records) else groups[:1]
                    yield from (Packet(group, message) for group in to)

    def _split(self, records: pa.Table) -> list[tuple[range, pa.Table | DeadLetters]]:
        """Return key groups, with the records of each."""
        count = self._key_groups
        if count == 1 or self._is_for_all:
            return [(range(count), records)]
        if self._are_versions:
            records, truncations = split_truncations(records)
            if truncations.num_rows:
                return [(range(count), truncations), *(self._split(records) if records.num_rows else [])]
        if self._by_place:
            groups = place_groups(self._duck, records, count)
        elif self._by_partition:
            groups = to_micros(records.column(PARTITION)) % count
        else:
            keys = records.select(list(self._key))
            groups = key_groups(self._duck, keys, count, are_ids=self._are_ids)
        if self._salt > 1:
            groups = (groups + to_micros(records.column(OFFSET)) % self._salt) % count
        order = np.argsort(groups.astype(np.uint16), kind="stable")
        records = records.take(pa.array(order))
        ends = np.cumsum(np.bincount(groups, minlength=count)).tolist()
        bounds = enumerate(zip([0, *ends], ends, strict=False))
        return [(range(at, at + 1), records.slice(start, end - start)) for at, (start, end) in bounds if start < end]

    def _pack(self, records: pa.Table) -> Records | DeadLetters:
        return Records(self.name, self._packed(records), self._is_raw)

    def _dead(self, record: pa.Table, reason: str) -> DeadLetters:
        """Return the dead letter of a record that has the node's columns; its raw record is no longer known."""
        if self._names is not None:
            record = self._with_own_names(record.drop_columns(SIDE))
        stream = stream_of(self._graph, self.input)
        key = [name for name in stream.key if name not in m.WINDOW_BOUNDS]
        dead_letters = RowDeadLetters(self._graph, self.input, stream.fields, key)
        return DeadLetters(self.name, pack(dead_letters(record, [reason])))
