"""Whether what a run said is what the tables hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tests.contracts.stores import Store

from windrow.telemetry.reports import StepReport

_SUMMARY = re.compile(r"at epoch ([\d,]+): .*\n.*: ([\d,]+) inserts, ([\d,]+) revisions")


def assert_reports_true(store: Store, reports: Iterable[StepReport], changelogs: Sequence[str] = ("spend",)) -> None:
    """No step was told twice, and each that was told is committed, with as many changes in its tables as it said."""
    told = [report for report in reports if report.events or report.inserts or report.revisions]
    assert len({report.epoch for report in told}) == len(told)
    counts = _changes(store, changelogs)
    for report in told:
        assert (report.inserts, report.revisions) == counts.get(report.epoch, (0, 0)), report
    epochs = {epoch for (epoch,) in store.query("SELECT epoch FROM windrow_epochs")}
    assert {report.epoch for report in reports} <= epochs


def assert_summary_true(store: Store, before: int, output: str, changelogs: Sequence[str] = ("spend",)) -> None:
    """The last words of a run tell where the tables are, and what it added to `before` epochs."""
    found = _SUMMARY.search(output)
    assert found, output
    epoch, rows, revisions = (int(text.replace(",", "")) for text in found.groups())
    counts = _changes(store, changelogs)
    assert [(epoch,)] == store.query("SELECT max(epoch) FROM windrow_epochs")
    added = [counts[number] for number in counts if number >= before]
    assert (rows, revisions) == (sum(one for one, _ in added), sum(one for _, one in added)), output


def _changes(store: Store, changelogs: Sequence[str]) -> dict[int, tuple[int, int]]:
    """Rows and revisions of each epoch."""
    changes = " UNION ALL ".join(f"SELECT epoch, op FROM {name}_changes" for name in changelogs)
    query = (
        "SELECT epoch, sum(CASE WHEN op = 'insert' THEN 1 ELSE 0 END), "
        "sum(CASE WHEN op = 'update_after' THEN 1 ELSE 0 END) "
        f"FROM ({changes}) AS changes GROUP BY epoch"
    )
    return {epoch: (int(rows), int(revisions)) for epoch, rows, revisions in store.query(query)}
