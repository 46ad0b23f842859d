"""How the range of a batch run is cut."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.graphs import as_graph
from tests.runtime.spend import spend

from windrow.connectors.open_sources import open_source
from windrow.engine.messages import EndOfInput
from windrow.errors import SourceError
from windrow.model import LogSource, SqliteSink
from windrow.runtime.batch.plan import BatchSettings, batch_plan, slices

CUTS = st.dictionaries(st.integers(0, 3), st.integers(0, 40), max_size=4)


END = EndOfInput()


@given(begin=CUTS, more=CUTS, ends=st.lists(CUTS, max_size=3), size=st.integers(1, 50), fires=st.booleans())
def test_steps_go_from_the_beginning_to_the_end_and_stop_at_the_ends(
    begin: dict[int, int], more: dict[int, int], ends: list[dict[int, int]], size: int, *, fires: bool
) -> None:
    end = {partition: begin.get(partition, 0) + count for partition, count in more.items()}
    start = {partition: begin.get(partition, 0) for partition in end}
    cut = slices(begin, end, ends, size, (END,) if fires else ())
    path = [start, *cut.upto]
    assert path[-1] == end
    for before, after in pairwise(path):
        assert before.keys() == after.keys()
        assert all(before[partition] <= after[partition] for partition in before)
        # a step is not of nothing, unless something is told; it has a record more where shares do not divide
        count = sum(after.values()) - sum(before.values())
        assert count <= size + len(end)
        assert count or path == [start, start]
    assert fires == (END in cut.control.get(len(cut) - 1, ())) or end in _reached(start, end, ends)
    assert {tuple(sorted(cut.upto[number].items())) for number, packets in cut.control.items() if END in packets} == {
        tuple(sorted(one.items())) for one in [*_reached(start, end, ends), *([end] if fires else [])]
    }


def _reached(start: dict[int, int], end: dict[int, int], ends: list[dict[int, int]]) -> list[dict[int, int]]:
    """The ends that are within the range and have something before them."""
    found, at = [], start
    for one in ends:
        at = {partition: max(offset, one.get(partition, offset)) for partition, offset in at.items()}
        if any(at[partition] > end[partition] for partition in end):
            break
        if at != start:
            found.append(at)
    return found


def test_partitions_stay_abreast() -> None:
    cut = slices({0: 100}, {0: 200, 1: 1000}, [], 500, ())
    assert cut.upto == ({0: 133, 1: 333}, {0: 166, 1: 666}, {0: 200, 1: 1000})
    assert cut.ends_of(0) == [133, 166, 200]
    assert cut.control == {}
    assert slices({}, {}, [], 5, (END,)).upto == ({},)


@pytest.mark.parametrize(
    ("settings", "offset"), [(BatchSettings(begin={0: 4}), 4), (BatchSettings(end={0: 3, 1: 9}), 9)]
)
def test_offsets_that_the_log_does_not_hold_are_refused(tmp_path: Path, settings: BatchSettings, offset: int) -> None:
    for partition in (0, 1):
        (tmp_path / f"partition-{partition}.jsonl").write_text("{}\n" * 3)
    pipeline = spend(LogSource(str(tmp_path)), SqliteSink(str(tmp_path / "spend.db"), "spend"))
    partition = 0 if offset == 4 else 1
    with pytest.raises(SourceError) as caught:
        batch_plan(as_graph(pipeline), open_source(pipeline.source), settings)
    assert str(caught.value) == (
        f"offset {offset} of partition {partition} is not in the log, which now holds 0 to 3: "
        "records were lost, or this is a different log"
    )
