import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from windrow.engine.columns import MIN_TIME
from windrow.engine.schema import OFFSET, TIME, WATERMARK
from windrow.engine.watermarks.clocks import StepWatermark
from windrow.model import Delay, Punctuated

NO_MARKS = pa.table({OFFSET: pa.array([], pa.int64()), WATERMARK: pa.array([], pa.int64())})


def good(times: list[int], offsets: list[int] | None = None) -> pa.Table:
    return pa.table({OFFSET: pa.array(offsets or range(len(times)), pa.int64()), TIME: pa.array(times, pa.int64())})


def test_a_record_does_not_make_itself_late() -> None:
    assert StepWatermark(Delay(10)).advance(good([100, 50, 200]), NO_MARKS).tolist() == [MIN_TIME, 90, 90]


@given(st.lists(st.integers(-(10**15), 10**15), max_size=30), st.integers(0, 30), st.integers(0, 10**9))
def test_cuts_do_not_matter(times: list[int], cut: int, delay: int) -> None:
    whole, parts = StepWatermark(Delay(delay)), StepWatermark(Delay(delay))
    one = whole.advance(good(times), NO_MARKS)
    two = [parts.advance(good(part), NO_MARKS) for part in (times[:cut], times[cut:])]
    assert one.tolist() == np.concatenate(two).tolist()
    assert whole.value == parts.value == max((time - delay for time in times), default=MIN_TIME)


def test_a_mark_counts_for_the_records_after_it_and_never_goes_back() -> None:
    marks = pa.table({OFFSET: pa.array([1, 3, 4], pa.int64()), WATERMARK: pa.array([70, 60, 80], pa.int64())})
    watermark = StepWatermark(Punctuated("w"))
    # the record at offset 1 carries a mark itself
    assert watermark.advance(good([5, 5, 5, 5], [0, 1, 2, 5]), marks).tolist() == [MIN_TIME, MIN_TIME, 70, 80]
    assert watermark.value == 80
