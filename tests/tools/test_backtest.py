"""Back-tests: the counts are those of sets of ids, however the alerts are spread."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from windrow.engine.schema import MICROS
from windrow.errors import InputError
from windrow.tools.backtest.compare import LABELS, Counts, Day, Side, compare_alerts, read_labels

DAY = 86_400_000_000
SCHEMA = pa.schema(
    [
        ("alert_id", pa.string()),
        ("rule", pa.string()),
        ("card", pa.string()),
        ("subject", pa.string()),
        ("event_time", MICROS),
    ]
)
RULES = ("burst", "travel", "unusual")


class Alert(NamedTuple):
    rule: str
    purchase: int

    @property
    def subject(self) -> str:
        return f"tx{self.purchase}"

    @property
    def card(self) -> str:
        return f"c{self.purchase % 4}"

    @property
    def time(self) -> int:
        return self.purchase * DAY // 3 - DAY


Alerts = frozenset[Alert]
ALERTS = st.frozensets(st.builds(Alert, st.sampled_from(RULES), st.integers(0, 12)))
LABEL_LISTS = st.none() | st.lists(st.builds(Alert, st.sampled_from((*RULES, "merchant")), st.integers(0, 12)))


def table(alerts: Iterable[Alert]) -> pa.Table:
    rows = [(f"{one.rule}/{one.subject}", one.rule, one.card, one.subject, one.time) for one in alerts]
    return pa.table([pa.array([row[at] for row in rows], SCHEMA.types[at]) for at in range(5)], schema=SCHEMA)


def label_table(labels: list[Alert]) -> pa.Table:
    return pa.table([[one.subject for one in labels], [one.rule for one in labels]], schema=LABELS)


def counts(rule: str | None, old: Alerts, new: Alerts, labels: Alerts | None) -> Counts:
    def side(alerts: Alerts) -> Side:
        return Side(len(alerts), len({one.card for one in alerts}), None if labels is None else len(alerts & labels))

    numbers = len(old & new), len(old - new), len(new - old)
    return Counts(rule, side(old), side(new), *numbers, None if labels is None else len(labels))


def of(rule: str, alerts: Alerts) -> Alerts:
    return frozenset(one for one in alerts if one.rule == rule)


def date(alert: Alert) -> str:
    return datetime.fromtimestamp(alert.time // 1_000_000, UTC).date().isoformat()


@examples(40)
@given(ALERTS, ALERTS, LABEL_LISTS, st.integers(0, 5))
def test_a_comparison_counts_sets(old: Alerts, new: Alerts, labels: list[Alert] | None, limit: int) -> None:
    given_labels = None if labels is None else label_table(labels)
    found = compare_alerts(table(old), table(new), given_labels, key=["card"], limit=limit)
    truth = None if labels is None else frozenset(labels)
    rules = sorted({one.rule for one in old | new | (truth or frozenset())})
    assert found.all == counts(None, old, new, truth)
    assert found.rules == tuple(
        counts(rule, of(rule, old), of(rule, new), None if truth is None else of(rule, truth)) for rule in rules
    )
    days = sorted({(date(one), one.rule) for one in old | new})
    assert found.days == tuple(
        Day(day, rule, *(sum(date(one) == day for one in of(rule, side)) for side in (old, new))) for day, rule in days
    )
    assert found.is_same == (old == new)
    for alerts, rest in ((found.only_old, old - new), (found.only_new, new - old)):
        first = sorted(rest, key=lambda one: (one.time, f"{one.rule}/{one.subject}"))[:limit]
        assert alerts.equals(table(first))


def test_shares_are_of_alerts_and_of_labels() -> None:
    labels = label_table([Alert("burst", number) for number in range(5)])
    old = table(Alert("burst", number) for number in range(2))
    new = table(Alert("burst", number) for number in range(1, 9))
    one = compare_alerts(old, new, labels, key=["card"]).all
    assert (one.precision(one.old), one.recall(one.old)) == (1.0, 0.4)
    assert (one.precision(one.new), one.recall(one.new)) == (0.5, 0.8)
    without = compare_alerts(old, table([]), None, key=["card"]).all
    assert (without.precision(without.old), without.recall(without.new)) == (None, None)


def test_labels_are_json_lines_or_csv(tmp_path: Path) -> None:
    lines, rows = tmp_path / "labels.jsonl", tmp_path / "labels.csv"
    lines.write_text('{"id": "tx1", "card": "c1", "kind": "burst", "t": 1}\n{"id": "tx2", "kind": "travel"}\n')
    rows.write_text("kind,id\nburst,tx1\ntravel,tx2\n")
    assert read_labels(lines).equals(read_labels(rows))
    assert read_labels(rows).to_pylist() == [{"id": "tx1", "kind": "burst"}, {"id": "tx2", "kind": "travel"}]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.jsonl",
            '{"id": "1", "kind": "burst"}\n{"id": 1, "kind": "burst"}\n',
            r"a\.jsonl:2.* a label needs text for both id and kind",
        ),
        ("a.jsonl", "{\n", r"a\.jsonl:1.*a label is not JSON"),
        ("a.jsonl", "[]\n", r"a\.jsonl:1.* a label needs text for both id and kind"),
        ("a.csv", "id,type\n1,burst\n", r"a\.csv:2.* a label needs text for both id and kind"),
        ("a.csv", "id,kind\n1,\n", r"a\.csv:2.* a label needs text for both id and kind"),
    ],
)
def test_wrong_labels_are_told_with_their_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_labels(tmp_path / name)


def test_labels_that_are_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the labels .*none\.csv cannot be read: No such file"):
        read_labels(tmp_path / "none.csv")
