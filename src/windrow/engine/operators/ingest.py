"""Ingest: turns raw records into packets for the key groups, with watermarks in-band.

No state is kept between steps. A step yields packets of records first, then one packet for each key group with the
progress of the partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql, messages
from windrow.engine.columns import MIN_TIME, Mask, Micros, distinct, pack, split_by_bytes, to_micros, with_schema
from windrow.engine.decode import debezium
from windrow.engine.decode.decoder import DecodedBatch, Decoder
from windrow.engine.decode.exact import Truncations
from windrow.engine.decode.field_columns import holds_mask, to_mask
from windrow.engine.decode.json_text import parse_object
from windrow.engine.decode.redriven import RedrivenDecoder
from windrow.engine.messages import EventTimes, Message, Observation, Packet, PartitionProgress, Progress
from windrow.engine.operators.dead_letters import SourceDeadLetters
from windrow.engine.operators.route import Router, dead_packets
from windrow.engine.probe import NoProbe, OpenProbe
from windrow.engine.schema import OFFSET, PARTITION, REPLACED, TIME, WATERMARK, record_schema
from windrow.engine.watermarks.clocks import StepWatermark
from windrow.engine.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.expressions import AnySpec, decoding_spec, stream_of, table_keys

NO_OFFSETS: Mapping[int, int] = MappingProxyType({})
CHUNK_BYTES = 32 << 20
"""The most bytes of raw records that are decoded at a time."""


@dataclass
class _Partition:
    """Progress of one partition in the step."""

    watermark: StepWatermark
    first: int
    next: int
    reached: int = MIN_TIME
    records: int = 0


class _Source:
    """Decodes and routes the records of one source."""

    def __init__(
        self,
        graph: m.Graph,
        node: m.SourceNode,
        packed: Callable[[pa.Table], bytes],
        since: Mapping[int, int],
        truncations: Truncations,
        *,
        is_whole: bool,
    ) -> None:
        # in a short form, only records that are valid for its only node advance the clock
        spec = decoding_spec(graph) if graph.is_short else node
        self.name = node.name
        self._time = node.time
        self._is_whole = is_whole
        self.schema = record_schema(spec)
        self.decoder = Decoder(_with_column(spec), table_keys(graph, node), truncations)
        self.records = RedrivenDecoder(self.decoder, graph.name, since)
        self.router = Router(graph, node, packed)
        self.tables = [
            _TableChanges(graph, reader, node, since, truncations)
            for reader in graph.readers(node)
            if isinstance(reader, m.ChangesNode)
        ]

    @property
    def sends_times(self) -> bool:
        """Whether clocks depend on event times that all key groups need."""
        return isinstance(self._time.watermark, m.Adaptive) or self._time.jump is not None

    def step_watermark(self, mark: m.PartitionWatermark) -> StepWatermark:
        """Return the running watermark of a partition in a step."""
        return StepWatermark(mark, self._time.jump, is_whole=self._is_whole)

    def are_checked(self, batch: pa.RecordBatch, is_read: Mask, offsets: Micros, rows: Micros) -> Mask:
        """Return which `rows` of a partition's good records, given their offsets in a batch, have passed `future`.

        The mask `is_read` selects the partition's records of the batch.
        """
        if self._time.future is None or not len(rows):
            return np.zeros(len(rows), dtype=np.bool_)
        places = np.searchsorted(to_micros(batch.column("offset"))[is_read], offsets[rows])
        return self.records.have_log_time(batch.take(pa.array(np.flatnonzero(is_read)[places])))


_NO_COLUMN = m.Field("__windrow_no_column", m.StringType(), optional=True)


def _with_column(spec: AnySpec | m.SourceNode) -> AnySpec | m.SourceNode:
    """Add a column that no row has to row changes without columns, as the fast decoder reads only rows with columns."""
    if spec.source.format != "debezium" or not all(field.path for field in spec.decode.fields):
        return spec
    return replace(spec, decode=m.Decode((*spec.decode.fields, _NO_COLUMN)))


class _TableChanges:
    """Decodes the records of a source that are changes of one table."""

    def __init__(
        self,
        graph: m.Graph,
        node: m.ChangesNode,
        source: m.SourceNode,
        since: Mapping[int, int],
        truncations: Truncations,
    ) -> None:
        spec = node.decoded(source)
        self.name = node.name
        self._schema = record_schema(spec)
        self._records = RedrivenDecoder(Decoder(spec, table_keys(graph, node), truncations), graph.name, since)
        self._duck = duckdb_sql.Connection()
        self._table = schema, table = m.table_name(node.table)
        is_table = f"{_at('table')} IS NOT DISTINCT FROM {duckdb_sql.literal(table)}"
        if schema is not None:
            is_table += f" AND {_at('schema')} IS NOT DISTINCT FROM {duckdb_sql.literal(schema)}"
        self._is_table = f"SELECT CASE WHEN json_valid(value) THEN {is_table} END AS is_table FROM raw ORDER BY row"

    def decode(self, batch: pa.RecordBatch, records: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the records of the table, and dead letters, given a raw batch and the source's good records in it."""
        places = [to_micros(records.column(name)) for name in (PARTITION, OFFSET)]
        rows = _rows_at([to_micros(batch.column(name)) for name in ("partition", "offset")], places)
        values = self._records.opened(batch).column("value").take(pa.array(rows)).cast(pa.string())
        found = duckdb_sql.query(self._duck, self._is_table, raw=pa.table({"row": rows, "value": values}))
        is_table = found.column("is_table").combine_chunks()
        chosen = holds_mask(is_table)
        for row in np.flatnonzero(to_mask(is_table.is_null())).tolist():  # DuckDB finds fewer texts to be valid JSON
            chosen[row] = self._has_table(values[row].as_py())
        decoded = self._records.decode(batch.take(pa.array(rows[chosen])))
        good = _name_places(decoded.good)
        at = _rows_at(places, [to_micros(good.column(name)) for name in (PARTITION, OFFSET)])
        good = good.append_column(WATERMARK, records.column(WATERMARK).take(pa.array(at)))
        return _with_replaced(with_schema(good, self._schema), decoded.replaced), decoded.dead

    def _has_table(self, value: str) -> bool:
        envelope = debezium.envelope_of(parse_object(value.encode())) or {}
        of = envelope.get(debezium.SOURCE)
        schema, table = self._table
        return isinstance(of, dict) and of.get("table") == table and schema in {None, of.get("schema")}


