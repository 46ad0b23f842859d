"""Backfill: the log so far by a batch job, into a new checkpoint, before a live run."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from typing import Literal

from windrow import model as m
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.open_sources import open_sources
from windrow.connectors.sink import Run
from windrow.errors import CheckpointError
from windrow.runtime.batch.plan import BatchSettings
from windrow.runtime.savepoint import FILE, fingerprint
from windrow.runtime.settings import SparkOptions
from windrow.runtime.stream.checkpoint import Checkpoint, locked, log_of
from windrow.telemetry.folders import Folder, remove, write_whole
from windrow.telemetry.reports import OnStep


class Backfill:
    """What comes before the first step of a checkpoint: all that is in the log now, with what is open held.

    The checkpoint's folder says that it began, and under which run. One that was ended before its savepoint was there
    is done again, and what it had written is cleared.
    """

    def __init__(self, graph: m.Graph, checkpoint: Folder, spark: SparkOptions) -> None:
        self._pipeline = graph
        self._folder = checkpoint
        self._spark = spark

    def run(self, on_step: OnStep, on_start: Callable[[Callable[[], None]], None]) -> Folder | Literal["asked"] | None:
        """Return the savepoint to begin from, None where there is nothing to do: the log is empty, or the run began.

        `on_start` is given what asks it to stop, after which "asked" is returned. Raise a WindrowError if it failed.
        """
        from windrow.runtime.batch.run import BatchRun  # noqa: PLC0415 - Spark only where it runs

        Checkpoint.refuse_foreign(self._folder)
        savepoint = self._folder / "backfill"
        if Checkpoint.read(self._folder) is not None:
            return None
        with locked(self._folder):
            if (savepoint / FILE).exists():
                return savepoint
            remove(savepoint)
            if all(first == end for first, end in open_sources(self._pipeline).ends().values()):
                return None
            settings = BatchSettings(
                at_end="hold",
                savepoint=savepoint,
                run=self._begin(),
                spark=self._spark,
                log=log_of(self._folder),
            )
            with closing(open_sinks(self._pipeline)) as sink:
                batch = BatchRun(self._pipeline, sink, settings)
                on_start(batch.stop)
                return savepoint if batch.run(on_step) == "end" else "asked"

    def _begin(self) -> Run:
        """Note which run it is, or clear what that run has written if it is noted."""
        path = self._folder / "backfill.json"
        if not path.exists():
            run = Run.new(self._pipeline.name)
            write_whole(path, json.dumps({"run": run.id, "pipeline": fingerprint(self._pipeline)}, indent=2))
            return run
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            run, begun = Run(self._pipeline.name, kept["run"]), kept["pipeline"]
        except (OSError, ValueError, KeyError, TypeError) as exc:
            msg = f"{path} cannot be read ({exc}); start over with --fresh"
            raise CheckpointError(msg) from exc
        if begun["name"] != self._pipeline.name:
            msg = f"{self._folder} holds a backfill of the pipeline {begun['name']!r}: name another --checkpoint"
            raise CheckpointError(msg)
        with closing(open_sinks(self._pipeline)) as sink:
            written = sink.open(run)  # an error where the rows are another run's
        if written is not None:
            with closing(open_sinks(self._pipeline)) as sink:
                sink.clear()
        return run
