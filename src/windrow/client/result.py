"""The results of a pipeline: its tables, and the counts of the run that wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow import model as m
from windrow.client.tables import SHOWN, Moment, PipelineLike, Rows, count_rows, read_table
from windrow.errors import WindrowError
from windrow.expressions import sink_specs
from windrow.runtime.run import Ended
from windrow.telemetry.numbers import format_time
from windrow.telemetry.reports import Totals, counted
from windrow.terminal.display import Text, html_lines

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from windrow.client.compare import Diff


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """The tables of a pipeline; a notebook shows the first rows of each, and the late, expired and dead counts.

    The tables are read at each access. After a run, `ended` is why it ended, ``end`` or
    ``asked``, `totals` holds its counts, and `warnings` its non-fatal problems. For the argument `table`, see
    `windrow.read_table`.
    """

    graph: m.Graph
    ended: Ended | None = None
    totals: Totals | None = None
    warnings: tuple[str, ...] = ()

    def table(
        self,
        table: str | None = None,
        *,
        where: Mapping[str, object] | None = None,
        key: Mapping[str, object] | None = None,
        window: Moment | None = None,
        since: Moment | None = None,
        reason: str = "",
        order: str | Sequence[str] = (),
        limit: int | None = None,
        as_of: Moment | None = None,
    ) -> Rows:
        """Read rows of a table; see `windrow.read_table`."""
        return read_table(
            self,
            table,
            where=where,
            key=key,
            window=window,
            since=since,
            reason=reason,
            order=order,
            limit=limit,
            as_of=as_of,
        )

    def to_arrow(self, table: str | None = None) -> pa.Table:
        """Return all rows of a table; see `Rows.to_arrow`."""
        return self.table(table).to_arrow()

    def to_pandas(self, table: str | None = None) -> pd.DataFrame:
        """Return all rows of a table; see `Rows.to_pandas`."""
        return self.table(table).to_pandas()

    def to_polars(self, table: str | None = None) -> pl.DataFrame:
        """Return all rows of a table; see `Rows.to_polars`."""
        return self.table(table).to_polars()

    def to_spark(self, table: str | None = None, *, spark: SparkSession | None = None) -> DataFrame:
        """Return all rows of a table; see `Rows.to_spark`."""
        return self.table(table).to_spark(spark)

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows of each table that exists, companion tables too."""
        specs = sink_specs(self.graph).values()
        return {name: rows for spec in specs for name, rows in count_rows(spec).items()}

    def diff(self, other: PipelineLike | None = None, *, panes: bool = False, limit: int = 10) -> Diff:
        """Compare the tables with those of another pipeline, or with their shadows; see `windrow.diff`."""
        from windrow.client.compare import diff  # noqa: PLC0415 - few results are compared

        return diff(self, other, panes=panes, limit=limit)

    def __repr__(self) -> str:
        return "\n".join([*self._heading(), *(line for part in self._parts() for line in ["", repr(part)])])

    def _repr_html_(self) -> str:
        shown = [part._repr_html_() if isinstance(part, Rows) else html_lines(part) for part in self._parts()]
        return html_lines(*self._heading()) + "".join(shown)

    def _heading(self) -> list[str]:
        name = self.graph.name
        if self.totals is None or self.ended is None:
            lines = [f"{name}: {', '.join(_counts(self))}"]
        else:
            lines = summary(name, self.ended, self.totals).splitlines()
        return [*lines, *(f"warning: {warning}" for warning in self.warnings)]

    def _parts(self) -> list[Rows | Text]:
        """Return the first rows of each result table, or an error message if they cannot be read."""
        found: list[Rows | Text] = []
        for sink in self.graph.sinks:
            try:
                found.append(self.table(sink.name or sink.sink.table, limit=SHOWN))
            except WindrowError as exc:
                found.append(Text(str(exc)))
        return found


def _counts(result: Result) -> list[str]:
    try:
        counts = result.counts
    except WindrowError:
        return ["tables that cannot be read"]
    words = {"_late": "expired", "_dead": "dead letter", "_changes": "change"}
    found = []
    for sink in result.graph.sinks:
        table = sink.sink.table
        if table in counts:
            found.append(f"{counted(counts[table], 'row')} in {table}")
            found += [
                f"{counts[name]:,} {word}{'' if word == 'expired' or counts[name] == 1 else 's'}"
                for end, word in words.items()
                if (name := f"{table}{end}") in counts
            ]
    return found or ["no tables yet"]


def summary(name: str, ended: Ended, totals: Totals) -> str:
    """Return one or two lines that say why and where a run ended, and its counts."""
    why, last = "read to the end" if ended == "end" else "stopped on request", totals.last
    if last is None:
        return f"{name}: {why}; {'no new records' if ended == 'end' else 'no step was taken'}"
    where = ", ".join(f"partition {partition} at {offset:,}" for partition, offset in last.offsets.items())
    if not last.watermarks:
        # a realtime run reports only its positions
        return f"{name}: {why} at {where or 'no offset'}"
    low = last.low_watermark
    return (
        f"{name}: {why} after {counted(totals.steps, 'step')}, at epoch {last.epoch}: {where}; "
        f"low watermark {'none' if low is None else format_time(low)}\n"
        f"  {counted(totals.events, 'event')} in {totals.seconds:.1f} s ({totals.rate:,.0f}/s): {totals.text}"
    )
