"""The progress line of a run, on a terminal or in a notebook."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from windrow.telemetry.numbers import format_time, short_duration, short_number
from windrow.telemetry.reports import Alert, StepReport, Totals

_LINE_SECONDS = 1.0
"""Minimum time between two lines if stderr is not a terminal."""
_NAMED = 5
"""Maximum number of partitions listed in a line."""
_WIDTH = 80
"""Width of a line without a terminal, in columns."""
_SPINNER = 2
"""Width of the spinner before the line on a terminal, in columns."""
_LABEL = 24
"""Maximum length of a label."""
_RECENT_SECONDS = 10.0


class ProgressLine:
    """The progress of a run as a line on stderr, updated at each step.

    If stderr is not a terminal, or unless `moves` is set, a new line is written at most once a second instead. In a
    notebook, the line is an output of the cell. With `only_drawn`, progress is shown only on a terminal or in a
    notebook. With `only_in_cell`, it is shown only in a notebook, because a terminal may be in use for other input.
    """

    def __init__(
        self,
        label: str,
        *,
        quiet: bool = False,
        moves: bool = True,
        only_drawn: bool = False,
        only_in_cell: bool = False,
    ) -> None:
        self._moves = moves
        self.totals = Totals()
        self._label = label
        # rich would draw by ipywidgets in a notebook, which need not be installed
        self._console = Console(stderr=True, quiet=quiet, highlight=False, force_jupyter=False)
        self._console.quiet |= only_in_cell or (only_drawn and not self._console.is_terminal)
        self._cell = None if quiet else _cell()
        self._live: Live | None = None
        self._printed = 0.0
        self._rate = RecentRate()

    def __enter__(self) -> Self:
        if self._cell is not None:
            self._cell(f"{self._label}: starting")
        elif self._moves and self._console.is_terminal and not self._console.quiet:
            self._live = Live(Spinner("dots", f"{self._label}: starting"), console=self._console, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self.leave("")

    def leave(self, text: str) -> None:
        """Stop showing progress; in a notebook, leave `text` as the output of the cell."""
        if self._live is not None:
            self._live.stop()
        if self._cell is not None:
            self._cell(text)

    def on_trouble(self, message: str) -> None:
        """Print a fault after which the run continues."""
        self._console.print(f"{self._label}: {message}", soft_wrap=True, markup=False)

    def on_warning(self, message: str) -> None:
        """Print a problem that does not stop the run."""
        self.on_trouble(f"warning: {message}")

    def on_alert(self, alert: Alert) -> None:
        """Print an alert that was raised or resolved."""
        self.on_trouble(f"alert {alert_line(alert)}")

    def on_ready(self) -> None:
        """Do nothing, because the first step will be shown."""

    def on_step(self, report: StepReport) -> None:
        """Show a step."""
        self.totals.add(report)
        self._rate.add(report)
        width = _WIDTH if self._live is None else self._console.width - _SPINNER
        line = progress_line(self._label, self.totals, self._rate.per_second, width)
        if self._cell is not None:
            self._cell(line)
        elif self._live is not None:
            self._live.update(Spinner("dots", Text(line)))
        elif time.monotonic() - self._printed >= _LINE_SECONDS:
            self._printed = time.monotonic()
            self._console.print(line, soft_wrap=True)


def alert_line(alert: Alert) -> str:
    """Return a line about an alert that was raised or resolved."""
    if alert.resolved is not None:
        lasted = short_duration((alert.resolved - alert.since) / 1_000_000)
        return f"{alert.name} resolved, after {lasted}"
    return f"{alert.name}: {alert.message} ({alert.runbook})"


def _cell() -> Callable[[str], None] | None:
    """Return a function that shows a line as the output of the current notebook cell; None outside a notebook.

    Each call replaces the previous line.
    """
    # a notebook has loaded it
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display  # noqa: PLC0415 - it need not be installed

    handles: list[Any] = []  # IPython has no types

    def show(line: str) -> None:
        data = {"text/plain": line}
        if handles:
            handles[0].update(data, raw=True)
        else:
            handle = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
            handles.extend([] if handle is None else [handle])

    return show


class RecentRate:
    """Events per second over the steps of the last 10 seconds, or over the last step if it took longer."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, float]] = deque()

    def add(self, report: StepReport) -> None:
        """Add a step, and drop steps that are no longer recent."""
        self._steps.append((report.events, report.seconds))
        while len(self._steps) > 1 and sum(seconds for _, seconds in self._steps) > _RECENT_SECONDS:
            self._steps.popleft()

    @property
    def per_second(self) -> float:
        """Events per second; 0 before the first step."""
        seconds = sum(seconds for _, seconds in self._steps)
        return sum(events for events, _ in self._steps) / seconds if seconds else 0.0


def progress_line(label: str, totals: Totals, rate: float, width: int = _WIDTH) -> str:
    """Return the progress of a run in at most `width` columns; details that do not fit are left out."""
    line = f"{label if len(label) <= _LABEL else label[: _LABEL - 1] + '…'}: {short_number(totals.events)} events"
    for part in (f"{short_number(rate)}/s", *_details(totals)):
        if len(line) + len(part) + 2 <= width:
            line += f", {part}"
    return line


def _details(totals: Totals) -> Iterator[str]:
    """Yield details about a run, the most important first."""
    report = totals.last
    if report is None:
        return
    low = report.low_watermark
    if report.watermarks:
        yield "no low watermark" if low is None else f"low watermark {format_time(low)}"
    if report.behind:
        behind = max(report.lag_seconds.values()) if report.lag_seconds else 0.0
        yield f"{short_number(report.behind)} behind{f' ({short_duration(behind)})' if behind else ''}"
    for count, name in ((totals.dead, "dead"), (totals.late, "late"), (totals.expired, "expired")):
        if count:
            yield f"{short_number(count)} {name}"
    unread = [number for number in report.held_back_by if report.watermarks[number] is None]
    if low is None and unread:
        yield f"nothing yet from {_partitions(unread)}"
    elif low is not None and len(report.watermarks) > 1 and report.held_back_by:
        yield f"by {_partitions(report.held_back_by)}"
    if report.idle:
        yield f"idle: {_partitions(report.idle)}"
    if report.behind and report.lag is not None and len(report.lag) > 1:
        farthest = max(report.lag, key=report.lag.__getitem__)
        yield f"{short_number(report.lag[farthest])} behind in partition {farthest}"


def _partitions(numbers: list[int | str]) -> str:
    noun = "partition" if len(numbers) == 1 else "partitions"
    more = " ..." if len(numbers) > _NAMED else ""
    return f"{noun} {', '.join(map(str, numbers[:_NAMED]))}{more}"
