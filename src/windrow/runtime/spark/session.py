"""The Spark session: starting it, its home and log, and Python workers that are started before the first task."""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped] # it has no types
from pyspark import InheritableThread, SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, is_remote

from windrow.errors import EngineError, SetupError
from windrow.runtime.settings import AS_GIVEN, MEANING, SparkOptions, is_local, runs_in_driver, settings_of
from windrow.runtime.spark import fork_server
from windrow.runtime.spark.cluster import executors_python
from windrow.runtime.spark.errors import java_message
from windrow.runtime.spark.home import SparkHome, spark_home
from windrow.runtime.spark.jars import java
from windrow.runtime.spark.transport import is_one_process, scratch_folder
from windrow.telemetry.folders import make_private

_LOGGER = logging.getLogger(__name__)


def spark_session(options: SparkOptions = AS_GIVEN, *, log: Path | None = None) -> SparkSession:
    """Start Spark, or return a session of the Spark application that is already running (see `_beside`).

    Spark and its Python workers log to the file `log` if given, else to stderr. Starting takes a while, and is logged
    as INFO. Raise InputError if `options` are wrong, SetupError if Java is missing or this process is a client of Spark
    Connect, and EngineError if Spark does not start.
    """
    if is_remote() or "SPARK_REMOTE" in os.environ:
        raise SetupError(_CONNECT)
    with _STARTING:  # only one of several runs in a process starts it
        return _start(options.settings(), log)


_CONNECT = (
    "this process is a client of Spark Connect (SPARK_REMOTE, or a session of builder.remote), but a run needs Spark "
    "itself, in this process or on a cluster: run on the memory host, or start the run from a process without "
    "SPARK_REMOTE, with the master URL of a cluster; to_spark() passes results to the client's session"
)
_STARTING = threading.Lock()


@contextmanager
def _as_it_starts(log: Path | None, home: SparkHome | None, scratch: Path, *, has_executors: bool) -> Iterator[None]:
    """Provide the Spark that starts in the block with its log, its home, and a fork server for its Python processes."""
    with ExitStack() as stack:
        stack.enter_context(_java_of_this_start())
        if log is not None:
            stack.enter_context(stderr_to(log))
        if home is not None:
            stack.enter_context(home.in_use())
        if not has_executors and os.environ["PYSPARK_PYTHON"] == sys.executable:
            stack.enter_context(fork_server.in_use(scratch))
        # loads pandas, which PySpark needs for its first call of Java, while Java starts
        importing = threading.Thread(target=import_module, args=("pyspark.testing.utils",), daemon=True)
        importing.start()
        atexit.register(_end_thread, importing)
        yield


@contextmanager
def _java_of_this_start() -> Iterator[None]:
    """Make the JVM that PySpark starts in the block ignore SIGHUP, and kill it if the block raises.

    A terminal that is closed sends SIGHUP to all processes in the foreground. A run finishes its step first, so Java
    ignores the signal as it does Ctrl-C. Java ends by itself when this process does, unless it has not written its port
    yet: PySpark has then already removed the folder for the port, and Java would wait for calls forever.
    """
    module: Any = java_gateway  # it imports Popen, and does not export it
    popen = module.Popen
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: Any, preexec_fn: Callable[[], object] = lambda: None, **more: Any) -> Any:  # noqa: ANN401 - those of Popen
        def prepare() -> None:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            preexec_fn()

        started.append(popen(*words, preexec_fn=prepare, **more))
        return started[-1]

    module.Popen = start
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
            process.wait()
        raise
    finally:
        module.Popen = popen


def running_session() -> SparkSession | None:
    """Return the session of this process, or None if Spark has not been started."""
    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:  # noqa: SLF001 - no other way
        return SparkSession.builder.getOrCreate()  # an active session is one of its thread
    return active


