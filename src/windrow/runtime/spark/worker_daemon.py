"""The process from which Spark's Python workers are forked: Spark's own daemon, with windrow's libraries loaded."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    from windrow.runtime.spark.fork_server import load

    load()
    # else Python searches for garbage after each 700 messages of a Kafka client: a fifth of the time of reading
    gc.set_threshold(200_000, 50, 100)

    from pyspark.daemon import manager

    manager()
