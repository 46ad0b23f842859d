"""The example of different URLs in the last 24 hours, held to plain Python over the whole log."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.outputs import play
from tests.examples import examples
from tests.graphs import graph_of
from tests.short_forms import ProcessPipeline

import windrow as wr
from windrow.connectors.tables import net_changes
from windrow.engine.changelog import StepOutput

HOUR = 3_600_000
DELAY = HOUR // 6
EXAMPLE = Path(__file__).parents[4] / "examples" / "distinct_urls.py"

Click = tuple[int, str, str, int]
"""Partition, user, URL, milliseconds."""


def example(key_groups: int = 8) -> ProcessPipeline:
    return replace(graph_of(wr.load(EXAMPLE), ProcessPipeline), key_groups=key_groups)


def reference(log: Sequence[Click]) -> dict[str, list[int]]:
    """The numbers of each user, click by click in order of time."""
    newest: dict[int, int] = {}
    clicks: dict[str, list[tuple[int, int, int, str]]] = defaultdict(list)
    for offset, (partition, user, url, at) in enumerate(log):
        if at >= newest.get(partition, at) - DELAY:  # else it is in the late output
            clicks[user].append((at, partition, offset, url))
        newest[partition] = max(at, newest.get(partition, at))
    told = {}
    for user, those in clicks.items():
        those.sort()
        told[user] = [
            len({url for at, _, _, url in those[: number + 1] if at > now - 24 * HOUR})
            for number, (now, *_) in enumerate(those)
        ]
    return told


def step(click: Click) -> tuple[int, bytes]:
    partition, user, url, at = click
    return partition, json.dumps({"user": user, "url": url, "at": at}).encode()


clicks = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["ada", "bob"]),
        st.sampled_from(["/a", "/b", "/c"]),
        st.integers(0, 60 * 6).map(lambda tens: tens * HOUR // 6),
    ),
    max_size=30,
)


@examples(40)
@given(clicks, st.sets(st.integers(1, 29)))
def test_the_numbers_are_those_of_the_log_in_every_cut(log: list[Click], cuts: set[int]) -> None:
    places = [0, *sorted(cut for cut in cuts if cut < len(log)), len(log)]
    steps = [[step(click) for click in log[start:end]] for start, end in pairwise(places)]
    output = StepOutput.concat(play(example(2), steps, "fire"))
    told: dict[str, list[int]] = defaultdict(list)
    left: dict[str, int] = {}
    for row in output.changes.to_pylist():
        if row["op"] in {"insert", "update_after"}:
            told[row["user"]].append(row["urls_24h"])
            left[row["user"]] = row["urls_24h"]
        elif row["op"] == "delete":
            del left[row["user"]]
    expected = reference(log)
    assert told == expected
    assert output.late.num_rows == len(log) - sum(map(len, expected.values()))
    table = {row["user"]: row["urls_24h"] for row in net_changes(output.changes, ("user",)).inserts.to_pylist()}
    assert table == left
    # a user without a click for 24 hours has no row
    assert table.items() <= {user: numbers[-1] for user, numbers in expected.items()}.items()
