"""What each aggregate knows is taken over to a wider type of its field: later rows are as if it had been so always."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from tests.engine.state.test_migrate import PLAIN, Story
from tests.runtime.spend import MINUTE
from tests.short_forms import operator_spec

from windrow.engine.state.widening import StateChange, incompatible_fields
from windrow.model import (
    Aggregate,
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    CollectList,
    CollectSet,
    Count,
    CountDistinct,
    DataType,
    DecimalType,
    Decode,
    Field,
    First,
    Function,
    Hopping,
    Last,
    LongType,
    Max,
    Min,
    Quantile,
    Records,
    Session,
    Stddev,
    Sum,
    TopK,
    TopKBy,
    Tumbling,
    Variance,
    Window,
)

PLACES: tuple[Function, ...] = (
    Count(),
    Sum("amount"),
    Min("amount"),
    Max("abs(amount)"),
    First("amount", "log"),
    Last("amount", "time"),
    Quantile("amount", 0.5),
    CountDistinct("amount"),
)
WHOLE: tuple[Function, ...] = (
    *PLACES,
    Avg("amount"),
    Variance("amount"),
    Stddev("amount"),
    ApproxQuantile("amount", 0.5),
    ApproxCountDistinct("amount"),
)
DIGITS: tuple[Function, ...] = (
    *WHOLE,
    TopK("amount", 2),
    TopKBy("amount", "amount", 2),
    CollectList("amount", 3),
    CollectList("amount", 3, "log"),
    CollectSet("amount", 3),
)
MONEY = DecimalType(9, 2)


TYPES: dict[str, tuple[DataType, DataType, tuple[Function, ...]]] = {
    "digits": (MONEY, DecimalType(19, 2), DIGITS),
    "places": (MONEY, DecimalType(14, 4), PLACES),
    "whole": (LongType(), DecimalType(19, 0), WHOLE),
    "whole to places": (LongType(), DecimalType(23, 4), PLACES),
}
WINDOWS: dict[str, tuple[Window, Records | None]] = {
    "tumbling": (Tumbling(5 * MINUTE), None),
    "early": (Tumbling(5 * MINUTE), Records(2)),
    "hopping": (Hopping(10 * MINUTE, 5 * MINUTE), None),
    "session": (Session(5 * MINUTE), None),
}
EACH_ONCE = set(zip(TYPES, WINDOWS, strict=True))
"""What the default tests run: each change of a type and each window once."""


@pytest.mark.parametrize(
    ("there", "here", "functions", "window", "early"),
    [
        pytest.param(*types, *windows, id=f"{one}-{two}", marks=() if (one, two) in EACH_ONCE else pytest.mark.long)
        for one, types in TYPES.items()
        for two, windows in WINDOWS.items()
    ],
)
def test_each_aggregate_is_taken_over(
    there: DataType, here: DataType, functions: tuple[Function, ...], window: Window, early: Records | None
) -> None:
    aggregates = tuple(Aggregate(f"a{number}", function) for number, function in enumerate(functions))
    pipeline = replace(PLAIN, window=window, aggregates=aggregates, emit=replace(PLAIN.emit, early=early))
    before, after = (
        replace(pipeline, decode=Decode((*PLAIN.decode.fields[:2], Field("amount", type_)))) for type_ in (there, here)
    )
    plan = StateChange(
        tuple(range(len(functions))), PLAIN.emit.lateness, same_records=False, were=(before.decode.fields[2],)
    )
    assert incompatible_fields(operator_spec(after), plan) == {}
    story, plain = Story(before), Story(after)
    cents = Decimal(1) if there == LongType() else Decimal("0.25")
    some = [(minute, user, str(cents * (7 * minute % 5 - 1))) for minute in range(8) for user in "ab"]
    for one in (story, plain):
        one.at(*some)  # [0, 5) has fired, [5, 10) is open
    story.goes_on(replace(after, key_groups=3), plan)
    ops: set[str] = set()
    more = [(3, "a", str(cents * 9)), (9, "a", str(cents * 9)), (9, "b", str(-cents)), (14, "b", "1")]
    for records in (more, [(40, "b", "1")], [(38, "a", "1")]):
        ours, theirs = (
            one.at(*records).changes.sort_by(
                [(name, "ascending") for name in ("window_start", "user_id", "revision", "op")]
            )
            for one in (story, plain)
        )
        assert str(ours.to_pylist()) == str(theirs.to_pylist())
        ops |= set(ours["op"].to_pylist())
    assert "insert" in ops
    assert "update_before" in ops or isinstance(window, Session)