def _at(name: str) -> str:
    """Return the SQL of a text in the part `source` of an envelope, with or without its schema."""
    return f"coalesce(value->>'$.source.{name}', value->>'$.payload.source.{name}')"


def _rows_at(there: Sequence[Micros], places: Sequence[Micros]) -> Micros:
    """Return the rows of places (partitions, offsets) that are all in `there`, ascending in each partition."""
    rows = np.empty(len(places[0]), dtype=np.int64)
    for number in distinct(places[0]):
        own, its_own = np.flatnonzero(there[0] == number), places[0] == number
        rows[its_own] = own[np.searchsorted(there[1][own], places[1][its_own])]
    return rows


class Ingest:
    """Decodes the records of a step, in offset order within each partition, and splits them by node and key group.

    Large batches are decoded in chunks, so memory does not depend on the size of the step, only on what fields keep.
    All records of a batch come from the same source. `bounds` are lower bounds of watermarks, taken from the clock
    journal of a replayed run. `packed` is the function that packs records. `decoded_since` maps each partition to the
    first offset that is decoded with the pipeline's settings; the default is 0. `partitions` are the partitions that
    the sources had when the pipeline was first started: truncations need a source with one. If `is_whole`, the only
    step has all records of the log so far, and the watermarks of records are final if their delay is fixed.
    """

    def __init__(
        self,
        graph: m.Graph,
        bounds: WatermarkBounds = NO_BOUNDS,
        packed: Callable[[pa.Table], bytes] = pack,
        decoded_since: Mapping[int, int] = NO_OFFSETS,
        probe: OpenProbe = NoProbe,
        *,
        partitions: Iterable[int] = (),
        is_whole: bool = False,
    ) -> None:
        self._graph = graph
        self._key_groups = graph.key_groups
        self._floors = bounds
        self._probe = probe
        counts = Counter(map(graph.source_number, partitions))
        self._sources = {
            node.name: _Source(
                graph, node, packed, decoded_since, _truncations(graph, node, counts[number]), is_whole=is_whole
            )
            for number, node in enumerate(graph.sources)
        }

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
        """Yield the packets of the step; packets about partitions come last."""
        partitions: dict[int, _Partition] = {}
        probe = self._probe()
        for batch in chain.from_iterable(split_by_bytes(batch, CHUNK_BYTES) for batch in batches):
            if batch.num_rows == 0:
                continue
            source = self._sources[self._graph.source_of(batch.column("partition")[0].as_py()).name]
            decoded = source.records.decode(batch)
            records = self._with_watermarks(source, batch, decoded, partitions)
            probe.read(batch, records)
            yield from dead_packets(None, decoded.dead, self._key_groups)
            if source.sends_times:
                yield from self._times(partitions)
            dead_letters = SourceDeadLetters(source.decoder.dead_letters, batch)
            tables = {source.name: _with_replaced(records, decoded.replaced)}
            for table in source.tables:
                tables[table.name], dead = table.decode(batch, records)
                yield from dead_packets(None, dead, self._key_groups)
            yield from source.router.add(tables, dead_letters)
        for source in self._sources.values():
            yield from source.router.close()
        progress = [
            PartitionProgress(
                partition=number,
                watermark=max(read.watermark.value, int(self._floors.at(number, np.array([read.next - 1]))[0])),
                first=read.first,
                next=read.next,
                reached=read.reached,
                records=read.records,
            )
            for number, read in sorted(partitions.items())
        ]
        if progress:
            yield from self._to_all(Progress(messages.pack_progress(progress)))
        blob = probe.blob()
        if blob is not None:
            yield Packet(0, Observation(blob))

    def _with_watermarks(
        self, source: _Source, batch: pa.RecordBatch, decoded: DecodedBatch, partitions: dict[int, _Partition]
    ) -> pa.Table:
        """Return the valid records with their watermarks, and update the progress of their partitions."""
        numbers = batch.column("partition").to_numpy(zero_copy_only=False)
        # by position: a field may have any name
        good = _name_places(decoded.good)
        marks = decoded.marks.rename_columns([PARTITION, OFFSET, WATERMARK])
        good_numbers = good.column(PARTITION).to_numpy()
        mark_numbers = marks.column(PARTITION).to_numpy()
        offsets = to_micros(batch.column("offset"))
        watermarks = np.empty(good.num_rows, dtype=np.int64)
        for number in distinct(numbers):
            is_read = numbers == number
            read, mark = offsets[is_read], self._graph.watermark_of(number)
            partition = partitions.setdefault(number, _Partition(source.step_watermark(mark), int(read[0]), 0))
            partition.next = int(read[-1]) + 1
            its_own = good_numbers == number
            records = good if its_own.all() else good.filter(pa.array(its_own))
            partition.records += records.num_rows
            partition.reached = int(to_micros(records.column(TIME)).max(initial=partition.reached))
            own_marks = marks.filter(pa.array(mark_numbers == number)) if marks.num_rows else marks
            its_offsets = to_micros(records.column(OFFSET))
            are_checked = partial(source.are_checked, batch, is_read, its_offsets)
            found = partition.watermark.advance(records, own_marks, are_checked)
            watermarks[its_own] = np.maximum(found, self._floors.at(number, its_offsets))
            if isinstance(mark, m.Readings):
                partition.watermark.close(batch.column("value").filter(pa.array(is_read)))
        return with_schema(good.append_column(WATERMARK, pa.array(watermarks)), source.schema)

    def _times(self, partitions: Mapping[int, _Partition]) -> Iterator[Packet]:
        """Yield packets with the event times of each partition that clocks depend on, addressed to every key group."""
        for number, partition in partitions.items():
            times = partition.watermark.pop_times()
            if times is not None:
                yield from self._to_all(EventTimes(number, int(times.offsets[0]), messages.pack_times(times)))

    def _to_all(self, message: Message) -> Iterator[Packet]:
        return (Packet(group, message) for group in range(self._key_groups))


