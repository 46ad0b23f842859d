"""What each user spends in five minutes, in Flink SQL: python flink.py SERVERS on-event|on-periodic."""

from __future__ import annotations

import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

TABLES = """
CREATE TABLE events (
  user_id STRING, event_time TIMESTAMP_LTZ(3), amount DECIMAL(12, 2),
  WATERMARK FOR event_time AS event_time - INTERVAL '1' MINUTE
) WITH (
  'connector' = 'kafka', 'topic' = 'spend', 'properties.bootstrap.servers' = '{servers}',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
  'scan.watermark.emit.strategy' = '{strategy}',
  'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601', 'json.ignore-parse-errors' = 'true'
);
CREATE TABLE totals (
  window_start TIMESTAMP(3), user_id STRING, total DECIMAL(38, 2), PRIMARY KEY (window_start, user_id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'totals', 'properties.bootstrap.servers' = '{servers}',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE late (
  user_id STRING, event_time TIMESTAMP_LTZ(3), amount DECIMAL(12, 2)
) WITH ('connector' = 'kafka', 'topic' = 'late', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json');
CREATE TABLE dead (
  user_id STRING, event_time TIMESTAMP_LTZ(3)
) WITH ('connector' = 'kafka', 'topic' = 'dead', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json')
"""
INSERTS = (
    """
INSERT INTO totals
SELECT window_start, user_id, SUM(amount)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '5' MINUTES))
WHERE amount IS NOT NULL
GROUP BY window_start, window_end, user_id
""",
    """
INSERT INTO late
SELECT user_id, event_time, amount
FROM events
WHERE TO_TIMESTAMP_LTZ(300 * (UNIX_TIMESTAMP(CAST(event_time AS STRING)) / 300 + 1), 0) <= CURRENT_WATERMARK(event_time)
""",
    "INSERT INTO dead SELECT user_id, event_time FROM events WHERE amount IS NULL",
)


def main(servers: str, strategy: str, *jars: str) -> None:
    """Run the statements to the end of the topic."""
    configuration = Configuration()
    configuration.set_string("pipeline.jars", ";".join(f"file://{Path(jar).resolve()}" for jar in jars))
    configuration.set_string("parallelism.default", "1")
    configuration.set_string("table.local-time-zone", "UTC")
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    for statement in TABLES.format(servers=servers, strategy=strategy).split(";"):
        tables.execute_sql(statement)
    inserts = tables.create_statement_set()
    for statement in INSERTS:
        inserts.add_insert_sql(statement)
    inserts.execute().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
