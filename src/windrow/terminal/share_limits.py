"""Limits on the share of a run's records that are dead letters or have expired."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from windrow.errors import LimitError
from windrow.telemetry.reports import StepReport, Totals, counted

LEAST: Final = 1_000
"""Number of records after which the shares of a live run are checked, so that a single dead letter does not end it."""


@dataclass
class ShareLimits:
    """Limits on shares of the records that a run has read since it started; None means no limit.

    `dead` limits the share of all records that are dead letters, and `expired` the share of the other records that have
    expired.
    """

    totals: Totals
    dead: float | None
    expired: float | None
    stop: Callable[[], None] | None = None

    def on_step(self, _: StepReport) -> None:
        """Ask a live run to stop if a share exceeds its limit; the totals already include the step."""
        if self.stop is not None and self.totals.events >= LEAST and next(self._problems(), None):
            self.stop()

    @staticmethod
    def check(runs: Mapping[str, ShareLimits]) -> None:
        """Raise a LimitError that lists all runs that exceed a limit; `runs` maps their names to their limits."""
        exceeded = {name: "; ".join(limits._problems()) for name, limits in runs.items()}  # noqa: SLF001 - its own
        found = [f"{name}: {problems}" for name, problems in exceeded.items() if problems]
        if found:
            msg = "\n".join([*found[:-1], f"{found[-1]}; committed steps are kept"])
            raise LimitError(msg)

    def _problems(self) -> Iterator[str]:
        totals = self.totals
        dead, good = totals.dead + totals.rejected, totals.events - totals.dead
        for count, number, limit, what, see in (
            (dead, totals.events, self.dead, "dead", "are dead letters (`windrow show PIPELINE dead` says why)"),
            (totals.expired, good, self.expired, "expired", "have expired (`windrow show PIPELINE late` has them)"),
        ):
            if limit is not None and count > limit * number:
                share = f"{count / number:.3%}" if number else "all"
                yield (
                    f"{count:,} of {counted(number, 'record')} of this run {see}: {share}, but --fail-if-{what} "
                    f"allows {100 * limit:.6g}%"
                )
