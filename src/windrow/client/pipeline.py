"""A pipeline in Python: an object that holds a graph, with methods that check, run and show it.

The modules that do the work are imported when a method is called, so that ``import windrow`` stays fast.

Examples use the pipeline of ``docs/guides/python.md`` and its log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Literal, Unpack

from windrow import model as m
from windrow.client.arguments import checked
from windrow.errors import HIDDEN_VALUES

if TYPE_CHECKING:
    from windrow.client.background import BackgroundRun
    from windrow.client.compare import Diff
    from windrow.client.explanation import Why
    from windrow.client.findings import Findings
    from windrow.client.result import Result
    from windrow.client.run import RunOptions
    from windrow.client.tables import PipelineLike, Rows
    from windrow.runtime.run import HostName
    from windrow.telemetry.reports import StepReport
    from windrow.terminal.display import Text


@checked
@dataclass(frozen=True, repr=False)
class Pipeline:
    """A pipeline, whose nodes are in `graph`.

    `windrow.ProcessPipeline` and `windrow.RulesPipeline` are other names for this class.
    """

    graph: m.Graph

    @property
    def name(self) -> str:
        """Its name."""
        return self.graph.name

    def check(self) -> Findings:
        """Return warnings of likely mistakes, and errors that depend on this machine, such as a missing list."""
        from windrow.client.findings import find  # noqa: PLC0415 - see the module

        return find(self.graph)

    def explain(self) -> Text:
        """Describe the pipeline in words, as `windrow explain` prints it; secrets are replaced by ``***``."""
        from windrow.authoring.printing import to_text  # noqa: PLC0415 - see the module
        from windrow.terminal.display import Text  # noqa: PLC0415

        return Text(to_text(self.graph))

    def preview(self, n: int = 5, *, table: str | None = None, records: int | None = None) -> Rows:
        """Return the first rows of a table, computed in this process from the first records, without its sink.

        >>> pipeline.preview(1)
        window_start          window_end            user_id  total  events  pane  revision
        2026-01-01T10:00:00Z  2026-01-01T10:05:00Z  A         8.00       3  late         1
        ... and 2 more rows of spend

        Args:
            n: the number of rows.
            table: as for `windrow.read_table`.
            records: the approximate number of records to read, divided among the partitions; by default, 10,000.
        """
        from windrow.client.run import preview  # noqa: PLC0415 - see the module

        return preview(self.graph, n, table, records)

    def run(
        self,
        host: HostName | None = None,
        *,
        until_end: bool = True,
        max_records: int | None = None,
        max_bytes: str | None = None,
        fresh: bool = False,
        recopy: str | Collection[str] = (),
        checkpoint: str | PathLike[str] | None = None,
        every: str | None = None,
        backfill: bool = False,
        from_savepoint: str | PathLike[str] | None = None,
        on_data_loss: Literal["stop", "continue"] | None = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        on_step: Callable[[StepReport], None] | None = None,
        progress: bool = True,
        warn_above: float = 0.01,
    ) -> Result:
        """Run the pipeline into its sink, and return its result when the run has ended.

        After Ctrl-C, or an interrupt in a notebook, the run finishes the current step and stops; a second interrupt
        ends it at once. If a Spark session is active, the run uses it unchanged.

        >>> result = pipeline.run("memory", fresh=True)
        >>> result.ended, result.totals.events, result.totals.late
        ('end', 5, 1)

        Args:
            host: ``"stream"``, ``"realtime"`` or ``"batch"`` on Spark; or ``"memory"``, in this process from the
                beginning of the log. By default, ``"stream"`` or ``"realtime"``, depending on the pipeline's mode.
            until_end: stop at the current end of the input, and fire open windows; otherwise, ``"stream"`` and
                ``"realtime"`` run live, as `windrow run` does.
            max_records: the maximum number of records in a step; by default, 1,000,000 (500,000 if the run is live or
                in memory).
            max_bytes: the approximate size of the records of a step; by default, ``"256M"``. A larger record is a step
                of its own.
            fresh: delete the checkpoint and the tables first.
            recopy: the followed table or tables to compare with their logs first, to append the differences.
            checkpoint: the folder from which the run resumes; by default, ``.windrow/NAME``.
            every: the time between the starts of two steps of a live run; by default, ``"1s"``.
            backfill: start a new checkpoint with a batch job over the log so far.
            from_savepoint: start a new checkpoint from a savepoint.
            on_data_loss: what to do if unread records are lost; by default, ``"stop"``.
            master: the URL of Spark's master, if the run starts Spark.
            conf: settings of Spark, if the run starts it.
            on_step: called with the report of each committed step.
            progress: whether to draw a line of progress.
            warn_above: the share of records that may expire, or be dead letters, without a warning in the result.

        Raises:
            InputError: the pipeline is invalid, or an option does not fit the host.
            WindrowError: the run has failed; committed steps are kept.
        """
        from windrow.client.run import run  # noqa: PLC0415 - see the module

        return run(
            self.graph,
            host,
            until_end=until_end,
            max_records=max_records,
            max_bytes=max_bytes,
            fresh=fresh,
            recopy=recopy,
            checkpoint=checkpoint,
            every=every,
            backfill=backfill,
            from_savepoint=from_savepoint,
            on_data_loss=on_data_loss,
            master=master,
            conf=conf,
            on_step=on_step,
            progress=progress,
            warn_above=warn_above,
        )

    def start(self, host: HostName | None = None, **options: Unpack[RunOptions]) -> BackgroundRun:
        """Start a run in a thread of this process, and return it at once.

        >>> run = pipeline.start("memory", fresh=True)
        >>> run.wait(timeout=60).totals.events, run.state, run.is_active, run.exception()
        (5, 'ended', False, None)

        The options are those of `run`. A live run (``until_end=False``) ends when `stop` is called or the interpreter
        exits, after its current step. `run.totals` has the counts so far, and `run.result` the current tables.
        `on_step` is called in the thread of the run. Progress is shown only in the cell of a notebook.

        Raises:
            InputError: as for `run`. The methods `wait` and `stop` of the returned run raise other errors, which are
                also logged.
        """
        from windrow.client.run import start  # noqa: PLC0415 - see the module

        return start(self.graph, host, **options)

    def replay(
        self,
        host: Literal["batch", "memory"] = "batch",
        *,
        into: str | None = None,
        journal: bool = True,
        to_end: bool = False,
        fresh: bool = False,
        checkpoint: str | PathLike[str] | None = None,
        max_records: int | None = None,
        max_bytes: str | None = None,
        on_step: Callable[[StepReport], None] | None = None,
        progress: bool = True,
    ) -> Result:
        """Replay the log into a shadow of the table, and return the shadow, to be compared with `diff`.

        The table and its run do not change.

        >>> pipeline.replay("memory", fresh=True).diff(pipeline).same
        True

        Args:
            host: on Spark as one batch job, or in this process.
            into: the table to write; by default, ``TABLE_shadow``.
            journal: whether to apply the clock journal of the table, or use the log alone.
            to_end: read to the end of the log; by default, up to the table's offsets, if its run has a checkpoint.
            fresh: delete the tables of an earlier replay first.
            checkpoint: of the run that writes the table; by default, ``.windrow/NAME``.
            max_records: the approximate number of records in a step; by default, 1,000,000.
            max_bytes: the approximate size of the records of a step; by default, ``"256M"``.
            on_step: called with the report of each committed step.
            progress: whether to draw a line of progress.

        Raises:
            InputError: the pipeline is invalid, or the shadow is the table itself.
            WindrowError: the replay has failed.
        """
        from windrow.client.run import replay  # noqa: PLC0415 - see the module

        return replay(
            self.graph,
            host,
            into=into,
            journal=journal,
            to_end=to_end,
            fresh=fresh,
            checkpoint=checkpoint,
            max_records=max_records,
            max_bytes=max_bytes,
            on_step=on_step,
            progress=progress,
        )

    def result(self) -> Result:
        """Return the tables that the pipeline's runs have written."""
        from windrow.client.result import Result  # noqa: PLC0415 - see the module

        return Result(self.graph)

    def diff(self, other: PipelineLike | None = None, *, panes: bool = False, limit: int = 10) -> Diff:
        """Compare the result tables with those of another pipeline, or with their shadows; see `windrow.diff`."""
        from windrow.client.compare import diff  # noqa: PLC0415 - see the module

        return diff(self, other, panes=panes, limit=limit)

    def why(
        self,
        where: Mapping[str, object],
        *,
        table: str | None = None,
        checkpoint: str | PathLike[str] | None = None,
        limit: int = 20,
    ) -> Why:
        """Explain one row of a result: the records, verdicts and revisions behind it.

        >>> why = pipeline.why({"user_id": "A", "window_start": "2026-01-01T10:00"})
        >>> why.explanation.counts
        {'on_time': 2, 'late': 1}

        Args:
            where: the values of columns that identify the row.
            table: its table, if there are several.
            checkpoint: of the run that writes the table; by default, ``.windrow/NAME``.
            limit: the maximum number of records to list; all are counted.

        Raises:
            InputError: no row or several rows meet the conditions.
            WindrowError: the log or the table cannot be read.
        """
        from windrow.client.explanation import explain_where  # noqa: PLC0415 - see the module

        return explain_where(self.graph, where, table, checkpoint, limit)

    def __repr__(self) -> str:
        tables = ", ".join(node.sink.table for node in self.graph.sinks)
        return HIDDEN_VALUES.hide(f"<Pipeline {self.name} into {tables}>")

    def _repr_html_(self) -> str:
        """Return a drawing of the pipeline, for notebooks."""
        from windrow.authoring.printing import to_svg  # noqa: PLC0415 - see the module

        return to_svg(self.graph)