def _start(given: dict[str, str], log: Path | None) -> SparkSession:
    active, master = running_session(), given["spark.master"]
    if active is not None:
        return _beside(active)
    os.environ.setdefault("JAVA_HOME", str(java().resolve().parent.parent))
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # else glibc's allocator keeps up to 8 pools a core of what RocksDB has freed
        os.environ.setdefault("MALLOC_ARENA_MAX", "4")
        # else Spark looks up the machine's name, which fails in a container without a network
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        python = executors_python(given)
        if {"spark.pyspark.python", "spark.archives"} & given.keys():
            os.environ["PYSPARK_PYTHON"] = python
        os.environ.setdefault("PYSPARK_PYTHON", python)
    scratch = scratch_folder()
    home = None if "SPARK_HOME" in os.environ else spark_home(scratch, Path(os.environ["JAVA_HOME"]))
    java_options = "" if home is None else home.java_options()
    builder = SparkSession.builder.master(master).appName("windrow")
    for name, value in settings_of(given, scratch, java_options).items():
        builder = builder.config(name, value)
    _hush_py4j()  # Ctrl-C during the start interrupts a call
    _LOGGER.info("starting Spark%s", "" if log is None else f" (log: {log})")
    try:
        # Spark replaces the handler of Ctrl-C
        interrupt = signal.getsignal(signal.SIGINT)
        with _as_it_starts(log, home, scratch, has_executors=not runs_in_driver(master)):
            session = builder.getOrCreate()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
    except (PySparkException, Py4JError, RuntimeError, OSError) as exc:
        where = "" if log is None else f"; its log is {log}"
        # if a cluster ends the application during its start, Java's message has the reason; if no master answers, Java
        # ends, which takes a minute
        said = (java_message(exc) if isinstance(exc, Py4JJavaError) else str(exc)).split("\n", 1)[0]
        msg = f"Spark did not start at {master}: {said}{where}"
        raise EngineError(msg) from exc
    if home is not None:
        atexit.register(home.archive_later)

    # if the JVM dies, the query reports it; this server would add a stack
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign] # noqa: SLF001 - no other way
    session.sparkContext.setLogLevel("WARN" if os.environ.get("WINDROW_DEBUG") else "ERROR")
    return session


@lru_cache(maxsize=1)
def _beside(active: SparkSession) -> SparkSession:
    """Return the active session if it has windrow's settings, else a new session with them in the same application.

    The user's own session, such as that of a notebook, keeps its settings.
    """
    # settings of Spark itself, not of a session, cannot change
    own = {name: value for name, value in MEANING.items() if name.startswith("spark.sql.")}
    if all(active.conf.get(name, None) == value for name, value in own.items()):
        return active
    session = active.newSession()
    for name, value in own.items():
        session.conf.set(name, value)
    return session


def _hush_py4j() -> None:
    """Silence py4j's stack traces of calls interrupted by the end of the JVM, as the run reports the failure itself.

    py4j logs with its own loggers and, for calls, with the root logger, which would then start to write to stderr.
    """
    if os.environ.get("WINDROW_DEBUG"):
        return
    logging.getLogger().addFilter(_is_not_py4j)
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    logging.getLogger("py4j").propagate = False


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


_NOISE = re.compile(
    # one line a step and key group, from Spark's own worker of stateful processing
    rb"^\s*$|^Streaming TransformWithStateInPandas |^Starting Streaming TransformWithStateInPandas "
)
_STDERR = 2
_LIMIT = 4 << 20
"""Maximum bytes of the log file, after which it is truncated."""


@contextmanager
def stderr_to(log: Path) -> Iterator[None]:
    """Redirect the stderr of processes that start in the block to a file, for as long as this process lives.

    This process keeps its own stderr, so that its progress line is still updated. The file stays small: lines that
    Spark logs in every step are left out, and a full file is truncated.
    """
    make_private(log.parent)
    # unbuffered, so that lines that a full disk refuses are dropped
    file = log.open("ab", buffering=0)
    readable, writable = os.pipe()
    threading.Thread(target=_drain, args=(readable, file), name="spark-log", daemon=True).start()
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
    """Return True if a stream is the stderr of the process, not a replacement by a test or a notebook."""
    try:
        return stream.fileno() == _STDERR
    except (OSError, ValueError, AttributeError):
        return False


