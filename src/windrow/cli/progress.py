"""The progress line of a run."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from windrow.hosts.reports import StepReport, Totals

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE_YEARS = 400
_CALENDAR_CYCLE = (datetime(1970 + _CYCLE_YEARS, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
"""The Gregorian calendar repeats after so many microseconds."""
_LINE_SECONDS = 1.0
"""Where there is no terminal, a line at most that often."""
_NAMED = 5
"""So many partitions are named in a line."""


class ProgressLine:
    """One line on stderr that changes with each step; where stderr is no terminal, a line now and then."""

    def __init__(self, label: str, *, quiet: bool = False) -> None:
        self.totals = Totals()
        self._label = label
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._live: Live | None = None
        self._told = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.quiet:
            self._live = Live(Spinner("dots", f"{self._label}: starting"), console=self._console, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def on_trouble(self, message: str) -> None:
        """Say what went wrong that the run goes on after."""
        self._console.print(f"{self._label}: {message}", soft_wrap=True, markup=False)

    def on_step(self, report: StepReport) -> None:
        """Show a step."""
        self.totals.add(report)
        line = f"{self._label}: {status(self.totals)}"
        if self._live is not None:
            self._live.update(Spinner("dots", Text(line)))
        elif time.monotonic() - self._told >= _LINE_SECONDS:
            self._told = time.monotonic()
            self._console.print(line, soft_wrap=True)


def status(totals: Totals) -> str:
    """Say in a line how far a run has come."""
    return (
        f"{totals.events:,} events, {totals.rate:,.0f}/s, {_low_watermark(totals.last)}, "
        f"{totals.late:,} late, {totals.expired:,} expired, {totals.dead:,} dead{_behind(totals.last)}"
    )


def _behind(report: StepReport | None) -> str:
    """Say how far the log's end is away, and in which partition most of that is, where there are several."""
    if report is None or not report.lag or not report.behind:
        return ""
    said = f", {report.behind:,} behind"
    if len(report.lag) == 1:
        return said
    farthest = max(report.lag, key=report.lag.__getitem__)
    return f"{said} ({report.lag[farthest]:,} in partition {farthest})"


def _low_watermark(report: StepReport | None) -> str:
    if report is None:
        return "nothing read yet"
    idle = f", idle: {_partitions(report.idle)}" if report.idle else ""
    if report.low_watermark is None:
        silent = [number for number in report.held_back_by if report.watermarks[number] is None]
        return f"no low watermark: nothing yet from {_partitions(silent)}{idle}"
    low = f"low watermark {format_time(report.low_watermark)}"
    if len(report.watermarks) > 1 and report.held_back_by:
        low += f" by {_partitions(report.held_back_by)}"
    return f"{low}{idle}"


def _partitions(numbers: list[int]) -> str:
    """Name partitions, the first few if they are many."""
    noun = "partition" if len(numbers) == 1 else "partitions"
    more = " ..." if len(numbers) > _NAMED else ""
    return f"{noun} {', '.join(map(str, numbers[:_NAMED]))}{more}"


def format_time(micros: int) -> str:
    """Write a point in time of any year in UTC, to the second, as SQLite's tables have it: 0000 is before 0001."""
    # a watermark may be before the year 1, which Python's dates do not know
    cycles, since = divmod(micros, _CALENDAR_CYCLE)
    point = _EPOCH + timedelta(microseconds=since)
    year = point.year + cycles * _CYCLE_YEARS
    return f"{'-' if year < 0 else ''}{abs(year):04}-{point:%m-%d %H:%M:%S}"
