"""Peak memory of runs over large records: ``python -m bench.large_records parquet|log|topic [--host memory]``.

Three inputs that a limit on the number of records does not bound: a small Parquet file whose rows are large (equal)
texts, an embedded log of records of 1 MB, and a topic whose records grow from 100 B to 1 MB in one partition. What
counts is the proportional set size of all processes of the run, sampled several times a second, with default settings.
``--keep`` also decodes the large field, and ``--source`` is the folder of the windrow that runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from bench.pipelines import from_kafka, from_log, into_sqlite
from bench.processes import cpu, shares
from confluent_kafka import Producer

from windrow.testing.servers.kafka import Kafka

ROOT = Path(__file__).parent.parent
LIMIT_MIB = 4096
_EVERY = 0.2
_TOPIC = "growing"
_GROWTH = ((100, 100_000), (1_000, 30_000), (10_000, 8_000), (100_000, 3_000), (1_000_000, 1_500))
"""Sizes of the records of the topic, and how many there are of each."""
_WAITING = 1_000
_START = 1_767_225_600_000


def record(number: int, size: int) -> bytes:
    """Return a record of about so many bytes."""
    head = b'{"user_id": "u%d", "event_time": %d, "payload": "' % (number % 100, _START + number * 10)
    return head + b"x" * max(1, size - len(head) - 2) + b'"}'


def write_parquet(path: Path, rows: int) -> None:
    """Write rows of 1 MB that have the same text, which are a few hundred bytes in the file."""
    index = pa.array([0] * rows, pa.int32())
    users = pa.DictionaryArray.from_arrays(index, pa.array(["u1"]))
    payload = pa.DictionaryArray.from_arrays(index, pa.array(["x" * 1_000_000]))
    times = pa.array([_START] * rows, pa.int64())
    table = pa.table({"user_id": users, "event_time": times, "payload": payload})
    pq.write_table(table, path, compression="zstd", store_schema=False)


def growing(share: float) -> Iterator[bytes]:
    """Yield the records of the topic."""
    number = 0
    for size, count in _GROWTH:
        for _ in range(int(count * share)):
            yield record(number, size)
            number += 1


def measure(pipeline: str, folder: Path, host: str, source: Path) -> dict[str, float]:
    """Run a pipeline to the end of its input; return its peak memory in MiB, CPU seconds and exit code."""
    (folder / "pipeline.yaml").write_text(pipeline)
    words = [
        sys.executable,
        "-m",
        "windrow",
        "run",
        "pipeline.yaml",
        "--until-end",
        "--fresh",
        "--json",
        "--host",
        host,
    ]
    env = {**os.environ, "PYTHONPATH": str(source)}
    peak = spent = 0.0
    with (folder / "run.log").open("wb") as log:
        run = subprocess.Popen(words, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
        while run.poll() is None:
            peak, spent = max(peak, shares(run.pid)), max(spent, cpu(run.pid))
            time.sleep(_EVERY)
    return {"peak": round(peak), "cpu": round(spent, 1), "code": run.returncode}


def main() -> None:
    """Write the input, run the pipeline and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input", choices=["parquet", "log", "topic"])
    parser.add_argument("--host", choices=["stream", "memory"], default="stream")
    parser.add_argument("--records", type=int, help="records of 1 MB")
    parser.add_argument("--share", type=float, default=1.0, help="share of the topic's records")
    parser.add_argument("--keep", action="store_true", help="decode the large field")
    parser.add_argument("--source", type=Path, default=ROOT / "src")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="large-") as name:
        folder, broker = Path(name), None
        match given.input:
            case "parquet":
                write_parquet(folder / "rows.parquet", given.records or 20_000)
                source = f"{{files: {{path: {folder}/rows.parquet}}}}"
            case "log":
                (folder / "log").mkdir()
                with (folder / "log" / "partition-0.jsonl").open("wb") as file:
                    file.writelines(record(number, 1_000_000) + b"\n" for number in range(given.records or 5_000))
                source = from_log(folder / "log")
            case _:
                broker = Kafka(folder / "kafka")
                broker.start()
                broker.create_topic(_TOPIC, 1, {"max.message.bytes": "2000000"})
                producer = Producer({"bootstrap.servers": broker.servers, "message.max.bytes": 2_000_000})
                for value in growing(given.share):
                    producer.produce(_TOPIC, value, partition=0)
                    producer.poll(0)
                    while len(producer) > _WAITING:
                        producer.poll(0.1)
                producer.flush()
                source = from_kafka(broker.servers, _TOPIC)
        payload = ", payload: string" if given.keep else ""
        longest = ", longest: max(length(payload))" if given.keep else ""
        pipeline = f"""\
name: large
source: {source}
decode: {{user_id: string, event_time: timestamp_millis{payload}}}
time: {{field: event_time, delay: 10m}}
key: [user_id]
window: {{tumbling: 5m}}
aggregate: {{events: count(){longest}}}
sink: {into_sqlite(folder / "out.db", "large")}
"""
        try:
            found = measure(pipeline, folder, given.host, given.source)
            print(json.dumps({"input": given.input, "host": given.host, "keep": given.keep, **found}))
            print((folder / "run.log").read_text(errors="replace")[-1500:])
        finally:
            if broker is not None:
                broker.stop()


if __name__ == "__main__":
    main()
