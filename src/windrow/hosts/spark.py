"""The Spark session: its settings, its home, its log, and Python workers started ahead of the first task."""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TextIO

from pyspark import InheritableThread, SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from windrow.errors import EngineError, InputError
from windrow.hosts.jars import java

_LOGGER = logging.getLogger(__name__)

MEANING = {
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
    "spark.python.daemon.module": "windrow.hosts.worker_daemon",
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
}
"""Settings that answers and their secrecy depend on: they are the same in every run."""

MACHINE = {
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
    # over TCP each task of a Python stage waits some 40 ms more
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.stopTimeout": "60s",
}
"""Settings that suit most machines; others may be given to Spark."""

LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Settings of a driver whose executors are on its machine; they may be given too."""


_MASTER = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|local-cluster\[.*\]|yarn|(spark|k8s)://.+")


def spark_session(master: str | None = None, *, log: Path | None = None) -> SparkSession:
    """Start Spark, or return the session that runs already.

    Without `master` it is the one that Spark was given, or ``local[*]``.

    What Spark and its Python workers say goes to the file `log` where one is given, and else to stderr. A start takes
    a while, and is logged as INFO. Raise InputError where `master` is not a master URL, SetupError where Java is
    missing, EngineError where Spark does not start.
    """
    active, given = SparkSession.getActiveSession(), given_settings()
    if master is None:
        master = given.get("spark.master", "local[*]")
    if not _MASTER.fullmatch(master):
        msg = f"--master {master!r} is not a master URL of Spark: give local[*], local[4], spark://HOST:PORT or yarn"
        raise InputError(msg)
    if active is not None:
        return active
    os.environ.setdefault("JAVA_HOME", str(java().resolve().parent.parent))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local(master):
        # else Spark looks up the machine's name, which not every machine knows (a container without a network)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch = scratch_folder()
    if "SPARK_HOME" not in os.environ:
        home = spark_home(scratch)
        if home is not None:
            os.environ["SPARK_HOME"] = str(home)
    builder = SparkSession.builder.master(master).appName("windrow")
    for name, value in settings_of(master, given, scratch).items():
        builder = builder.config(name, value)
    _LOGGER.info("starting Spark%s", "" if log is None else f" (log: {log})")
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


def is_local(master: str) -> bool:
    """Return whether all of Spark is on this machine."""
    return master.startswith("local")


def settings_of(master: str, given: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return the settings of a session; those that suit a machine only where Spark was given no other."""
    usual = MACHINE | (LOOPBACK | local_folders(scratch) if is_local(master) else {})
    return {name: value for name, value in usual.items() if name not in given} | MEANING


_OPTIONS = {"--master": "spark.master", "--driver-memory": "spark.driver.memory"}


def given_settings() -> dict[str, str]:
    """Return the settings that Spark was given: by spark-submit, PYSPARK_SUBMIT_ARGS, or spark-defaults.conf."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit runs this process, and has read them all
        SparkContext._ensure_initialized()  # noqa: SLF001 - its JVM is not asked otherwise
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


_SCRATCH = "windrow-scratch-"
_LONGEST = 64
"""Characters of a folder in which Spark can make its sockets, whose paths have 107 at the most."""


@lru_cache(maxsize=1)
def scratch_folder() -> Path:
    """Make a folder for the temporary files of this process and its Spark, which is removed when the process ends.

    Those of processes that were killed are removed first. A process holds a lock in its folder, which the kernel lets
    go of when it dies; the folder has its name only once it is locked.
    """
    root = Path(tempfile.gettempdir())
    for folder in root.glob(f"{_SCRATCH}*"):
        _remove_stale(folder)
    made = Path(tempfile.mkdtemp(prefix=f".{_SCRATCH}", dir=root))
    lock = os.open(made / "lock", os.O_CREAT | os.O_RDWR, 0o600)  # to the end of the process
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = made.rename(root / made.name[1:])
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _remove_stale(folder: Path) -> None:
    """Remove the folder of a process of this user that has ended; leave any other."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:  # another process removes it too
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


