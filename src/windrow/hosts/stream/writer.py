"""What Spark calls with each step: it writes the step while Spark computes the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from pyspark.sql import DataFrame

from windrow.core.changelog import StepOutput
from windrow.core.operators.base import GroupOutput
from windrow.errors import RunError, WindrowError
from windrow.hosts.report import OnStep, StepReport, Stopwatch
from windrow.hosts.stream.errors import translate
from windrow.hosts.stream.wire import outputs
from windrow.model import AnyPipeline
from windrow.sinks.base import Sink


class SinkWriter:
    """Computes a step when it is called, and commits it in a thread of its own, in the order of the steps.

    A step that is computed waits until the one before is committed, so the tables are one step behind Spark's notes at
    the most; `agree` knows that. `failure` is why a step was not committed, None as long as all were; `unsure` is the
    report of a step whose commit failed, which the tables may have all the same: the answer to a COMMIT can be lost.

    `first_epoch` is the epoch of Spark's batch 0. Without `ahead` Spark waits for each step to be committed. `check` is
    called when the records of a step were read, and raises a WindrowError if they are not to be committed.
    """

    def __init__(
        self,
        pipeline: AnyPipeline,
        sink: Sink,
        on_step: OnStep,
        *,
        first_epoch: int = 0,
        ahead: bool = True,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._first_epoch = first_epoch
        self._ahead = ahead
        self._check = check
        self._pipeline = pipeline
        self._sink = sink
        self._on_step = on_step
        self._watch = Stopwatch()
        self._step = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "windrow-sink")
        self._writing: Future[None] | None = None
        self._closed = False
        self.failure: WindrowError | None = None
        self.unsure: StepReport | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Compute one step, and have it committed."""
        epoch = self._first_epoch + batch
        with self._step:
            if self._closed:
                msg = f"step {epoch} is left to the next run: this one was asked to stop"
                raise RunError(msg)
            try:
                work = Stopwatch()
                parts = outputs(self._pipeline, frame.toArrow().to_pylist())
                self._check()
                took = work.lap()
                self.settle()
                self._writing = self._thread.submit(self._write, epoch, parts, took)
                if not self._ahead:
                    self.settle()
            except WindrowError as exc:
                self.failure = exc
                raise

    def settle(self) -> None:
        """Wait until all that was computed is committed; raise the WindrowError that says why it is not."""
        if self._writing is not None:
            self._writing.result()
        if self.failure is not None:
            raise self.failure

    def close(self, seconds: float) -> bool:
        """Wait for the step at hand to be committed, and take no other; return whether that was done in time."""
        time = Stopwatch()
        if not self._step.acquire(timeout=seconds):
            return False
        self._closed = True
        self._step.release()
        self._thread.shutdown(wait=False)
        return self._writing is None or not wait([self._writing], max(0, seconds - time.lap())).not_done

    def _write(self, epoch: int, parts: Sequence[GroupOutput], took: float) -> None:
        work = Stopwatch()
        try:
            rows = StepOutput.concat([StepOutput.empty(self._pipeline), *(part.rows for part in parts)])
            stats = [part.stats for part in parts]
            report = self.unsure = StepReport.of(epoch, stats, self._watch.lap(), took) if parts else None
            self._sink.commit(epoch, rows)
            self.unsure = None
            if report is not None:
                seconds = report.seconds + self._watch.lap()
                self._on_step(replace(report, seconds=seconds, took=took + work.lap()))
        except WindrowError as exc:
            self.failure = exc
        except Exception as exc:  # noqa: BLE001 - it is raised where the run waits
            self.failure = translate(exc)
