"""The cases of bench/joins.py in Flink SQL, with state on the heap, through PyFlink's local cluster.

The rows are counted by a query around the join. Mini-batches keep that cheap: each of the join's tasks counts its own
rows, and sends a sum every two seconds. With them Flink also takes its mini-batch join of two tables.
"""

from __future__ import annotations

from bench.peers.flink.run import table_environment
from bench.peers.job import DONE, READY, tell
from bench.peers.join_job import LOGS, TOLERANCE_MINUTES, JoinJob

COLUMNS = {
    "orders": "order_id STRING, `user` STRING, amount BIGINT",
    "payments": "order_id STRING, paid BIGINT",
    "rates": "currency STRING, rate BIGINT",
    "sales": "currency STRING, sale_id STRING, amount BIGINT",
    "prices": "sku STRING, price BIGINT",
    "stocks": "sku STRING, stock BIGINT",
}
TABLE = """
CREATE TABLE {name} (
  {columns}, t BIGINT, ts AS TO_TIMESTAMP_LTZ(t, 3), WATERMARK FOR ts AS ts - INTERVAL '{delay}' MINUTE{key}
) WITH (
  'properties.bootstrap.servers' = '{servers}', 'topic' = '{name}', 'scan.bounded.mode' = 'latest-offset', {options}
)
"""
RECORDS = "'connector' = 'kafka', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json'"
CHANGES = "'connector' = 'upsert-kafka', 'key.format' = 'raw', 'value.format' = 'json'"
KEYS = {"rates": "currency", "prices": "sku", "stocks": "sku"}
"""The logs that are changelogs of tables, with their keys."""
INTERVAL = """
SELECT O.order_id, `user`, amount, paid, O.t, P.t AS paid_at
FROM orders O {how} JOIN payments P
ON O.order_id = P.order_id AND P.ts BETWEEN O.ts AND O.ts + INTERVAL '15' MINUTE
"""
JOINS = {
    "interval": INTERVAL.format(how="INNER"),
    "interval-left": INTERVAL.format(how="LEFT"),
    "lookup": """
        SELECT sale_id, S.currency, amount, rate, S.t, R.t AS since
        FROM sales S JOIN rates FOR SYSTEM_TIME AS OF S.ts AS R ON S.currency = R.currency
    """,
    "tables": """
        SELECT S.sku, stock, price, S.t, P.t AS priced FROM stocks S JOIN prices P ON S.sku = P.sku
    """,
}
MINI_BATCHES = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
}


def main(job: JoinJob) -> None:
    """Run it to the end of the topics."""
    tables = table_environment(job.folder, rocksdb=False)
    for name, value in MINI_BATCHES.items():
        tables.get_config().set(name, value)
    for name in LOGS[job.case]:
        key = f", PRIMARY KEY ({KEYS[name]}) NOT ENFORCED" if name in KEYS else ""
        options = CHANGES if name in KEYS else RECORDS
        tables.execute_sql(
            TABLE.format(
                name=name,
                columns=COLUMNS[name],
                delay=TOLERANCE_MINUTES,
                key=key,
                servers=job.servers,
                options=options,
            )
        )
    # this starts the cluster, plans the query and hands it over: none of it is counted
    counted = tables.execute_sql(f"SELECT COUNT(*), SUM({job.product}) FROM ({JOINS[job.case]})")
    tell(READY)
    with counted.collect() as changes:
        *_, last = changes
    job.write_found(*last)
    tell(DONE)


if __name__ == "__main__":
    main(JoinJob.told())