def local_folders(scratch: Path) -> dict[str, str]:
    """Return the settings that have Spark and its JVM keep their temporary files there.

    SPARK_LOCAL_DIRS comes before them. The JVM's own, which are small, stay where they are if its sockets could not be
    made there.
    """
    folder = scratch / "local"
    folder.mkdir(exist_ok=True)
    settings = {"spark.local.dir": str(folder)}
    if len(str(folder)) <= _LONGEST and re.fullmatch(r"[\w./-]+", str(folder)):
        options = MACHINE["spark.driver.extraJavaOptions"]
        settings["spark.driver.extraJavaOptions"] = f"{options} -Djava.io.tmpdir={folder}"
    return settings


def spark_home(scratch: Path) -> Path | None:
    """Make a folder that is the installed PySpark's home but for its zip of PySpark; return None if there is no such.

    Spark puts that zip on the path of every Python process that it starts: each compiles anew what it imports from it
    (0.6 s of CPU time in place of 0.1 s, and a query starts six of them), where the installed package would serve.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    installed = Path(spec.origin).parent
    if not (installed / "jars").is_dir():
        return None
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    for entry in installed.iterdir():
        if entry.name != "python" and not (home / entry.name).is_symlink():
            (home / entry.name).symlink_to(entry)
    return home


_NOISE = re.compile(
    # one line a step and key group, from Spark's own worker of stateful processing
    rb"^\s*$|^Streaming TransformWithStateInPandas |^Starting Streaming TransformWithStateInPandas "
)
_STDERR = 2
_LIMIT = 4 << 20
"""A file of more bytes is begun anew."""


@contextmanager
def stderr_to(log: Path) -> Iterator[None]:
    """Give the processes that are started meanwhile a stderr that goes to a file, for as long as this process lives.

    What this process itself writes goes on to its own stderr: a line of progress is not to stand still. The file
    stays small however long they live: what is said in every step is left out, and a file that is full makes room.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    readable, writable = os.pipe()
    threading.Thread(target=_drain, args=(readable, log), name="spark-log", daemon=True).start()
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    os.dup2(writable, _STDERR)
    os.close(writable)
    ours = sys.stderr
    try:
        with open(kept, "w", buffering=1, closefd=False, encoding="utf-8") as own:
            if _is_stderr(ours):
                sys.stderr = own
            yield
    finally:
        sys.stderr = ours
        os.dup2(kept, _STDERR)
        os.close(kept)


def _is_stderr(stream: TextIO) -> bool:
    """Return whether a stream is the process's stderr, and not what a test or a notebook put in its place."""
    try:
        return stream.fileno() == _STDERR
    except (OSError, ValueError, AttributeError):
        return False


def _drain(readable: int, log: Path) -> None:
    # unbuffered, so that what a full disk refuses is forgotten
    with os.fdopen(readable, "rb") as lines, log.open("ab", buffering=0) as file:
        for line in lines:
            if _NOISE.match(line):
                continue
            with suppress(OSError):  # nobody may wait for a log that cannot be written
                if file.tell() > _LIMIT:
                    file.truncate(0)
                file.write(line)


JOBS = "windrow-prestart"
"""The group of the jobs that do no more than that."""


@lru_cache(maxsize=1)
def prestart(spark: SparkSession) -> None:
    """Have a task on each core that takes a Python process, once a session; what fails here fails later, and is said.

    Return at once.
    """

    def start() -> None:
        with suppress(Exception):  # a session that has ended meanwhile has no context, and so on
            tasks = spark.sparkContext.defaultParallelism
            spark.sparkContext.setJobGroup(JOBS, "Python processes")
            spark.range(0, tasks, 1, tasks).mapInArrow(lambda batches: batches, "id long").collect()

    InheritableThread(target=start, name=JOBS, daemon=True).start()
