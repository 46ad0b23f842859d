"""The main job in Flink SQL, through PyFlink's local cluster: two slots, checkpoints each 5 s, heap or RocksDB."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers.job import DONE, READY, TABLE, Job, tell, told

if TYPE_CHECKING:
    from pyflink.table import TableEnvironment

JARS = Path(__file__).parent / "jars"
EVENTS = """
CREATE TABLE events (
  user_id STRING, event_time BIGINT, amount DECIMAL(12, 2),
  ts AS TO_TIMESTAMP_LTZ(event_time, 3),
  WATERMARK FOR ts AS ts - INTERVAL '10' MINUTE
) WITH (
  'connector' = 'kafka', 'topic' = '{job.topic}', 'properties.bootstrap.servers' = '{job.servers}',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'json'
)
"""
RESULTS = """
CREATE TABLE results (
  window_start TIMESTAMP(3), user_id STRING, total DECIMAL(38, 2), events BIGINT{key}
) WITH ({sink})
"""
KEY = ", PRIMARY KEY (window_start, user_id) NOT ENFORCED"
INSERT = """
INSERT INTO results
SELECT window_start, user_id, SUM(amount), COUNT(*)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '5' MINUTES))
GROUP BY window_start, window_end, user_id
"""


def settings(folder: Path, *, rocksdb: bool) -> dict[str, str]:
    """Return what differs from Flink's defaults; checkpoints go into the folder."""
    return {
        "pipeline.jars": ";".join(f"file://{jar}" for jar in sorted(JARS.glob("*.jar"))),
        "parallelism.default": "2",
        "taskmanager.numberOfTaskSlots": "2",
        "taskmanager.memory.managed.size": "1g" if rocksdb else "512m",
        "state.backend.type": "rocksdb" if rocksdb else "hashmap",
        "execution.checkpointing.interval": "5s",
        "execution.checkpointing.incremental": str(rocksdb).lower(),
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "rest.port": "0",
    }


def sink(job: Job) -> str:
    """Return the options of where results go."""
    if job.results is not None:
        options = {
            "connector": "kafka",
            "topic": job.results,
            "properties.bootstrap.servers": job.servers,
            "properties.transaction.timeout.ms": "600000",
            "properties.compression.type": "lz4",
            "key.format": "json",
            "key.fields": "window_start;user_id",
            "value.format": "json",
            "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": job.results,
        }
        return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    if job.postgres is None:
        return "'connector' = 'blackhole'"
    address, user = job.jdbc
    options = {
        "connector": "jdbc",
        "url": f"{address}?reWriteBatchedInserts=true",
        "username": user,
        "password": "not asked for",
        "table-name": TABLE,
        "sink.buffer-flush.max-rows": "10000",
        "sink.buffer-flush.interval": "1s",
    }
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def table_environment(folder: Path, *, rocksdb: bool) -> TableEnvironment:
    """Return where SQL runs, in streaming mode, with its logs and checkpoints in the folder."""
    os.environ["JVM_ARGS"] = "-Xmx3g" if rocksdb else "-Xmx4g"
    os.environ["FLINK_LOG_DIR"] = str(folder)
    from pyflink.common import Configuration  # noqa: PLC0415 - it reads the environment
    from pyflink.table import EnvironmentSettings, TableEnvironment  # noqa: PLC0415

    configuration = Configuration()
    for name, value in settings(folder, rocksdb=rocksdb).items():
        configuration.set_string(name, value)
    environment = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    return TableEnvironment.create(environment)


def main(job: Job) -> None:
    """Run it to the end of the topic."""
    tables = table_environment(job.folder, rocksdb=job.engine == "flink-rocksdb")
    tables.execute_sql(EVENTS.format(job=job))
    tables.execute_sql(RESULTS.format(sink=sink(job), key="" if job.results is not None else KEY))
    # this starts the cluster, plans the query and hands it over: none of it is counted
    running = tables.execute_sql(INSERT)
    tell(READY)
    running.wait()
    tell(DONE)


if __name__ == "__main__":
    main(told())
