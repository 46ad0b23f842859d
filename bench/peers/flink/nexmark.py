"""Queries of Nexmark in Flink SQL, through PyFlink's local cluster, as bench/peers/flink/run.py runs the main job."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from bench.peers.flink.run import table_environment
from bench.peers.job import DONE, READY, tell
from bench.peers.nexmark_job import NexmarkJob

if TYPE_CHECKING:
    from pyflink.table import TableResult

LOGS = {
    "persons": "id BIGINT, name STRING, city STRING, state STRING",
    "auctions": "id BIGINT, expires TIMESTAMP(3), seller BIGINT, category BIGINT",
    "bids": "auction BIGINT, bidder BIGINT, price BIGINT, extra STRING",
}
TABLE = """
CREATE TABLE {log} ({columns}, `dateTime` TIMESTAMP(3), WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '10' SECOND)
WITH (
  'connector' = 'kafka', 'topic' = '{topic}-{log}', 'properties.bootstrap.servers' = '{servers}',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
  'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'
)
"""
COUNTS = """
  SELECT window_start, window_end, auction, COUNT(*) AS num
  FROM TABLE(HOP(TABLE bids, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY window_start, window_end, auction
"""
QUERIES = {
    "q1": "SELECT auction, bidder, 0.908 * price AS euros, `dateTime`, extra FROM bids",
    "q3": """
        SELECT name, city, state, A.id FROM auctions A JOIN persons P ON A.seller = P.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')
    """,
    "q4": """
        SELECT category, AVG(CAST(final AS DOUBLE)) AS average FROM (
          SELECT id, category, MAX(price) AS final
          FROM auctions A JOIN bids B ON A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires
          GROUP BY id, category
        ) GROUP BY category
    """,
    "q5": f"""
        SELECT C.window_start, C.window_end, auction, num FROM ({COUNTS}) C JOIN (
          SELECT window_start, window_end, MAX(num) AS most FROM ({COUNTS}) GROUP BY window_start, window_end
        ) M ON C.window_start = M.window_start AND C.window_end = M.window_end AND num = most
    """,
    "q7": """
        SELECT auction, price, bidder, `dateTime`, extra FROM bids B JOIN (
          SELECT window_start, window_end, MAX(price) AS greatest
          FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
          GROUP BY window_start, window_end
        ) M ON price = greatest AND `dateTime` >= window_start AND `dateTime` < window_end
    """,
    "q8": """
        SELECT id, name, P.window_start FROM (
          SELECT id, name, window_start, window_end
          FROM TABLE(TUMBLE(TABLE persons, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
          GROUP BY id, name, window_start, window_end
        ) P JOIN (
          SELECT seller, window_start, window_end
          FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
          GROUP BY seller, window_start, window_end
        ) A ON id = seller AND P.window_start = A.window_start AND P.window_end = A.window_end
    """,
}


def main(job: NexmarkJob) -> None:
    """Run it to the end of the topics."""
    tables = table_environment(job.folder, rocksdb=False)
    for log, columns in LOGS.items():
        tables.execute_sql(TABLE.format(log=log, columns=columns, topic=job.topic, servers=job.servers))
    query = QUERIES[job.query]
    if job.rows:
        tell(READY)
        _write_rows(job, tables.sql_query(query).execute())
    else:
        # this starts the cluster, plans the query and hands it over: none of it is counted
        running = tables.execute_sql(f"CREATE TABLE results WITH ('connector' = 'blackhole') AS {query}")
        tell(READY)
        running.wait()
    tell(DONE)


def _write_rows(job: NexmarkJob, running: TableResult) -> None:
    """Write what is left of the changelog at its end."""
    from pyflink.common import RowKind  # noqa: PLC0415 - it reads the environment

    names = running.get_table_schema().get_field_names()
    left: Counter[str] = Counter()
    with running.collect() as rows:
        for row in rows:
            sign = 1 if row.get_row_kind() in {RowKind.INSERT, RowKind.UPDATE_AFTER} else -1
            left[json.dumps(dict(zip(names, row, strict=True)), default=str)] += sign
    (job.folder / "rows.jsonl").write_text("".join(f"{row}\n" for row in left.elements()))


if __name__ == "__main__":
    main(NexmarkJob.told())
