"""What is other in a pipeline that goes on from a run, as far as the states feel it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from windrow.model import AnyPipeline, Decode, Field

_P = TypeVar("_P", bound=AnyPipeline)


@dataclass(frozen=True)
class Plan:
    """For each aggregate of the pipeline its number in the run, None for a new one; the run's lateness (microseconds).

    `same_records` says that what is computed of a record is what it was. `were` are the decoded fields as the run had
    them that have another type now, or may be lacking now.
    """

    aggregates: tuple[int | None, ...] = ()
    lateness: int = 0
    same_records: bool = True
    were: tuple[Field, ...] = ()

    def gone(self, gone: int, low: int, lateness: int) -> int:
        """Return up to which end windows are gone for good; `gone` is what was so before, `low` the low watermark.

        What a run has forgotten cannot be revised, however long the pipeline would wait for it.
        """
        return max(gone, low - self.lateness) if lateness > self.lateness else gone

    def before(self, pipeline: _P) -> _P:
        """Return the pipeline with fields of the types that the run had."""
        were = {field.name: field for field in self.were}
        fields = tuple(were.get(field.name, field) for field in pipeline.decode.fields)
        return replace(pipeline, decode=Decode(fields))
