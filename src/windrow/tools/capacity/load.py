"""The load of a pipeline: the rate of its records, their keys, size and disorder.

A load is stated by the user, or measured on a log or from the history of a run. All times are seconds of event time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.open_sources import open_sources
from windrow.engine.columns import to_micros
from windrow.engine.schema import PARTITION, TIME
from windrow.errors import InputError
from windrow.telemetry.histogram import BOUNDS, Histogram
from windrow.telemetry.reports import StepReport
from windrow.tools.tune.disorder import decode_records, measure

Floats = npt.NDArray[np.float64]
SECOND: Final = 1_000_000
_TAIL_POINTS: Final = 400
"""Points of the curve of a stated disorder."""
_CURVE_POINTS: Final = 1_000
"""Half of the greatest number of points of a measured curve."""
_LEAST_TAIL: Final = 1e-6
"""The share of records at which a stated disorder ends, unless its maximum is stated."""


@dataclass(frozen=True)
class Behind:
    """The distribution of how far records are behind the clock of their partition.

    It is a piecewise linear curve: a fraction `share[i]` of the records is at most `at[i]` seconds behind. `at` ascends
    from 0 and the last `share` is 1.
    """

    at: tuple[float, ...]
    share: tuple[float, ...]

    @staticmethod
    def stated(quantiles: Mapping[float, float]) -> Behind:
        """Return the curve through quantiles (fraction of records to seconds), exponential between and beyond them.

        A single quantile gives an exponential distribution; without quantiles, records are in order of event time. The
        quantile 1 is the maximum. Raise InputError if a higher quantile is not farther behind than a lower one.
        """
        known = sorted(quantiles.items())
        for (share, seconds), (other, farther) in zip([(0.0, 0.0), *known], known, strict=False):
            if other <= share or farther <= seconds:
                msg = (
                    f"--disorder: p{other * 100:g}={farther:g}s is not farther behind than p{share * 100:g}="
                    f"{seconds:g}s: a greater share of the records must be farther behind"
                )
                raise InputError(msg)
        if not known:
            return Behind((0.0,), (1.0,))
        ends = known[-1][1] if known[-1][0] == 1 else None
        knots = [(0.0, 0.0)] + [(seconds, math.log1p(-share)) for share, seconds in known if share < 1]
        if len(knots) == 1:  # only the maximum is known
            return Behind((0.0, known[0][1]), (0.0, 1.0))
        (x0, y0), (x1, y1) = knots[-2:]
        slope = (y1 - y0) / (x1 - x0)
        last = max(x1, x1 + (math.log(_LEAST_TAIL) - y1) / slope) if ends is None else ends
        knots.append((last, y1 + slope * (last - x1)))
        at = np.unique(np.concatenate([np.linspace(0, last, _TAIL_POINTS), [x for x, _ in knots]]))
        share = 1 - np.exp(np.interp(at, [x for x, _ in knots], [y for _, y in knots]))
        share[-1] = 1.0
        return Behind(tuple(at.tolist()), tuple(share.tolist()))

    @staticmethod
    def counted(at: Sequence[float], counts: Sequence[float]) -> Behind:
        """Return the curve for counts of records that are more than `at[i - 1]` and at most `at[i]` seconds behind."""
        upto = np.cumsum(np.asarray(counts, dtype=float))
        if not len(upto) or not upto[-1]:
            return Behind((0.0,), (1.0,))
        points, share = np.asarray(at, dtype=float), upto / upto[-1]
        if len(points) > 2 * _CURVE_POINTS:  # even by share, and all of the tail
            even = np.searchsorted(share, np.linspace(0, 1, _CURVE_POINTS))
            kept = np.unique(np.concatenate([[0], even, np.arange(len(points) - _CURVE_POINTS, len(points))]))
            points, share = points[kept], share[kept]
        return Behind(tuple(points.tolist()), tuple(share.tolist()))

    def within(self, seconds: Floats | float) -> Floats:
        """Return the fraction of records that are at most `seconds` behind; 0 for negative times."""
        x = np.asarray(seconds, dtype=float)
        found: Floats = np.where(x < 0, 0.0, np.interp(x, self.at, self.share))
        return found

    def integral(self, seconds: Floats | float) -> Floats:
        """Return the integral of `within` from 0 to `seconds`."""
        at, share = np.array(self.at), np.array(self.share)
        x = np.maximum(np.asarray(seconds, dtype=float), 0.0)
        upto = np.concatenate([[0.0], np.cumsum(np.diff(at) * (share[1:] + share[:-1]) / 2)])
        row = np.clip(np.searchsorted(at, x, side="right") - 1, 0, len(at) - 1)
        found: Floats = upto[row] + (x - at[row]) * (share[row] + self.within(x)) / 2
        return found

    def past(self, limit: float, span: float) -> float:
        """Return the fraction of records that are at least `limit + v` behind, averaged over v in (0, `span`]."""
        if not span:
            return float(1 - self.within(limit))
        # rounding could make it negative
        return max(0.0, float(1 - (self.integral(limit + span) - self.integral(limit)) / span))

    def quantile(self, share: float) -> float:
        """Return the number of seconds behind the clock that the fraction `share` of the records does not exceed."""
        return float(np.interp(share, self.share, self.at))

    def cut(self, limit: float) -> Behind:
        """Return the distribution of the records that are less than `limit` behind."""
        kept = float(self.within(limit))
        if kept >= 1 or not kept:
            return self
        at = [x for x in self.at if x < limit]
        return Behind((*at, limit), (*(float(self.within(x)) / kept for x in at), 1.0))


@dataclass(frozen=True)
class Keys:
    """The distribution of records over keys, as classes of equally frequent keys.

    Class i has `numbers[i]` keys, each with the fraction `shares[i]` of all records.
    """

    numbers: tuple[float, ...]
    shares: tuple[float, ...]

    @staticmethod
    def even(number: float, hot: float = 0.0) -> Keys:
        """Return equally frequent keys; if `hot` is not 0, one key has that fraction of the records instead."""
        if hot and number > 1:
            return Keys((number - 1, 1.0), ((1 - hot) / (number - 1), hot))
        return Keys((number,), (1 / number,))

    @staticmethod
    def sampled(counts: npt.NDArray[np.int64]) -> Keys:
        """Estimate the keys of a log from the number of records of each key in a sample of it.

        The fraction of records with unseen keys is estimated by the fraction of records whose key occurs once (Good
        1953), and the number of unseen keys by a lower bound from the numbers of keys that occur once and twice (Chao
        1984).
        """
        total = int(counts.sum())
        sizes, numbers = np.unique(counts, return_counts=True)
        once, twice = (int(numbers[sizes == size].sum()) for size in (1, 2))
        unseen = once * (once - 1) / (2 * (twice + 1))
        missing = min(once / total, 1 - 1 / total) if unseen else 0.0
        classes = [(float(n), size * (1 - missing) / total) for size, n in zip(sizes, numbers, strict=True)]
        if unseen:
            classes.append((unseen, missing / unseen))
        return Keys(tuple(n for n, _ in classes), tuple(share for _, share in classes))

    @property
    def number(self) -> float:
        """Number of keys."""
        return sum(self.numbers)

    @property
    def greatest(self) -> float:
        """Fraction of all records that the most frequent key has."""
        return max(self.shares)

    def active(self, records: Floats | float) -> Floats:
        """Return the expected number of keys with at least one of `records` expected records (Poisson)."""
        total = np.asarray(records, dtype=float)
        found = sum(
            (n * -np.expm1(-share * total) for n, share in zip(self.numbers, self.shares, strict=True)),
            start=np.zeros_like(total),
        )
        return np.asarray(found)


@dataclass(frozen=True)
class Sample:
    """The sample on which a load was measured: its number of records, its seconds of event time, and its origin."""

    records: int
    seconds: float
    origin: str
    coverage: float | None = None
    """The share of the log's records whose keys were in the sample; None if keys were not counted."""


