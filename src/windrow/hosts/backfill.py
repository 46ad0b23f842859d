"""Reads what a log holds by the batch host, so that a stream can go on from there in the same checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Literal

from windrow.errors import CheckpointError
from windrow.hosts.batch.run import BatchRun
from windrow.hosts.batch.settings import BatchSettings
from windrow.hosts.meaning import meaning
from windrow.hosts.report import OnStep
from windrow.hosts.stream.checkpoint import Checkpoint, write_whole
from windrow.hosts.stream.lock import locked
from windrow.model import AnyPipeline
from windrow.sinks import open_sink
from windrow.sinks.base import Run
from windrow.sources import open_source


class Backfill:
    """What comes before the first step of a checkpoint: all that is in the log now, with what is open held.

    The checkpoint's folder says that it began, and under which run. One that was ended before its savepoint was there
    is done again, and what it had written is cleared.
    """

    def __init__(self, pipeline: AnyPipeline, checkpoint: Path, master: str) -> None:
        self._pipeline = pipeline
        self._folder = checkpoint
        self._master = master

    def run(self, on_step: OnStep, on_start: Callable[[Callable[[], None]], None]) -> Path | Literal["asked"] | None:
        """Return the savepoint to begin from, None where there is nothing to do: the log is empty, or the run began.

        `on_start` is given what asks it to stop, after which "asked" is returned. Raise a WindrowError if it failed.
        """
        Checkpoint.refuse_foreign(self._folder)
        savepoint = self._folder / "backfill"
        if Checkpoint.read(self._folder) is not None:
            return None
        with locked(self._folder):
            if savepoint.exists():
                return savepoint
            if all(first == end for first, end in open_source(self._pipeline.source).ends().values()):
                return None
            settings = BatchSettings(
                at_end="hold",
                savepoint=savepoint,
                run=self._begin(),
                master=self._master,
                log=self._folder / "spark.log",
            )
            with closing(open_sink(self._pipeline)) as sink:
                batch = BatchRun(self._pipeline, sink, settings)
                on_start(batch.stop)
                return savepoint if batch.run(on_step) == "end" else "asked"

    def _begin(self) -> Run:
        """Note which run it is, or clear what that run has written if it is noted."""
        path = self._folder / "backfill.json"
        if not path.exists():
            run = Run.new(self._pipeline.name)
            write_whole(path, json.dumps({"run": run.id, "pipeline": meaning(self._pipeline)}, indent=2))
            return run
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            run, begun = Run(self._pipeline.name, kept["run"]), kept["pipeline"]
        except (OSError, ValueError, KeyError, TypeError) as exc:
            msg = f"{path} cannot be read ({exc}); begin anew with --fresh"
            raise CheckpointError(msg) from exc
        if begun["name"] != self._pipeline.name:
            msg = f"{self._folder} holds a backfill of the pipeline {begun['name']!r}: name another --checkpoint"
            raise CheckpointError(msg)
        with closing(open_sink(self._pipeline)) as sink:
            written = sink.open(run)  # an error where the rows are another run's
        if written is not None:
            with closing(open_sink(self._pipeline)) as sink:
                sink.clear()
        return run
