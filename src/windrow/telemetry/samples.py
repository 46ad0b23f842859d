"""Samples of records: the records with the lowest ranks, which are hashes of their positions in the log.

The samples are used only in reports. A rank depends on the partition and the offset, so a sample is uniform and the
same in every run, and the sample of several steps or tasks consists of the lowest ranks of all their samples. A task
knows only some of a step's records and keeps those with ranks below `limit`. The limit is high enough that all tasks
together keep more records than a sample has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from windrow.engine.columns import Micros

SAMPLE: Final = 16
"""Number of records in the sample of a step, or of a sum of steps."""
_ENOUGH: Final = 4 * SAMPLE
"""About how many of a step's records are below its limit, enough that practically no sample lacks a record."""
_RANKS: Final = 1 << 53
"""Ranks are below this bound, so JSON numbers can hold them."""
_PIECE: Final = 1 << 14
_ODD: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)

Verdict = Literal["on_time", "late", "expired"]
VERDICTS: Final[tuple[Verdict, ...]] = ("on_time", "late", "expired")
"""The verdicts from best to worst."""
VerdictRow = tuple[int, int, Verdict]
"""Partition and offset of a record, and the verdict on it."""


@dataclass(frozen=True)
class RecordSample:
    """A sampled record: its position, and its event time and log timestamp in microseconds.

    The partition is a number, or ``SOURCE/NUMBER`` if there are several sources. `verdicts` maps each node to the
    verdict on the record, the worst one if the record is in several windows. (In a pipeline in short form, the only
    node has an empty name.) A node is missing if it does not judge records by their time, or has not judged this one by
    the end of the step.
    """

    partition: int | str
    offset: int
    event_time: int
    log_time: int | None
    rank: int
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)


def ranks(partitions: Micros, offsets: Micros) -> npt.NDArray[np.uint64]:
    """Return the rank of each record, a 53-bit hash.

    The hash is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    """
    import numpy as np  # noqa: PLC0415 - reading samples needs no numpy

    mixed = offsets.view(np.uint64) * np.uint64(_ODD[0])
    shifted = partitions.view(np.uint64) * np.uint64(_ODD[1])
    mixed += shifted
    for shift, factor in ((30, _ODD[1]), (27, _ODD[2])):
        mixed ^= np.right_shift(mixed, np.uint64(shift), out=shifted)
        mixed *= np.uint64(factor)
    mixed ^= np.right_shift(mixed, np.uint64(31), out=shifted)
    mixed >>= np.uint64(11)
    return mixed


def limit(records: int) -> int:
    """Return the rank below which enough records for a sample are expected, given the number of all records."""
    return _RANKS * _ENOUGH // max(records, _ENOUGH)


def places_below(most: int, partitions: Micros, offsets: Micros) -> tuple[Sequence[int], Sequence[int]]:
    """Return the row numbers of the records with ranks below a limit, and their ranks."""
    import numpy as np  # noqa: PLC0415 - as above

    places: list[int] = []
    kept: list[int] = []
    # by pieces that fit in a cache: that is several times as fast
    for first in range(0, len(offsets), _PIECE):
        piece = slice(first, first + _PIECE)
        found = ranks(partitions[piece], offsets[piece])
        below = np.flatnonzero(found < np.uint64(most))
        places += (below + first).tolist()
        kept += found[below].tolist()
    return places, kept


def least(samples: Iterable[RecordSample]) -> tuple[RecordSample, ...]:
    """Return the sample of the records of several samples, without duplicates, in the order of their ranks."""
    distinct = {(sample.partition, sample.offset): sample for sample in samples}.values()
    return tuple(nsmallest(SAMPLE, distinct, key=lambda sample: (sample.rank, str(sample.partition), sample.offset)))


def with_verdicts(
    samples: Iterable[RecordSample], verdicts: Mapping[str, Sequence[VerdictRow]]
) -> tuple[RecordSample, ...]:
    """Add the verdicts of each node to samples."""
    found: dict[tuple[int | str, int], dict[str, Verdict]] = {}
    for node, rows in verdicts.items():
        for partition, offset, verdict in rows:
            own = found.setdefault((partition, offset), {})
            own[node] = max(verdict, own.get(node, VERDICTS[0]), key=VERDICTS.index)
    return tuple(replace(sample, verdicts=found.get((sample.partition, sample.offset), {})) for sample in samples)
