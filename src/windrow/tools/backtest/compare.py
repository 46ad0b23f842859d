"""Back-tests: compare the alerts of two rule sets over the same records with each other and with labels.

An alert's `alert_id` is a function of the pipeline, the rule, the key and the record for which the rule holds (its
subject), so alerts that both rule sets raise have the same id. A label says that a rule should hold for a record: its
`id` is the record's id and its `kind` the rule's name. Precision is the fraction of a rule's alerts that have a label;
recall is the fraction of its labels that have an alert.
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from windrow import model as m
from windrow.connectors.database import only_columns
from windrow.connectors.open_sinks import open_database
from windrow.connectors.tables import layout
from windrow.engine.duckdb_sql import Connection, identifier, query
from windrow.errors import InputError, Place
from windrow.expressions import sink_specs
from windrow.runtime.replay import ReplayOptions, plan_replay, run_replay
from windrow.telemetry.reports import OnStep

LABELS = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("kind", pa.string(), nullable=False)])


@dataclass(frozen=True)
class Side:
    """The number of alerts of one rule set, of distinct keys among them, and of alerts with a label."""

    alerts: int
    keys: int
    labelled: int | None


@dataclass(frozen=True)
class Counts:
    """Numbers of alerts of one rule, or of all rules if `rule` is None.

    Both rule sets raise `both` alerts; only one of them raises `only_old` and `only_new`. `labels` is None if no labels
    were given.
    """

    rule: str | None
    old: Side
    new: Side
    both: int
    only_old: int
    only_new: int
    labels: int | None

    def precision(self, side: Side) -> float | None:
        """Return the fraction of alerts that have a label, or None if there are no alerts or no labels."""
        return side.labelled / side.alerts if side.labelled is not None and side.alerts else None

    def recall(self, side: Side) -> float | None:
        """Return the fraction of labels that have an alert, or None if there are no labels."""
        return side.labelled / self.labels if side.labelled is not None and self.labels else None


@dataclass(frozen=True)
class Day:
    """Numbers of alerts of a rule in both rule sets on a day of event time (`day` is an ISO date in UTC)."""

    day: str
    rule: str
    old: int
    new: int


@dataclass(frozen=True)
class Backtest:
    """The result of a back-test: counts per rule (in order of names), for all rules, and per rule and day.

    `only_old` and `only_new` hold the first alerts, in order of event time, that only one rule set raises.
    """

    rules: tuple[Counts, ...]
    all: Counts
    days: tuple[Day, ...]
    only_old: pa.Table
    only_new: pa.Table

    @property
    def is_same(self) -> bool:
        """Whether both rule sets raise the same alerts."""
        return not self.all.only_old and not self.all.only_new


def back_test(
    graph: m.Graph,
    rules: m.RuleSet,
    options: ReplayOptions,
    on_step: OnStep,
    on_start: Callable[[Callable[[], None]], None],
    *,
    labels: pa.Table | None = None,
) -> Backtest | Literal["asked"]:
    """Run a pipeline's rules over its log, then the new rules, and compare the alerts that were not retracted.

    Each list has the entries that it had when a real-time run read the records, as far as that run's `journal` recorded
    them. The pipeline's own tables are not touched. `on_start` is called with a function that asks the run to stop; if
    it is used, the result is "asked". Raise a WindrowError if a run fails.
    """
    alerts: list[pa.Table] = []
    (now,) = (node.rules for node in graph.rules)
    key, changes = graph.rules[0].key, _list_changes(graph, now)
    with tempfile.TemporaryDirectory(prefix="windrow-") as folder:
        for name, tested in (("old", now), ("new", rules)):
            same = tuple(change for change in changes if _list(tested, change.list) == _list(now, change.list))
            sink = m.SqliteSink(str(Path(folder) / "alerts.db"), name)
            with_rules = graph.with_rules(replace(tested, journal=m.RulesJournal(changes=same))).into(sink)
            replay = plan_replay(replace(with_rules, mode="micro-batch"), options)
            if run_replay(replay, options, on_step, on_start) == "asked":
                return "asked"
            alerts.append(_read_alerts(replay.pipeline))
    return compare_alerts(alerts[0], alerts[1], labels, key=key)


def _list_changes(graph: m.Graph, rules: m.RuleSet) -> tuple[m.ListChange, ...]:
    if graph.mode != "realtime" or not rules.lists:
        return ()
    from windrow.runtime.realtime.journal import read_journal  # noqa: PLC0415 - librdkafka only where it ran

    journal = read_journal(graph)
    known = {(change.list, change.partition) for change in journal.changes}
    # a list without entries had no changes: without an empty one, its present entries would be used
    empty = [
        m.ListChange(version.partition, version.offset, name)
        for version in journal.versions
        for name in version.lists
        if (name, version.partition) not in known
    ]
    return (*journal.changes, *empty)


def _list(rules: m.RuleSet, name: str) -> m.RuleList | None:
    return next((known for known in rules.lists if known.name == name), None)


def _read_alerts(graph: m.Graph) -> pa.Table:
    """Read the alerts from the table that a graph writes."""
    (spec,) = sink_specs(graph).values()
    (table, *_) = layout(spec).own
    columns = only_columns(
        table, ["alert_id", "rule", *(field.name for field in spec.rows.key), "subject", "event_time"]
    )
    with open_database(spec.sink).snapshot() as snapshot:
        found = [rows.cast(columns.schema) for rows in snapshot.rows(columns, ["alert_id"])]
    return pa.concat_tables([columns.schema.empty_table(), *found])


def compare_alerts(
    old: pa.Table, new: pa.Table, labels: pa.Table | None, *, key: Sequence[str], limit: int = 10
) -> Backtest:
    """Compare two tables of alerts with the columns alert_id, rule, subject, event_time, and those of the key.

    `labels` has the schema `LABELS`; duplicate labels count once.
    """
    tables = {"old": old, "new": new, "labels": LABELS.empty_table() if labels is None else labels}
    connection = Connection()

    def rows(sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = query(connection, f"WITH {_views(key)} {sql}", **tables).to_pylist()
        return found

    counts = [_counts(row, judged=labels is not None) for row in rows(_BY_RULE)]
    days = tuple(Day(**row) for row in rows(_BY_DAY))
    only = [
        query(connection, f"WITH {_views(key)} {_ONLY.format(*names)}", **tables).slice(0, limit)
        for names in (("old", "new"), ("new", "old"))
    ]
    return Backtest(tuple(counts[1:]), counts[0], days, *only)


def read_labels(path: Path) -> pa.Table:
    """Read labels from a CSV file with the columns id and kind, or from JSON lines (``.jsonl``) with these fields.

    Raise InputError with file and line if the file cannot be read or a label lacks a text for either of them.
    """
    pairs: list[tuple[str, str]] = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for line, label in _json_lines(path, file) if path.suffix == ".jsonl" else _csv_rows(file):
                found = tuple(label.get(name) for name in LABELS.names)
                if not all(isinstance(text, str) and text for text in found):
                    msg = "a label needs text for both id and kind"
                    raise InputError(msg, Place(str(path), line))
                pairs.append(found)  # type: ignore[arg-type]
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        msg = f"the labels {path} cannot be read: {getattr(exc, 'strerror', None) or exc}"
        raise InputError(msg) from exc
    return pa.table([[pair[at] for pair in pairs] for at in range(2)], schema=LABELS)


def _json_lines(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        try:
            label = json.loads(line)
        except ValueError as exc:
            msg = f"a label is not JSON: {exc}"
            raise InputError(msg, Place(str(path), number)) from exc
        yield number, label if isinstance(label, dict) else {}


def _csv_rows(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(lines)
    for row in reader:
        yield reader.line_num, row


def _views(key: Sequence[str]) -> str:
    """Return the common table expressions `marked` and `wanted`.

    marked: alert_id, rule, key (a struct), day, in_old, in_new, labelled; one row for each distinct alert of both
    tables. wanted: rule, labels; one row for each rule that has labels.
    """
    columns = ", ".join(identifier(name) for name in key)
    return f"""
        sides AS (
            SELECT alert_id, rule, ROW({columns}) AS key, subject, event_time, TRUE AS in_old, FALSE AS in_new FROM old
            UNION ALL
            SELECT alert_id, rule, ROW({columns}), subject, event_time, FALSE, TRUE FROM new
        ),
        alerts AS (
            SELECT alert_id, any_value(rule) AS rule, any_value(key) AS key, any_value(subject) AS subject,
                strftime(make_timestamp(epoch_us(any_value(event_time))), '%Y-%m-%d') AS day,
                bool_or(in_old) AS in_old, bool_or(in_new) AS in_new
            FROM sides GROUP BY alert_id
        ),
        truth AS (SELECT DISTINCT id, kind FROM labels),
        marked AS (
            SELECT alerts.*, truth.id IS NOT NULL AS labelled
            FROM alerts LEFT JOIN truth ON truth.id = alerts.subject AND truth.kind = alerts.rule
        ),
        wanted AS (SELECT kind AS rule, count(*) AS labels FROM truth GROUP BY kind)
    """


def _aggregates(of: str) -> str:
    return f"""
        count(*) FILTER (in_{of}) AS {of}_alerts,
        count(DISTINCT key) FILTER (in_{of}) AS {of}_keys,
        count(*) FILTER (in_{of} AND labelled) AS {of}_labelled
    """


_BY_RULE = f"""
    , counted AS (
        SELECT rule, grouping(rule) AS every, {_aggregates("old")}, {_aggregates("new")},
            count(*) FILTER (in_old AND in_new) AS both_sets,
            count(*) FILTER (NOT in_new) AS only_old,
            count(*) FILTER (NOT in_old) AS only_new
        FROM marked GROUP BY GROUPING SETS ((), (rule))
    )
    SELECT rule, old_alerts, old_keys, old_labelled, new_alerts, new_keys, new_labelled, both_sets, only_old, only_new,
        CASE WHEN every = 1 THEN (SELECT count(*) FROM truth) ELSE labels END AS labels
    FROM counted FULL JOIN wanted USING (rule)
    ORDER BY rule NULLS FIRST
"""

_BY_DAY = """
    SELECT day, rule, count(*) FILTER (in_old) AS old, count(*) FILTER (in_new) AS new
    FROM marked GROUP BY day, rule ORDER BY day, rule
"""


_ONLY = "SELECT * FROM {} ANTI JOIN {} USING (alert_id) ORDER BY event_time, alert_id"


def _counts(row: dict[str, Any], *, judged: bool) -> Counts:
    """Return the counts in a row; nulls, in the row of a rule that has labels but no alerts, become 0."""

    def side(of: str) -> Side:
        alerts, keys, labelled = (row[f"{of}_{name}"] or 0 for name in ("alerts", "keys", "labelled"))
        return Side(alerts, keys, labelled if judged else None)

    return Counts(
        rule=row["rule"],
        old=side("old"),
        new=side("new"),
        both=row["both_sets"] or 0,
        only_old=row["only_old"] or 0,
        only_new=row["only_new"] or 0,
        labels=(row["labels"] or 0) if judged else None,
    )
