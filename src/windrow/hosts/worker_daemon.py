"""The process that Spark's Python workers are forked from: Spark's own daemon, with windrow's libraries loaded.

Spark puts PySpark on the path as a zip file. Each task reads that file's directory again (65 ms of CPU time, more than
the work of a small step) and each process compiles what it imports from it, so where PySpark is installed as a package
too, as it is with pip, the zip leaves the path. Nothing is opened here: connections, threads and DuckDB's database come
after the fork.
"""

from __future__ import annotations

import gc
import sys
from importlib.machinery import PathFinder


def leave_zips() -> None:
    """Remove PySpark's zip files from the path, if it is installed as a package."""
    folders = [entry for entry in sys.path if not entry.endswith(".zip")]
    if all(PathFinder.find_spec(name, folders) for name in ("pyspark", "py4j")):
        sys.path[:] = folders
        for entry in [entry for entry in sys.path_importer_cache if entry.endswith(".zip")]:
            del sys.path_importer_cache[entry]


if __name__ == "__main__":
    leave_zips()

    import pyspark.sql.streaming.proto.StateMessage_pb2
    import pyspark.worker  # noqa: F401 - loaded for the workers, as the others
    from pyspark.daemon import manager

    import windrow.hosts.key_groups
    import windrow.hosts.stages
    import windrow.sources.kafka.read  # noqa: F401 - the same

    # a worker collects garbage after each task: what was loaded here is none
    gc.collect()
    gc.freeze()
    # else Python looks for garbage in each 700 messages of a Kafka client, which are none: a fifth of the time to read
    gc.set_threshold(200_000, 50, 100)
    manager()
