"""Kinds of facts: how the values of a report field are summed, written as JSON, and renamed by partition.

A field declares its kind in its annotation, ``late: Annotated[int, COUNT]``; a field without a kind is `LATEST`. To add
a fact about a step, change two files and the documentation page. In `windrow.telemetry.probe`, add a field to
`StepFacts` and a line to `StepProbe` that sets it. In `windrow.telemetry.reports`, add a field to `StepReport` with the
same name and kind. Sums over tasks and steps, the JSON form, the history and the renaming of partitions follow from the
kind. If the totals of a run should include the fact, add a field with that name to `Totals`, too. A count made by the
engine (`GroupStats`) is added in the same way, but without the probe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from itertools import chain
from operator import add
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_type_hints

from windrow.errors import INTERNAL
from windrow.telemetry.histogram import Histogram
from windrow.telemetry.hot_keys import HotKeys
from windrow.telemetry.samples import RecordSample, least
from windrow.telemetry.window_counts import GroupWindows, WindowCounts

K = TypeVar("K")
V = TypeVar("V")

PartitionName = int | str
"""A partition's number, or ``SOURCE/NUMBER`` if there are several sources."""


def sum_by_name(several: Iterable[Mapping[K, V]], plus: Callable[[V, V], V] = add) -> dict[K, V]:
    """Sum the values of several mappings by name. Names are in order of their first occurrence."""
    found: dict[K, V] = {}
    for values in several:
        for name, value in values.items():
            found[name] = plus(found[name], value) if name in found else value
    return found


def add_counts(counts: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    """Sum two mappings of counts by name."""
    return sum_by_name((counts, others))


@dataclass(frozen=True)
class FactKind:
    """How the values of a fact are summed and serialized.

    `sum` sums values, oldest first: those of the tasks of a step, or of consecutive steps. `again` returns the value to
    report for a step whose counts were already reported. `plain` and `parse` convert to and from plain JSON, in which
    partition numbers may be strings. `rename` applies a function to each partition's name.
    """

    sum: Callable[[list[Any]], Any]
    again: Callable[[Any], Any] = lambda value: value
    plain: Callable[[Any], Any] = lambda value: value
    parse: Callable[[Any], Any] = lambda value: value
    rename: Callable[[Any, Callable[[PartitionName], PartitionName]], Any] = lambda value, _: value


def by_partition(kind: FactKind) -> FactKind:
    """Return the kind of a mapping from partitions to values of `kind`, or None."""
    return replace(
        kind,
        parse=lambda values: None if values is None else kind.parse(parse_partitions(values)),
        rename=lambda values, name: None if values is None else {name(key): value for key, value in values.items()},
    )


def parse_partitions(values: Mapping[PartitionName, V]) -> dict[PartitionName, V]:
    """Convert the partition numbers of a mapping from strings, as JSON writes keys, to integers."""
    return {int(name) if str(name).isdigit() else name: value for name, value in values.items()}


def _sum_windows(several: list[Mapping[str, WindowCounts] | None]) -> dict[str, WindowCounts] | None:
    """Sum window counts by node. None means unknown and adds nothing."""
    known = [windows for windows in several if windows is not None]
    return sum_by_name(known) if known else None


LATEST: Final = FactKind(lambda values: values[-1])
"""Only the last value is kept."""
COUNT: Final = FactKind(sum, again=lambda _: 0)
COUNTS: Final = FactKind(sum_by_name, again=lambda _: {})
"""Counts by name, or other values that can be added."""
SECONDS: Final = FactKind(sum)
SECONDS_BY_NAME: Final = FactKind(sum_by_name)
LISTED: Final = FactKind(lambda values: list(chain.from_iterable(values)))
"""Rows from all tasks, concatenated."""
COUNTS_BY_SINK: Final = FactKind(partial(sum_by_name, plus=add_counts), again=lambda _: {})
LOG_TIMES: Final = by_partition(FactKind(lambda values: dict(chain.from_iterable(map(dict.items, values)))))
"""The most recent time for each partition."""
IDLE: Final = replace(LATEST, rename=lambda names, name: list(map(name, names)))
HISTOGRAM: Final = FactKind(
    Histogram.sum,
    again=lambda _: Histogram(),
    plain=lambda histogram: list(histogram.counts),
    parse=lambda counts: Histogram(tuple(counts)),
)
HISTOGRAMS: Final = by_partition(
    replace(
        COUNTS,
        plain=lambda by_name: {name: list(histogram.counts) for name, histogram in by_name.items()},
        parse=lambda by_name: {name: Histogram(tuple(counts)) for name, counts in by_name.items()},
    )
)
STATE: Final = replace(LATEST, parse=lambda by_node: {node: tuple(size) for node, size in by_node.items()})
HOT_KEYS: Final = replace(
    COUNTS,
    plain=lambda by_node: {node: asdict(keys) for node, keys in by_node.items()},
    parse=lambda by_node: {node: HotKeys(**keys) for node, keys in by_node.items()},
)
SAMPLES: Final = FactKind(
    lambda values: least(chain.from_iterable(values)),
    again=lambda _: (),
    plain=lambda samples: [asdict(sample) for sample in samples],
    parse=lambda samples: tuple(RecordSample(**sample) for sample in samples),
    rename=lambda samples, name: tuple(replace(sample, partition=name(sample.partition)) for sample in samples),
)
GROUP_WINDOWS: Final = FactKind(partial(sum_by_name, plus=GroupWindows.plus))
WINDOWS: Final = FactKind(
    _sum_windows,
    again=lambda by_node: by_node and {node: counts.again for node, counts in by_node.items()},
    plain=lambda by_node: by_node and {node: counts.plain() for node, counts in by_node.items()},
    parse=lambda by_node: (
        None if by_node is None else {node: WindowCounts.of_plain(counts) for node, counts in by_node.items()}
    ),
)

Count: TypeAlias = Annotated[int, COUNT]
Seconds: TypeAlias = Annotated[float, SECONDS]
SecondsByName: TypeAlias = Annotated[dict[str, float], SECONDS_BY_NAME]
CountsByName: TypeAlias = Annotated[dict[str, int], COUNTS]
CountsBySink: TypeAlias = Annotated[dict[str, dict[str, int]], COUNTS_BY_SINK]


@cache
def kinds_of(record: type) -> dict[str, FactKind]:
    """Map each field of a dataclass to its kind."""
    hints = get_type_hints(record, include_extras=True)
    return {
        field.name: next(
            (kind for kind in getattr(hints[field.name], "__metadata__", ()) if isinstance(kind, FactKind)), LATEST
        )
        for field in fields(record)
    }


def sum_facts(record: type, several: list[Any]) -> dict[str, Any]:
    """Sum several instances of a dataclass field by field, oldest first."""
    return {name: kind.sum([getattr(facts, name) for facts in several]) for name, kind in kinds_of(record).items()}


def internal_of(reasons: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of dead letters because of defects, by the kind of their reason."""
    return {kind: count for kind, count in reasons.items() if kind.startswith(f"{INTERNAL}: ")}
