"""Limits of a run: the shares of its records that may be dead letters or expired."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from windrow.errors import LimitError
from windrow.telemetry.reports import StepReport, Totals, counted

LEAST: Final = 1_000
"""Records that a live run reads before its shares are checked, so that a single dead letter does not end it."""


@dataclass
class ShareLimits:
    """Compares the totals of a run since its start with limits; None is no limit.

    `dead` is a share of all records that were read, `expired` of those that are not dead letters.
    """

    totals: Totals
    dead: float | None
    expired: float | None
    stop: Callable[[], None] | None = None

    def on_step(self, _: StepReport) -> None:
        """Ask a live run to stop if a share is above its limit; the totals include the step."""
        if self.stop is not None and self.totals.events >= LEAST and next(self._problems(), None):
            self.stop()

    @staticmethod
    def check(runs: Mapping[str, ShareLimits]) -> None:
        """Raise LimitError for all runs that exceed a limit, by their names."""
        exceeded = {name: "; ".join(limits._problems()) for name, limits in runs.items()}  # noqa: SLF001 - its own
        found = [f"{name}: {problems}" for name, problems in exceeded.items() if problems]
        if found:
            msg = "\n".join([*found[:-1], f"{found[-1]}; what was committed stays"])
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
                    f"{count:,} of {counted(number, 'record')} of this run {see}: {share}, where --fail-if-{what} "
                    f"allows {100 * limit:.6g}%"
                )
