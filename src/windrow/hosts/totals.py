"""The sum of a run's steps."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from windrow.hosts.report import StepReport


@dataclass
class Totals:
    """Adds up a run as its steps are committed."""

    steps: int = 0
    events: int = 0
    late: int = 0
    expired: int = 0
    dead: int = 0
    inserts: int = 0
    revisions: int = 0
    seconds: float = 0.0
    last: StepReport | None = field(default=None, repr=False)

    def add(self, report: StepReport) -> None:
        """Count a step."""
        self.steps += 1
        self.events += report.events
        self.late += report.late
        self.expired += report.expired
        self.dead += report.dead
        self.inserts += report.inserts
        self.revisions += report.revisions
        self.seconds += report.seconds
        self.last = report

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds if self.seconds else 0.0

    def plain(self) -> dict[str, Any]:
        """Return the totals as plain JSON, and where the run stands."""
        fields = asdict(self)
        last = fields.pop("last")
        fields["events_per_second"] = round(self.rate)
        fields["seconds"] = round(self.seconds, 3)
        if last is not None and self.last is not None:
            fields |= {
                "epoch": last["epoch"],
                "offsets": last["offsets"],
                "watermarks": last["watermarks"],
                "low_watermark": last["low_watermark"],
                "held_back_by": self.last.held_back_by,
                "idle": last["idle"],
                "lag": last["lag"],
                "behind": self.last.behind,
            }
        return fields
