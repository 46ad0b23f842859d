"""The fork server: one process that loads the libraries of Spark's Python processes while Java starts.

Before the first record is read, Spark on one machine starts several Python processes, one after the other: the daemon
of the workers, and those that create, follow and plan a source. Each would spend a second or more loading the same
libraries. Instead, they are forked from this process: in place of Python, Spark runs `fork_client.py`, which passes its
standard streams and its environment to a new fork, and waits until the fork ends.

Connections, threads and DuckDB's database are only opened after the fork.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import resource
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

from windrow.runtime.spark import fork_client

_FIXED = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
"""The variables matching `_READ_AT_START` that Spark sets by default."""

_READ_AT_START = re.compile(
    r"PYTHON(?!PATH$|UNBUFFERED$)[A-Z]+|(LD|DYLD|LC|MALLOC|ARROW|OMP)_\w+|\w+_NUM_THREADS|LANG|TZ"
)
"""Variables that Python and libraries only read when they start, so that a fork has the server's values."""

_LIBRARIES = (
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.testing.utils",
    "pyspark.worker",
    "windrow.runtime.spark.key_groups",
    "windrow.runtime.spark.stages",
    "windrow.runtime.stream.control",
    "windrow.connectors.kafka.stream",
    "windrow.connectors.log.stream",
)


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Make the Spark that starts in the block fork its Python processes from a server with its socket in `folder`.

    The server is started first, once per process, and ends with this process. If scripts in `folder` cannot be run, or
    its path is too long for a socket (107 bytes), Spark starts Python itself.
    """
    client = folder / "python"
    # -P: else the modules beside the client would hide those of Python
    words = [sys.executable, "-SEP", fork_client.__file__, str(folder / "fork-server"), sys.executable]
    client.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    client.chmod(0o700)
    if not _is_served(client, folder / "fork-server"):
        yield
        return
    before = os.environ["PYSPARK_PYTHON"]
    os.environ["PYSPARK_PYTHON"] = str(client)
    try:
        yield
    finally:
        os.environ["PYSPARK_PYTHON"] = before


def _is_served(client: Path, path: Path) -> bool:
    """Start the server if the client can be run; return True if it was started."""
    if not os.access(client, os.X_OK) or "PYTHONHOME" in os.environ:  # the client ignores it, by -E
        return False
    try:
        _start(path)
    except OSError:
        return False
    return True


@lru_cache(maxsize=1)
def _start(path: Path) -> None:
    environment = {**_FIXED, **os.environ, "PYTHONUNBUFFERED": "YES"}
    with socket.socket(socket.AF_UNIX) as listening:  # requests before the server has loaded wait here
        listening.bind(str(path))
        listening.listen()
        number = listening.fileno()
        words = [sys.executable, "-m", __name__, str(number)]
        server = subprocess.Popen(words, stdin=subprocess.PIPE, env=environment, pass_fds=[number])  # noqa: S603 - ours

    starter = os.getpid()

    def end() -> None:
        if os.getpid() == starter:  # a forked child runs exit handlers too
            server.kill()
            server.communicate()

    atexit.register(end)
    if server.stdin is not None:  # a forked child that lives longer would keep the server alive
        os.register_at_fork(after_in_child=server.stdin.close)


def leave_zips() -> None:
    """Remove PySpark's zip files from `sys.path` if PySpark is installed as a package.

    Otherwise each task would read their directories again (65 ms, more than the work of a small step), and each process
    would compile the modules that it imports from them.
    """
    folders = [entry for entry in sys.path if not entry.endswith(".zip")]
    if all(PathFinder.find_spec(name, folders) for name in ("pyspark", "py4j")):
        sys.path[:] = folders
        for entry in [entry for entry in sys.path_importer_cache if entry.endswith(".zip")]:
            del sys.path_importer_cache[entry]


def load() -> None:
    """Load the libraries of Spark's Python processes."""
    leave_zips()
    for name in _LIBRARIES:
        import_module(name)
    # a worker collects garbage after each task: exclude the objects that were loaded here
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # else a library reports leaks at the end


def main(number: int) -> None:
    """Serve on a listening socket until the process that started this one ends and thereby closes the pipe to it."""
    for ignored in (signal.SIGINT, signal.SIGHUP):  # as in the processes that Spark starts
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Python 3.12 and later warn at each fork: the thread is that of Arrow's allocator, which supports forks
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    started = dict(os.environ)
    with socket.socket(fileno=number) as listening:
        load()
        while True:
            ready, _, _ = select.select([number, fork_client.STANDARD[0]], [], [])
            if number not in ready:
                os._exit(0)  # without exit handlers, as libraries would report leaks
            asking, _ = listening.accept()
            if not os.fork():
                break
            asking.close()
    _become(asking, started)


def _become(asking: socket.socket, started: dict[str, str]) -> None:
    """Run the module of a client as if this process were the client's.

    `started` is the environment in which the libraries were loaded. If the client's environment differs in variables
    that they read, return, so that the client becomes Python itself.
    """
    _, given, _, _ = socket.recv_fds(asking, 1, len(fork_client.STANDARD))
    with asking.makefile("rb") as file:
        words, environment, folder, files = json.load(file)
    read = filter(_READ_AT_START.fullmatch, started.keys() | environment.keys())
    if words[0] != "-m" or any(environment.get(name, _FIXED.get(name)) != started.get(name) for name in read):
        return
    for number, descriptor in zip(fork_client.STANDARD, given, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    asking.send(os.getpid().to_bytes(4))
    # open until this process ends, for which the client waits; not in processes forked from it
    os.register_at_fork(after_in_child=asking.close)
    places = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [place for place in places if place and place not in sys.path]
    leave_zips()
    sys.argv[:] = words[1:]
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
