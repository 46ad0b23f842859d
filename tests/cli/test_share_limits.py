"""The limits of a live run: they are looked at after each step, over all records since the start."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.interactive.test_progress import REPORT

from windrow.cli.share_limits import LEAST, ShareLimits
from windrow.errors import LimitError
from windrow.hosts.reports import Totals


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
    with pytest.raises(LimitError, match=r"^spend: 101 of 10,050 records .* 1\.005%, where --fail-if-dead allows 1%"):
        limits.check("spend")


def test_a_share_of_expired_records_is_of_those_that_are_no_dead_letters() -> None:
    totals = Totals()
    totals.add(replace(REPORT, records=100, expired=10, dead=900))
    ShareLimits(totals, dead=0.9, expired=0.1).check("spend")
    with pytest.raises(LimitError, match="10 of 100 records") as failed:
        ShareLimits(totals, dead=0.9, expired=0.0999).check("spend")
    assert failed.value.exit_code == 3
    ShareLimits(Totals(), dead=0.0, expired=0.0).check("spend")