@dataclass(frozen=True)
class Load:
    """The input of a pipeline: records per second and bytes per record of each source, keys of each node, and disorder.

    `keys[""]` applies to nodes without their own entry. `shares` is the fraction of a source's records that reach a
    node, under (source, node) if measured or ("", node) if stated; the default is 1. `partners` is the number of right
    records for each left record of a join. `accepted` is the measured fraction of its records that a deduplication
    accepts; if it was not measured, keys are assumed to arrive evenly, with the fraction `duplicates` of duplicates.
    `skew` is how far the low watermark is behind the clocks in addition to the delay. `text_bytes` is the mean length
    of a text.
    """

    rates: Mapping[str, float]
    record_bytes: Mapping[str, float]
    keys: Mapping[str, Keys]
    behind: Behind
    shares: Mapping[tuple[str, str], float] = field(default_factory=dict)
    partners: Mapping[str, float] = field(default_factory=dict)
    accepted: Mapping[str, float] = field(default_factory=dict)
    duplicates: float = 0.0
    skew: float = 0.0
    text_bytes: float = 10.0
    sample: Sample | None = None
    partitions: Mapping[str, int] | None = None
    """The partitions of the log of each source; None if they were not read."""

    @property
    def rate(self) -> float:
        """Records per second of all sources together."""
        return sum(self.rates.values())

    @cached_property
    def mean_bytes(self) -> float:
        """Mean record size in bytes over all sources."""
        total = sum(rate * self.record_bytes[name] for name, rate in self.rates.items())
        return total / self.rate if self.rate else 0.0

    def keys_of(self, node: str) -> Keys:
        """Return the keys of a node."""
        return self.keys.get(node, self.keys[""])

    def plain(self) -> dict[str, Any]:
        """Return the load as JSON values."""
        return {
            "records_per_second": dict(self.rates),
            "record_bytes": dict(self.record_bytes),
            "keys": {name or "all": keys.number for name, keys in self.keys.items()},
            "hottest_key": {name or "all": keys.greatest for name, keys in self.keys.items()},
            "behind_seconds": {f"p{share * 100:g}": self.behind.quantile(share) for share in (0.5, 0.99, 0.999, 1.0)},
            "shares": {f"{source}>{node}" if source else node: share for (source, node), share in self.shares.items()},
            "partners": dict(self.partners),
            "accepted": dict(self.accepted),
            "duplicates": self.duplicates,
            "skew_seconds": self.skew,
            "text_bytes": self.text_bytes,
            "sample": None if self.sample is None else vars(self.sample),
            "partitions": None if self.partitions is None else dict(self.partitions),
        }


