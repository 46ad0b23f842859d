"""The cases of bench/joins.py on windrow's stream host; the rows are counted in the driver, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from bench.peers.first_task import tell_ready
from bench.peers.job import DONE, tell
from bench.peers.join_job import CHECKED, LOGS, JoinJob

from windrow.authoring.pipeline_file import read_document
from windrow.connectors.memory import CollectSink
from windrow.connectors.sink import SinkGroup
from windrow.model import Graph
from windrow.runtime.run import RunSettings
from windrow.runtime.spark.session import spark_session
from windrow.runtime.stream.run import StreamRun

if TYPE_CHECKING:
    from windrow.engine.changelog import StepOutput

SOURCE = """\
  {name}:
    source: {place}
    decode: {{{fields}, t: timestamp_millis}}
    time: {{field: t, delay: 1m, future: 1h}}
"""
FIELDS = {
    "orders": "order_id: string, user: string, amount: long",
    "payments": "order_id: string, paid: long",
    "rates": "currency: string, rate: long",
    "sales": "currency: string, sale_id: string, amount: long",
    "prices": "sku: string, price: long",
    "stocks": "sku: string, stock: long",
}
LATENESS = "    lateness: 10m\n"
INTERVAL = (
    "  joined: {{from: orders, join: {{with: payments, by: order_id, before: {before}, after: 15m, how: {how}}}}}\n"
)
LOOKUP = """\
  rate: {{from: rates, table: {{key: currency}}}}
  joined: {{from: sales, lookup: {{table: rate, by: currency, as_of: {as_of}}}}}
"""
TABLES = """\
  price: {from: prices, table: {key: sku}}
  stock: {from: stocks, table: {key: sku}}
  joined: {from: stock, join: {with: price, by: sku}}
"""
STREAMS = {
    "interval": INTERVAL.format(before="0s", how="inner"),
    "interval-left": INTERVAL.format(before="0s", how="left"),
    "lookup": LOOKUP.format(as_of="event_time"),
    "static": LOOKUP.format(as_of="order"),
    "tables": TABLES,
}
SINK = "  to_joined: {from: joined, sink: {sqlite: {path: unused.db, table: joined}}}\n"


def graph_of(streams: str, places: dict[str, str]) -> Graph:
    """Return the streams over sources, each with its place in YAML; the logs of records have a lateness."""
    text = "name: joins\nsources:\n"
    for name, place in places.items():
        text += SOURCE.format(name=name, place=place, fields=FIELDS[name])
        text += LATENESS if name in {"orders", "payments", "sales"} else ""
    graph = read_document(f"{text}streams:\n{streams}sinks:\n{SINK}", "joins.yaml").pipeline
    if not isinstance(graph, Graph):
        raise TypeError(graph)
    return graph


class Counted(CollectSink):
    """Counts the rows that are left of the changelog, and sums the products of two columns."""

    def __init__(self, left: str, right: str) -> None:
        super().__init__()
        self.rows = self.checksum = 0
        self._columns = left, right

    def commit(self, epoch: int, *outputs: StepOutput) -> None:  # noqa: ARG002 - the protocol's signature
        """Count a step."""
        (output,) = outputs
        left, right = (output.changes.column(name) for name in self._columns)
        added = pc.is_in(output.changes.column("op"), pa.array(["insert", "update_after"]))
        signs = pc.if_else(added, 1, -1)
        self.rows += pc.sum(signs).as_py() or 0
        self.checksum += pc.sum(pc.multiply(signs, pc.multiply(left, pc.fill_null(right, -1)))).as_py() or 0


def main(job: JoinJob) -> None:
    """Run it to the end of the logs."""
    places = {
        name: f"{{kafka: {{servers: '{job.servers}', topic: {name}}}}}"
        if job.servers
        else f"{{log: {{path: {job.logs / name}}}}}"
        for name in LOGS[job.case]
    }
    graph, sink = graph_of(STREAMS[job.case], places), Counted(*CHECKED[job.case])
    tell_ready(spark_session(log=job.folder / "spark.log"))
    settings = RunSettings(job.folder / "checkpoint", until_end=True, max_records=job.step)
    StreamRun(graph, SinkGroup((["to_joined"], sink)), settings).run(lambda _: None)
    job.write_found(sink.rows, sink.checksum)
    tell(DONE)


if __name__ == "__main__":
    main(JoinJob.told())
