"""Late records that are told one by one, in as many chunks as it takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.outputs import play
from tests.engine.pipelines import MINUTE, main, record
from tests.examples import examples

from windrow.engine.operators.window import late
from windrow.model import (
    Aggregate,
    BooleanType,
    CountDistinct,
    Decode,
    Emit,
    Field,
    Mode,
    Records,
    Sum,
    TimestampType,
    TopK,
    Trigger,
    When,
)

AGGREGATES = (Aggregate("total", Sum("amount")), Aggregate("top", TopK("amount", 3)))
LATE = st.builds(record, st.sampled_from("AB"), st.sampled_from([1, 2, 6, 31]), st.integers(0, 4))
STEPS = st.lists(st.lists(st.tuples(st.integers(0, 1), LATE), max_size=12), max_size=3)


EARLY: dict[str, Trigger | None] = {
    "watermark": None,
    "count": Records(2),
    "python": When(lambda pane: pane.since == 2),
}
MODES: tuple[Mode, ...] = ("retract", "accumulate", "discard")
EACH_ONCE = set(zip(MODES, EARLY, strict=True))
"""What the default tests run: each mode and each trigger once."""


@pytest.mark.parametrize(
    ("mode", "early"),
    [
        pytest.param(mode, trigger, id=f"{mode}-{name}", marks=() if (mode, name) in EACH_ONCE else pytest.mark.long)
        for mode in MODES
        for name, trigger in EARLY.items()
    ],
)
@examples(4)
@given(steps=STEPS)
def test_every_change_is_the_same_in_chunks(
    mode: Mode, early: Trigger | None, steps: list[list[tuple[int, bytes]]]
) -> None:
    # the watermark passes the first windows at once
    log = [[(0, record("A", 1)), (0, record("A", 30)), (1, record("A", 30))], *steps]
    pipeline = main(aggregates=AGGREGATES, emit=Emit(lateness=60 * MINUTE, mode=mode, early=early), key_groups=2)
    expected = [output.changes for output in play(pipeline, log, "fire")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late, "MAX_REVISIONS", 2)
        chunked = [output.changes for output in play(pipeline, log, "fire")]
    assert chunked == expected


def test_keys_of_several_types_come_in_their_order() -> None:
    decode = Decode(
        (Field("b", BooleanType()), Field("at", TimestampType("micros")), Field("t", TimestampType("micros")))
    )
    lines = [b'{"b": %s, "at": %d, "t": 1}' % (text, at) for at in (7, 3) for text in (b"true", b"false")]
    pipeline = main(
        decode=decode,
        key=("b", "at"),
        aggregates=(Aggregate("n", CountDistinct("at")),),
        emit=Emit(lateness=60 * MINUTE),
        key_groups=1,
    )
    first = [(0, b'{"b": true, "at": 0, "t": 1800000000}')]
    *_, revised, _ = play(pipeline, [first, [(0, line) for line in lines * 300]], "fire")
    rows = revised.changes.to_pylist()
    assert len(rows) == 4 * (2 * 300 - 1)
    keys = [(row["b"], row["at"]) for row in rows]
    assert keys == sorted(keys)
    revisions = [row["revision"] for row in rows if row["op"] != "update_before"]
    assert revisions == [*range(300)] * 4
