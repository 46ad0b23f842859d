"""Translates errors that Spark raises into windrow's own errors."""

from __future__ import annotations

import errno
import re

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped] # it has no types
from pyspark.errors import PySparkException

from windrow import errors
from windrow.errors import CheckpointError, EngineError, RunError, SetupError, WindrowError, WorkerLostError
from windrow.runtime.settings import MEANING
from windrow.runtime.stream.integrity import RESTORE

SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
"""Errors that a call to Spark can raise: Spark's own, py4j's, and connection errors if the JVM has ended."""

_DAMAGED = re.compile(
    r"(?:ChecksumException: Checksum error: |Corruption: [^\n]*? in )(?:file:)?(\S+)|(?:FileNotFoundException: "
    r"(?:File )?(?:file:)?|No such file or directory: [^\n]*?)(\S+/state/\S+)"
)
_LOST_WORKER = re.compile(
    r"Python worker (?:failed to connect back|exited unexpectedly)|Failed to connect to the state server"
)
_NO_DESCRIPTORS = re.compile("Too many open files|can't start new thread")
_EXHAUSTED = "file descriptors or threads left: raise its limits (ulimit -n, ulimit -u), or find out what takes them"
_CUT_CALL = re.compile(r"py4j\.Py4J(?:Network)?Exception: (?:Error while|Cannot obtain)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_NO_DAEMON = re.compile(rf"reading the port number from {re.escape(MEANING['spark.python.daemon.module'])}'s stdout")
_HOST = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor \w+\)")
_LOST_EXECUTOR = re.compile(r"ExecutorLostFailure|FetchFailed|Executor heartbeat timed out|worker lost", re.IGNORECASE)
_STOPPED = re.compile(r"stopped SparkContext|SparkContext was shut down|LiveListenerBus is stopped")
_GO_ON = "\nwhat was committed stays; start again to continue from there"
_GIVE_PYTHON = (
    "choose one that exists (--conf spark.pyspark.python=PATH), use one image for driver and executors, or send the "
    "driver's environment (windrow pack env.tgz, --conf spark.archives=env.tgz#environment)"
)
_APPENDIX = "\n=== Streaming Query ==="
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_WRAPPING = re.compile(r"^(?:\[STREAM_FAILED\] )?Query \[id = [^\]]*\] terminated with exception: ")
_OURS = re.compile(r"^windrow\.errors\.(\w+): (.+?)(?=\n\s*at |\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t]+.*\n)+(\S.*)$", re.MULTILINE)
"""The stack trace of a Python error, up to the line with its class and message."""
_AWAITED = "Exception thrown in awaitResult"
"""The message of an error whose actual message is in one of its causes."""
_ENDED = "Spark's Java process has ended"
_CRASHED = "Python worker exited unexpectedly"
_WHY_CRASHED = (
    "; this happens if the machine runs out of memory, or if code in the process ends it: os._exit, or a crash "
    "within a library"
)
_RAISED = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception))(?:: (.+))?$", re.MULTILINE)


def fault_of(exc: Exception) -> RunError | None:
    """Return an error as a fault of the run, which passes if the process lacked descriptors; None if it is no fault."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in {errno.EMFILE, errno.ENFILE}:
            return WorkerLostError(f"this process has no {_EXHAUSTED}{_GO_ON}")
        cause = cause.__cause__
    return exc if isinstance(exc, RunError) else None


def translate_spark_error(
    exc: Exception, what: str = "the stream", then: str = _GO_ON, *, host: str | None = None
) -> WindrowError:
    """Return windrow's own error if a Python worker raised one, else an error with Spark's message.

    The message says that `what` has stopped, on which `host` (default: the host in Spark's message), and ends with the
    advice `then`.
    """
    said = _text_of(exc)
    text = _STATE.sub("", said.partition(_APPENDIX)[0]).strip()
    ours = _OURS.findall(text)
    if ours:
        name, message = ours[-1]
        kind = getattr(errors, name, EngineError)
        if not (isinstance(kind, type) and issubclass(kind, WindrowError)):
            kind = EngineError
        return kind(message.strip())
    if damaged := _DAMAGED.search(said):
        return CheckpointError(f"{damaged[1] or damaged[2]} is damaged or gone; {RESTORE}")
    if host is None:
        host = match[1] if (match := _HOST.search(said)) else None
    # Spark plans Python sources in the driver
    where = "the driver" if host is None else f"the executor on {host}"
    lacks = _NO_DESCRIPTORS.search(said)
    if (missing := _NO_PYTHON.search(said)) and not lacks:
        return SetupError(f"{where} has no Python {missing[1]}; {_GIVE_PYTHON}")
    if _NO_DAEMON.search(said):
        return SetupError(f"{where} has a Python without windrow or without its dependencies; {_GIVE_PYTHON}")
    if _STOPPED.search(said):
        return EngineError(f"{what} stopped: the cluster has ended the application, or the driver has lost it{then}")
    # a process that did not start within ten seconds, as on a busy machine, or was killed
    is_lost = any(pattern.search(said) for pattern in (_LOST_WORKER, _LOST_EXECUTOR, _CUT_CALL))
    kind = WorkerLostError if is_lost else EngineError
    at = "" if host in {None, "localhost", "127.0.0.1"} else f" on {host}"
    why = _WHY_CRASHED if _CRASHED in said else ""
    if lacks:
        kind, why = WorkerLostError, f"; {where} has no {_EXHAUSTED}"
    return kind(f"{what} stopped{at}: {_message_of(exc, text)}{why}{then}")


def java_message(exc: Py4JJavaError) -> str:
    """Return the message of Java's exception, or that Java has ended: py4j asks Java for the message."""
    try:
        return str(exc.java_exception.getMessage())
    except (Py4JError, OSError):
        return _ENDED


def _text_of(exc: Exception) -> str:
    """Return the text of an error; py4j asks Java for that of Java's exception too."""
    try:
        return str(exc)
    except (Py4JError, OSError):
        return _ENDED


def _message_of(exc: Exception, text: str) -> str:
    if isinstance(exc, Py4JJavaError):
        message = java_message(exc)
        text = text if message.startswith(_AWAITED) else message
    elif isinstance(exc, (Py4JError, ConnectionError)):
        return _ENDED
    elif not isinstance(exc, SPARK_ERRORS):
        return f"{type(exc).__name__}: {text}"
    if in_python := _PYTHON.findall(text):
        return str(in_python[-1])
    unwrapped = _WRAPPING.sub("", text)
    raised = _CAUSE.findall(unwrapped) or _RAISED.findall(unwrapped)
    return ": ".join(filter(None, raised[-1])) if raised else unwrapped.split("\n", 1)[0]
