"""The structured log of a run: JSON lines on stderr, instead of the progress line."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import click

from windrow.telemetry.reports import Alert, StepReport, Totals

if TYPE_CHECKING:
    from types import TracebackType

_STEP_SECONDS: Final = 1.0
"""Minimum seconds between two lines about steps; the counts of the steps in between are summed."""


class JsonLog:
    """Writes the events of a run as JSON lines, each with `time`, `level`, `event` and `pipeline`.

    The events are `step`, `fault`, `warning`, `alert`, `message` and `ready`, and at the end `ended` or `failed`. At
    most one `step` is written per second; it holds the summed counts of all steps since the previous one, and their
    number as `steps`. Steps that wait are written before any other event. Methods can be called from any thread.
    """

    def __init__(self, pipeline: str) -> None:
        self.totals = Totals()
        self._pipeline = pipeline
        self._lock = threading.RLock()  # a signal handler may run while a line is written
        self._held: StepReport | None = None
        self._steps = 0
        self._written = -_STEP_SECONDS
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        if value is None:
            self.write("info", "ended", steps=self.totals.steps, events=self.totals.events)
        else:
            self.write("error", "failed", kind=type(value).__name__, message=str(value))

    def on_ready(self) -> None:
        """Log that the run has started to take steps, or takes them again after a fault."""
        self.write("info", "ready")

    def on_trouble(self, message: str) -> None:
        """Log a fault after which the run continues."""
        self.write("warning", "fault", message=message)

    def on_warning(self, message: str) -> None:
        """Log a problem that does not stop the run."""
        self.write("warning", "warning", message=message)

    def on_alert(self, alert: Alert) -> None:
        """Log an alert that was raised or resolved, with its name and figures."""
        level: Literal["info", "warning"] = "warning" if alert.is_active else "info"
        fields = {name: value for name, value in alert.plain().items() if name != "pipeline"}
        self.write(level, "alert", **fields)

    def message(self, text: str) -> None:
        """Log a message that is meant to be read, such as that Spark is starting."""
        self.write("info", "message", message=text)

    def on_step(self, report: StepReport) -> None:
        """Log a step; if a line about steps has just been written, add the step to the next line instead."""
        with self._lock:
            self.totals.add(report)
            self._held = report if self._held is None else self._held + report
            self._steps += 1
            left = self._written + _STEP_SECONDS - time.monotonic()
            if left <= 0:
                self._flush()
            elif self._timer is None:
                self._timer = threading.Timer(left, self._flush)
                self._timer.daemon = True
                self._timer.start()

    def _flush(self) -> None:
        """Write a line about the steps that wait, if any."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._held is not None:
                self._written = time.monotonic()
                fields, self._held = {"steps": self._steps, **_fields(self._held)}, None
                self._steps = 0
                self._echo("info", "step", fields)

    def write(self, level: Literal["info", "warning", "error"], event: str, **values: Any) -> None:  # noqa: ANN401 - JSON
        """Write the steps that wait, and then a line about another event."""
        with self._lock:
            self._flush()
            self._echo(level, event, values)

    def _echo(self, level: str, event: str, values: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        click.echo(
            json.dumps({"time": now, "level": level, "event": event, "pipeline": self._pipeline, **values}), err=True
        )


def _fields(report: StepReport) -> dict[str, Any]:
    """Return the fields of a `step` line; times are in microseconds, durations in seconds."""
    counts = {name: getattr(report, name) for name in ("epoch", "records", "seconds", "took")}
    if not report.only_offsets:
        names = ("late", "expired", "dead", "rejected", "duplicates", "inserts", "revisions", "open_windows")
        counts |= {name: getattr(report, name) for name in (*names, "low_watermark", "watermark_lag", "held_back_by")}
    lag = report.last_lag
    known = {} if lag is None else {"behind": lag.behind, "lag_seconds": lag.longest}
    rounded = {part: round(seconds, 6) for part, seconds in report.parts.items()}
    return counts | known | {"parts": rounded, "state_rows": report.state_rows, "state_bytes": report.state_bytes}