def divided_truncations(graph: m.Graph, since: Iterable[int], now: Iterable[int]) -> list[m.SourceNode]:
    """Return the sources whose truncations are applied, but no longer reach all rows.

    They had one partition `since` a pipeline was first started, and have several `now`. A log that windrow writes has
    each truncation in each partition.
    """
    before, after = (Counter(map(graph.source_number, partitions)) for partitions in (since, now))
    return [
        node
        for number, node in enumerate(graph.sources)
        if node.source.format == "debezium"
        and not isinstance(node.source, m.FollowedSource)
        and after[number] > 1
        and _truncations(graph, node, before[number]) == "applied"
    ]


def _truncations(graph: m.Graph, node: m.SourceNode, partitions: int) -> Truncations:
    """Return the outcome of truncations in a source with a number of partitions.

    Debezium writes a truncation to one partition, so in a topic with several its order among the rows is unknown.
    """
    streams = [stream_of(graph, table.input) for table in graph.nodes if isinstance(table, m.TableNode)]
    if not any(node in stream.sources and stream.lacking is not None for stream in streams):
        return "ignored"
    return "applied" if partitions == 1 else "refused"


def _name_places(good: pa.Table) -> pa.Table:
    """Name the leading columns of valid records by position, because a field may have any name."""
    return good.rename_columns([PARTITION, OFFSET, TIME, *good.column_names[3:]])


def _with_replaced(records: pa.Table, replaced: pa.Table) -> pa.Table:
    """Insert the replaced rows, marked by `REPLACED`, each directly before the record that replaces it."""
    if not replaced.num_rows:
        return records
    old, places = _name_places(replaced), (PARTITION, OFFSET)
    own = {
        place: row
        for row, place in enumerate(zip(*(records.column(place).to_pylist() for place in places), strict=True))
    }
    rows = np.array([own[place] for place in zip(*(old.column(place).to_pylist() for place in places), strict=True)])
    old = old.append_column(WATERMARK, records.column(WATERMARK).take(pa.array(rows))).select(records.column_names)
    both = pa.concat_tables([records, old.cast(records.schema)])
    is_old = np.arange(both.num_rows) >= records.num_rows
    order = np.lexsort([~is_old, np.concatenate([np.arange(records.num_rows), rows])])
    return both.append_column(REPLACED, pa.array(is_old)).take(pa.array(order))
