"""What is other in a pipeline that goes on from a run, as far as the states feel it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """For each aggregate of the pipeline its number in the run, None for a new one; the run's lateness (microseconds).

    `same_records` says that what is computed of a record is what it was.
    """

    aggregates: tuple[int | None, ...] = ()
    lateness: int = 0
    same_records: bool = True

    def gone(self, gone: int, low: int, lateness: int) -> int:
        """Return up to which end windows are gone for good; `gone` is what was so before, `low` the low watermark.

        What a run has forgotten cannot be revised, however long the pipeline would wait for it.
        """
        return max(gone, low - self.lateness) if lateness > self.lateness else gone
