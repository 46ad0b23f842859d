"""The limits of a live run: they are looked at after each step, over all records since the start."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.client.test_progress import REPORT

from windrow.errors import LimitError
from windrow.telemetry.reports import Totals
from windrow.terminal.share_limits import LEAST, ShareLimits


def test_a_live_run_stops_at_the_first_step_after_enough_records_that_exceeds_a_share() -> None:
    stops: list[int] = []
    totals = Totals()
    limits = ShareLimits(totals, dead=0.01, expired=None, stop=lambda: stops.append(totals.events))
    for records, dead in ((100, 50), (LEAST - 151, 0), (9 * LEAST, 0), (0, 40), (0, 11)):
        step = replace(REPORT, records=records, dead=dead)
        totals.add(step)
        limits.on_step(step)
    # 50 of 150 are too few records to tell; 50 of 999 still are; 50 of 9,999 are fewer than 1%; 90 are; 101 are not
    assert stops == [10 * LEAST + 50]
    with pytest.raises(LimitError, match=r"^spend: 101 of 10,050 records .* 1\.005%, but --fail-if-dead allows 1%"):
        ShareLimits.check({"spend": limits})


def test_a_share_of_expired_records_is_of_those_that_are_no_dead_letters() -> None:
    totals = Totals()
    totals.add(replace(REPORT, records=100, expired=10, dead=900))
    ShareLimits.check({"spend": ShareLimits(totals, dead=0.9, expired=0.1)})
    with pytest.raises(LimitError, match="10 of 100 records") as failed:
        ShareLimits.check({"spend": ShareLimits(totals, dead=0.9, expired=0.0999)})
    assert failed.value.exit_code == 3
    ShareLimits.check({"spend": ShareLimits(Totals(), dead=0.0, expired=0.0)})


def test_all_runs_above_a_limit_are_named() -> None:
    bad, good = Totals(), Totals()
    bad.add(replace(REPORT, records=50, dead=50))
    good.add(replace(REPORT, records=100, dead=0))
    runs = {name: ShareLimits(totals, 0.1, None) for name, totals in (("a", bad), ("b", good), ("c", bad))}
    with pytest.raises(LimitError) as failed:
        ShareLimits.check(runs)
    assert [line[:21] for line in str(failed.value).splitlines()] == ["a: 50 of 100 records ", "c: 50 of 100 records "]