def read_sample(graph: m.Graph, records: int) -> Load:
    """Measure a load on the first records of each partition of a log, about `records` in total.

    Raise InputError if the log has no good records or all of them have the same event time. Errors of the sources
    propagate.
    """
    sources = open_sources(graph)
    ends = sources.ends()
    sizes = {partition: end - first for partition, (first, end) in ends.items() if end > first}
    share = min(1.0, records / max(1, sum(sizes.values())))
    batches = [
        batch
        for partition, size in sizes.items()
        for batch in _first(sources.read_from(partition, ends[partition][0]), math.ceil(share * size))
    ]
    load = measure_load(graph, batches, f"{sum(sizes.values()):,} records of the log")
    return replace(load, partitions=Counter(graph.source_of(partition).name for partition in ends))


def _first(batches: Iterator[pa.RecordBatch], records: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, records)
        records -= batch.num_rows
        if records <= 0:
            return


def measure_load(graph: m.Graph, batches: Sequence[pa.RecordBatch], origin: str) -> Load:
    """Measure a load on raw records (`windrow.engine.schema.RAW`), those of each partition in offset order.

    Raise InputError if no record is good or all of them have the same event time.
    """
    nodes = {node.name: node for node in graph.computed}
    read, size = Counter[str](), Counter[str]()
    for batch in batches:
        if batch.num_rows:
            name = graph.source_of(batch.column("partition")[0].as_py()).name
            read[name] += batch.num_rows
            size[name] += sum(batch.column(column).nbytes for column in ("key", "value"))
    arrived = Counter[tuple[str, str]]()
    times: dict[str, list[npt.NDArray[np.int64]]] = {name: [] for name in read}
    parts: dict[str, list[pa.Table]] = {}
    for reader, records in decode_records(replace(graph, key_groups=1), batches):
        source = graph.source_of(records.column(PARTITION)[0].as_py()).name
        arrived[source, reader] += records.num_rows
        times[source].append(to_micros(records.column(TIME)))
        key = getattr(nodes[reader], "key", ())
        if key and set(key) <= set(records.column_names):
            parts.setdefault(reader, []).append(records.select([*key, TIME]))
    if not arrived:
        msg = f"nothing can be measured: none of the {sum(read.values()):,} records in the sample is good; state a load"
        raise InputError(msg)
    spans = {name: _span(np.concatenate(found)) for name, found in times.items() if found}
    tables = {name: pa.concat_tables(found) for name, found in parts.items()}
    keys, text_bytes, coverage = _measure_keys({name: table.drop(TIME) for name, table in tables.items()})
    behind = measure(graph, batches).high
    is_record = behind.records > 0
    lags, rows = np.unique(np.maximum(behind.behind[is_record], 0), return_inverse=True)
    counts = np.bincount(rows, behind.records[is_record])
    names = [source.name for source in graph.sources]
    return Load(
        rates={name: read[name] / spans[name] if name in spans else 0.0 for name in names},
        record_bytes={name: size[name] / read[name] if read[name] else size.total() / read.total() for name in names},
        keys={"": max(keys.values(), key=lambda keys: keys.number, default=Keys.even(1)), **keys},
        behind=Behind.counted((lags / SECOND).tolist(), counts.tolist()),
        shares={(source, node): number / read[source] for (source, node), number in arrived.items()},
        accepted={
            name: _measure_accepted(table, node.within)
            for name, table in tables.items()
            if isinstance(node := nodes[name], m.DeduplicateNode)
        },
        text_bytes=text_bytes,
        sample=Sample(sum(read.values()), max(spans.values()), origin, coverage),
    )


