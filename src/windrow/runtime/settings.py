"""Spark settings: those that results depend on, those that suit a machine, and those given by the user."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from windrow.errors import InputError
from windrow.telemetry.s3 import hadoop_settings

MEANING = {
    "spark.sql.session.timeZone": "UTC",
    # a batch is decoded whole: a record costs less in a large one
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # a packet is a row: larger batches would grow and be freed again, with fresh memory each time
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # a task of a batch run is the key group of its number, even without records
    "spark.sql.adaptive.enabled": "false",
    # passed in the environment: Spark reuses a worker only if all stages have the same one
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.python.daemon.module": "windrow.runtime.spark.worker_daemon",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # the default starts a process for each file that it renames, to check whether that is a link
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # in what Spark logs of options and plans
    "spark.redaction.regex": "(?i)secret|password|token|jaas|credential|keystore[.]key|pem$",
    "spark.sql.redaction.options.regex": "(?i)secret|password|token|jaas|credential|keystore[.]key|pem$|url",
}
"""Settings that results and secrecy depend on, and which are therefore the same in every run."""

MACHINE = {
    "spark.driver.memory": "4g",
    # a step comes to the driver whole; at the end of the input many windows may fire at once
    "spark.driver.maxResultSize": "0",
    # the JVM plans and moves bytes: the simpler compiler has finished before the other begins, and what is moved is
    # soon garbage, so a larger young generation would only take memory; so would an initial heap of a 64th of the
    # machine's, which fills up with garbage before it is collected (a live run keeps 90 MB)
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -Xmn96m -Xms256m",
    # a packet is columns of numbers, which take longer to compress than to move
    "spark.shuffle.compress": "false",
    # nor are checksums worth it: a packet goes from one process to another, and its sources have their own
    "spark.shuffle.checksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.buffer.pageSize": "4m",
    # blobs of state are alike and mostly smaller than a few KB: several are compressed together, with the better codec
    # (an older checkpoint keeps the codec of its changelogs, which Spark notes in it)
    "spark.sql.streaming.stateStore.compression.codec": "zstd",
    "spark.sql.streaming.stateStore.rocksdb.compression": "zstd",
    "spark.sql.streaming.stateStore.rocksdb.blockSizeKB": "64",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # what Spark notes of its jobs for that page, even if there is none, takes 0.2 MB a step
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    # over TCP each task of a Python stage waits some 40 ms longer
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.stopTimeout": "20s",
}
"""Settings that suit most machines; the user can override them."""

CLUSTER = {
    # as for the driver: the better compiler would take a third of the time of a live step's tasks
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC",
}
"""Settings that suit executors on other machines; the user can override them."""

LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Settings of a driver with executors on the same machine only; the user can override them."""


@dataclass(frozen=True)
class SparkOptions:
    """A command's Spark options: a master URL, and settings that override all others except `MEANING`."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, str]:
        """Return all settings given to Spark, including ``spark.master``; raise InputError if one is not allowed."""
        for name, value in self.conf.items():
            if MEANING.get(name, value) != value:
                msg = f"--conf {name}={value}: results depend on this setting, which is {MEANING[name]}; leave it out"
                raise InputError(msg)
        given = {"spark.master": "local[*]"} | given_settings() | dict(self.conf)
        if self.master is not None:
            given["spark.master"] = self.master
        if not _MASTER.fullmatch(given["spark.master"]):
            msg = (
                f"--master {given['spark.master']!r} is not a Spark master URL: use local[*], local[4], "
                "spark://HOST:PORT, k8s://URL or yarn"
            )
            raise InputError(msg)
        return given


AS_GIVEN = SparkOptions()
"""No options, so that only the settings of spark-submit, the environment and defaults apply."""

_MASTER = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|local-cluster\[.*\]|yarn|(spark|k8s)://.+")


def is_local(master: str) -> bool:
    """Return True if all of Spark runs on this machine."""
    return master.startswith("local")


def runs_in_driver(master: str) -> bool:
    """Return True if all tasks run in the driver's JVM, without executors."""
    return master.partition("[")[0] == "local"


def settings_of(given: Mapping[str, str], scratch: Path, java_options: str = "") -> dict[str, str]:
    """Return the settings of a session; settings that suit the machine are only defaults.

    `java_options` are additional options for the driver's JVM.
    """
    place = LOOPBACK | _local_folders(scratch, java_options) if is_local(given["spark.master"]) else CLUSTER
    return MACHINE | hadoop_settings() | place | dict(given) | MEANING


_LONGEST = 64
"""Maximum length of the path of a folder for Spark's sockets, whose paths can have 107 characters."""


def _local_folders(scratch: Path, java_options: str) -> dict[str, str]:
    """Return the settings that make Spark and its JVM keep their temporary files in a folder.

    SPARK_LOCAL_DIRS overrides them. The small files of the JVM stay in its default folder if the path of a socket would
    be too long, or has upper-case letters: Spark tells Python the path of the state server's socket in lower case.
    """
    folder = scratch / "local"
    folder.mkdir(exist_ok=True)
    options = f"{MACHINE['spark.driver.extraJavaOptions']}{java_options}"
    if len(str(folder)) <= _LONGEST and re.fullmatch(r"[a-z0-9_./-]+", str(folder)):
        options += f" -Djava.io.tmpdir={folder}"
    return {"spark.local.dir": str(folder), "spark.driver.extraJavaOptions": options}


_OPTIONS = {"--master": "spark.master", "--driver-memory": "spark.driver.memory"}


def given_settings() -> dict[str, str]:
    """Return the settings that the user gave to Spark: by spark-submit, PYSPARK_SUBMIT_ARGS, or spark-defaults.conf."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit runs this process and has read all settings
        from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - commands without Spark start without it

        SparkContext._ensure_initialized()  # noqa: SLF001 - no other way to ask its JVM
        return dict(SparkConf().getAll())
    found: dict[str, str] = {}
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR", "" if home is None else f"{home}/conf")
    defaults = Path(folder) / "spark-defaults.conf"
    if folder and defaults.is_file():
        lines = (line.strip() for line in defaults.read_text(encoding="utf-8").splitlines())
        found |= {
            name: value.strip()
            for name, value in (re.split(r"\s*=\s*|\s+", line, maxsplit=1) for line in lines if _SETTING.match(line))
        }
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for option, value in pairwise(words):
        name, sign, setting = value.partition("=")
        if option in {"--conf", "-c"} and sign:
            found[name] = setting
        elif option in _OPTIONS:
            found[_OPTIONS[option]] = value
    return found


_SETTING = re.compile(r"spark[.]\S+[\s=]+\S")
