"""Changes come to what they would if each was done by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.steps import change, pipeline, step

from windrow.connectors.tables import net_changes
from windrow.model import SqliteSink

MODEL = pipeline(SqliteSink("spend.db", "spend"))
KEY = ("window_start", "window_end", "user")


ACTS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ABC"), st.booleans()), max_size=30)


@given(ACTS, st.sets(st.integers(0, 3)))
def test_against_a_dictionary(acts: list[tuple[int, str, bool]], full: set[int]) -> None:
    """Windows in `full` hold all keys before; an act deletes what is there, or writes it."""
    before = {(window, user): 0 for window in full for user in "ABC"}
    after, rows = dict(before), []
    for number, (window, user, deletes) in enumerate(acts, 1):
        key, minute = (window, user), 5 * window
        if deletes and key in after:
            rows.append(change("delete", minute, user, None, after.pop(key)))
        elif not deletes and key in after:
            rows.append(change("update_before", minute, user, None, after[key]))
            rows.append(change("update_after", minute, user, None, number))
            after[key] = number
        elif not deletes:
            rows.append(change("insert", minute, user, None, number))
            after[key] = number
    found = net_changes(step(MODEL, rows).changes, KEY)
    start = step(MODEL, [change("insert", 0, "A", None, 0)]).changes["window_start"][0].as_py()
    tables = [
        {((row["window_start"] - start).seconds // 300, row["user"]): row["events"] for row in table.to_pylist()}
        for table in (found.inserts, found.updates, found.deletes)
    ]
    new, changed, gone = tables
    assert list(new) == sorted(new)
    assert sum(map(len, tables)) == sum(table.num_rows for table in (found.inserts, found.updates, found.deletes))
    assert not changed.keys() - before.keys()
    assert {key: value for key, value in {**before, **changed, **new}.items() if key not in gone} == after
    assert not new.keys() & before.keys()