def _drain(readable: int, log: BinaryIO) -> None:
    with os.fdopen(readable, "rb") as lines, log as file:
        for line in lines:
            if _NOISE.match(line):
                continue
            with suppress(OSError):  # the processes must not block on a log that cannot be written
                if file.tell() > _LIMIT:
                    file.truncate(0)
                file.write(line)


def close_dead_callbacks(spark: SparkSession) -> bool:
    """Return True if this process no longer accepts calls of Spark, and make the calls that wait for it fail.

    py4j accepts calls in a thread that ends at the first error, such as when the process has no descriptors left. Its
    socket stays open, so the kernel still takes connections, and Spark would wait for the answer to its call forever.
    The next query starts another thread.
    """
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - no other way
    server = vars(gateway).get("_callback_server")
    if server is None or server.thread is None or server.thread.is_alive():
        return False
    gateway._callback_server = None  # noqa: SLF001 - the same
    server.server_socket.close()
    return True


JOBS = "windrow-prestart"
"""The job group of the jobs that only start processes."""


@lru_cache(maxsize=2)  # with state, and without
def prestart(spark: SparkSession, *, has_state: bool) -> None:
    """Start one Python worker per core in the background, and load the classes of the state store; once per session.

    The state store is loaded by a small stateful query whose result is dropped. Otherwise the first step would take
    half a second longer, to load these Java classes and to allocate memory. Errors are ignored here, as the query
    reports them. On a cluster, the check of the executors starts the workers.
    """
    if not is_one_process(spark):
        return

    def start() -> None:
        with suppress(Exception):  # for example, the session may have ended
            _load(spark, has_state=has_state)

    thread = InheritableThread(target=start, name=JOBS, daemon=True)
    thread.start()
    atexit.register(_end_thread, thread, spark)


def _end_thread(thread: threading.Thread, spark: SparkSession | None = None) -> None:
    """Wait for a thread before the interpreter exits, and cancel the jobs of `spark` that the thread waits for.

    A daemon thread that loads or calls a C++ library while the interpreter exits would abort the process.
    """
    deadline = time.monotonic() + _END
    while thread.is_alive() and time.monotonic() < deadline:
        if spark is not None:
            with suppress(Exception):  # the session may have ended
                spark.sparkContext.cancelJobGroup(JOBS)
        thread.join(_POLL)


_END = 30.0
"""Seconds to wait for a thread."""
_POLL = 0.2


def _load(spark: SparkSession, *, has_state: bool) -> None:
    # a run loads them anyway, other commands do not need them
    from windrow.runtime.spark.key_groups import KeyGroupProcessor  # noqa: PLC0415
    from windrow.runtime.spark.stages import touch_state  # noqa: PLC0415

    tasks = spark.sparkContext.defaultParallelism
    spark.sparkContext.setJobGroup(JOBS, "Python processes")
    # not SQL, which Spark would have to load first; the query below loads it
    spark.sparkContext.parallelize(range(tasks), tasks).foreachPartition(lambda _: None)
    if has_state:
        own = spark.newSession()
        own.conf.set("spark.sql.shuffle.partitions", tasks)
        numbers = own.range(0, _KEYS, 1, tasks).mapInArrow(lambda batches: batches, "id long")
        numbers.groupBy("id").transformWithStateInPandas(
            statefulProcessor=KeyGroupProcessor(touch_state),
            outputStructType="id long",
            outputMode="Append",
            timeMode="None",
        ).toArrow()


_KEYS = 64
"""The number of keys in the warm-up query, which is enough for every task to have some."""