def _span(times: npt.NDArray[np.int64]) -> float:
    """Return the span of event times in seconds, extrapolated from the range between the 5 % and 95 % quantiles.

    Outside that range, records may be late by more than the length of the sample.
    """
    first, last = np.quantile(times, (0.05, 0.95))
    if first == last:
        msg = "all records of the sample have the same event time, so they have no rate: state it with --rate"
        raise InputError(msg)
    return float(last - first) / 0.9 / SECOND


def _measure_keys(tables: Mapping[str, pa.Table]) -> tuple[dict[str, Keys], float, float | None]:
    """Return the keys of each node, the mean length of their texts, and the lowest coverage of any node (Good 1953)."""
    keys: dict[str, Keys] = {}
    lengths: list[float] = []
    coverages: list[float] = []
    for node, rows in tables.items():
        counts = rows.group_by(rows.column_names).aggregate([([], "count_all")]).column("count_all").to_numpy()
        keys[node] = Keys.sampled(counts)
        coverages.append(1 - int(np.count_nonzero(counts == 1)) / rows.num_rows)
        texts = [column for column in rows.columns if pa.types.is_string(column.type)]
        lengths += [pc.mean(pc.binary_length(column)).as_py() for column in texts]
    return keys, sum(lengths) / len(lengths) if lengths else 10.0, min(coverages, default=None)


def _measure_accepted(rows: pa.Table, within: int) -> float:
    """Return the fraction of records that a deduplication accepts.

    `rows` has the key's columns and then a time. A record is accepted if no record of the same key was accepted in the
    `within` microseconds before it. Records are processed in order of event time, unlike in the operator, which makes
    little difference.
    """
    key, number = np.zeros(rows.num_rows, np.int64), 0
    for column in rows.columns[:-1]:
        codes = column.combine_chunks().dictionary_encode()
        key = np.unique(key * len(codes.dictionary) + codes.indices.to_numpy(), return_inverse=True)[1]
    times = to_micros(rows.column(rows.num_columns - 1))
    # in units so large that all keys fit on a single axis, each farther than `within` from the previous key
    unit = max(1, within // 1_000)
    at = (times - times.min()) // unit
    place = np.sort(key * (int(at.max()) + within // unit + 1) + at)
    key.sort()
    accepted = np.flatnonzero(np.diff(key, prepend=-1))  # the first record of each key
    while len(accepted):
        number += len(accepted)
        following = np.searchsorted(place, place[accepted] + within // unit)
        is_of_key = following < len(place)
        is_of_key &= key[np.minimum(following, len(place) - 1)] == key[accepted]
        accepted = following[is_of_key]
    return number / len(key)


def recorded_load(graph: m.Graph, reports: Sequence[StepReport], keys: Keys, record_bytes: float) -> Load:
    """Measure rates and disorder from the history of a run, which does not contain keys and sizes.

    The rate is per second of event time, or of wall-clock time if the watermark did not move. Raise InputError if the
    history has no lateness of records or only one step.
    """
    lateness = Histogram.sum(histogram for report in reports for histogram in report.lateness.values())
    if not lateness.total:
        msg = "the history of the run does not contain the lateness of records: measure the log with --log"
        raise InputError(msg)
    read = Counter[str]()
    for report in reports[1:]:
        for partition, number in report.read.items():
            read[graph.source_of(graph.partition_number(partition)).name] += number
    lows = [report.low_watermark for report in reports if report.low_watermark is not None]
    seconds = (lows[-1] - lows[0]) / SECOND if len(lows) > 1 else 0.0
    seconds = seconds or sum(report.seconds for report in reports[1:])
    if not read or not seconds:
        msg = "the history has only one step, so it has no rate: run for longer, or measure the log with --log"
        raise InputError(msg)
    bounds = [bound / SECOND for bound in BOUNDS]
    names = [source.name for source in graph.sources]
    return Load(
        rates={name: read[name] / seconds for name in names},
        record_bytes=dict.fromkeys(names, record_bytes),
        keys={"": keys},
        behind=Behind.counted((*bounds, 2 * bounds[-1])[: len(lateness.counts)], lateness.counts),
        sample=Sample(sum(read.values()), seconds, f"the history of {len(reports):,} reports"),
    )
