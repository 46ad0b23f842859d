"""A Spark session as windrow needs it."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from windrow.errors import EngineError, InputError
from windrow.hosts.java import java
from windrow.hosts.stream.chatter import stderr_to
from windrow.hosts.stream.home import spark_home

CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    # a step comes to the driver whole; the end of the input may fire much at once
    "spark.driver.maxResultSize": "0",
    # the JVM's work is planning and moving bytes: the simpler compiler is done with it before the other has begun, and
    # what is moved is soon of no use, so more room for it is only more memory
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -Xmn384m",
    # a packet is columns of numbers, which take longer to compress than to move
    "spark.shuffle.compress": "false",
    # nor is it worth sums: it goes from one process to another, and what it is made of has sums of its own
    "spark.shuffle.checksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.buffer.pageSize": "4m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # a batch is decoded whole: large ones cost less a record
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # a packet is a row: of more of them a batch is room that grows and is let go of again, fresh memory each time
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # a task of a batch run is a key group: also one without records, whose number is the task's
    "spark.sql.adaptive.enabled": "false",
    # it is said to the processes by their environment: they are of one kind only if it is the same for all stages
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.python.daemon.module": "windrow.hosts.stream.daemon",
    # over TCP each task of a Python stage waits some 40 ms more
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # the other one starts a process for each file that it renames, to ask whether that is a link
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # what Spark says of options and plans
    "spark.redaction.regex": "(?i)secret|password|token|jaas|credential|keystore[.]key|pem$",
    "spark.sql.redaction.options.regex": "(?i)secret|password|token|jaas|credential|keystore[.]key|pem$|url",
    "spark.sql.streaming.stopTimeout": "60s",
}


_MASTER = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|local-cluster\[.*\]|yarn|(spark|k8s)://.+")


def spark_session(master: str = "local[*]", *, log: Path | None = None) -> SparkSession:
    """Start Spark, or return the session that runs already.

    What Spark and its Python workers say goes to the file `log` where one is given, and else to stderr. Raise
    InputError where `master` is not a master URL, SetupError where Java is missing, EngineError where Spark does not
    start.
    """
    if not _MASTER.fullmatch(master):
        msg = f"--master {master!r} is not a master URL of Spark: give local[*], local[4], spark://HOST:PORT or yarn"
        raise InputError(msg)
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("JAVA_HOME", str(java().resolve().parent.parent))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # else Spark looks up the machine's name, which not every machine knows (a container without a network)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if "SPARK_HOME" not in os.environ:
        home = spark_home()
        if home is not None:
            os.environ["SPARK_HOME"] = str(home)
    builder = SparkSession.builder.master(master).appName("windrow")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    try:
        # Spark would take Ctrl-C for itself
        interrupt = signal.getsignal(signal.SIGINT)
        with nullcontext() if log is None else stderr_to(log):
            session = builder.getOrCreate()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
    except (PySparkException, RuntimeError, OSError) as exc:
        where = "" if log is None else f"; what it said is in {log}"
        msg = f"Spark did not start: {exc}{where}"
        raise EngineError(msg) from exc
    _hush_py4j()
    # if the JVM dies, the query says so; this server would add a stack
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign] # noqa: SLF001 - no other way
    session.sparkContext.setLogLevel("WARN" if os.environ.get("WINDROW_DEBUG") else "ERROR")
    # as many parts as there are cores: a key group is a row or two, so more parts are only more tasks
    session.conf.set("spark.sql.shuffle.partitions", session.sparkContext.defaultParallelism)
    return session


def _hush_py4j() -> None:
    """Keep py4j from writing the stacks of calls that the JVM's end broke off: what that means is said once.

    It logs by its own loggers and, of a call, by the root logger, which would begin to write to stderr by that.
    """
    if os.environ.get("WINDROW_DEBUG"):
        return
    logging.getLogger().addFilter(_is_not_py4j)
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    logging.getLogger("py4j").propagate = False


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"
