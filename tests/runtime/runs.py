"""Runs of a pipeline on the stream host, and what is done while they go on."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.graphs import Runnable, as_graph

from windrow.runtime.launch import launch
from windrow.runtime.run import Ended, RunSettings
from windrow.telemetry.reports import StepReport

Stop = Callable[[], None]
Scene = Generator[Callable[[StepReport], bool], StepReport, None]
"""Yields what it waits for, and is sent the report of the step that brought it."""


@dataclass
class Runner:
    """Runs pipelines with one checkpoint; `reports` are those of the last run."""

    checkpoint: Path
    reports: list[StepReport] = field(default_factory=list)

    def bounded(self, pipeline: Runnable, max_records: int | None = None, **options: Any) -> Ended:  # noqa: ANN401
        """Run to the end of the input."""
        self.reports = []
        given = RunSettings(self.checkpoint, until_end=True, max_records=max_records, **options)
        return launch(as_graph(pipeline), given, self.reports.append, lambda _: None)

    def live(
        self,
        pipeline: Runnable,
        scene: Scene,
        max_records: int | None = None,
        **options: Any,  # noqa: ANN401 - any of `RunSettings`
    ) -> Ended:
        """Run live while a scene is played; the run is asked to stop when it is over."""
        self.reports = []
        stops: list[Stop] = []
        waits: list[Callable[[StepReport], bool]] = []

        def on_step(report: StepReport) -> None:
            self.reports.append(report)
            while waits and waits[-1](report):
                try:
                    waits.append(scene.send(report))
                except StopIteration:
                    waits.clear()
                    stops[0]()

        waits.append(next(scene))
        given = RunSettings(self.checkpoint, max_records=max_records, every=50_000, **options)
        return launch(as_graph(pipeline), given, on_step, stops.append)


def read(records: int) -> Callable[[StepReport], bool]:
    """Wait until so many records were read in all, by where the partitions stand (which have no gaps)."""
    return lambda report: sum(report.offsets.values()) >= records
