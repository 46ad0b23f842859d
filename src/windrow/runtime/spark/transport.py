"""Transport of tables and pipelines between the driver and Python workers, and the folder for temporary files."""

from __future__ import annotations

import atexit
import fcntl
import os
import pickle
import re
import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from windrow import model as m
from windrow.engine.columns import Blob, pack, unpack
from windrow.engine.user_code import raise_user_code_error
from windrow.errors import PipelineError
from windrow.runtime.settings import runs_in_driver
from windrow.telemetry.folders import Folder, fetch, folder_of, remove

_CHUNK = 1 << 16
"""Maximum number of rows of a batch in a file."""
_IS_FILE = re.compile(rb"/|\w+://")
"""The beginning of a path or URL; no Arrow stream begins like this."""
_LEAST = 1 << 16
"""Minimum size in bytes of a table that is worth a file."""


@dataclass(frozen=True)
class TableTransport:
    """Transports tables through Spark, and large tables in files if both sides share a folder.

    Spark copies a table several times, which takes up to half as long as computing it, and everything that Spark sends
    to the driver must fit in the driver's memory. Records are written to `folder` if all tasks run on this machine.
    Outputs are written to `folder` or to `shared`, which the driver of a cluster shares with the executors. With
    `drops`, output is dropped.
    """

    folder: Path | None = None
    drops: bool = False
    shared: str | None = None

    def put(self, table: pa.Table) -> bytes | None:
        """Return bytes from which `read_table` restores a table of an output, or None if the table has no rows."""
        if self.drops or not table.num_rows:
            return None
        return _pack(table, folder_of(self.shared) if self.folder is None and self.shared else self.folder)

    def pack(self, table: pa.Table) -> bytes:
        """Return bytes from which `read_stream` restores the table as an Arrow stream."""
        return _pack(table, self.folder)


def _pack(table: pa.Table, folder: Folder | None) -> bytes:
    if folder is None or table.nbytes < _LEAST:
        return pack(table)
    if isinstance(folder, Path):
        # a machine that cleans its temporary folder may have removed it if the run had no input for days
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / uuid.uuid4().hex
    with path.open("wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        # a batch is read whole: a sink would load a single batch of several GB into memory
        writer.write_table(table, max_chunksize=_CHUNK)
    return os.fsencode(str(path))


def read_table(blob: bytes) -> pa.Table:
    """Return the table that `TableTransport.put` packed; call this once, as it deletes the file."""
    return unpack(read_stream(blob))


def read_stream(blob: bytes) -> Blob:
    """Return the Arrow stream of a packed table; call this once, as it deletes the file."""
    if not _IS_FILE.match(blob):
        return blob
    path = fetch(folder_of(os.fsdecode(blob)))
    with pa.memory_map(str(path)) as file:
        path.unlink()
        return file.read_buffer()


@contextmanager
def carrying(spark: SparkSession, *, drops: bool, shared: Folder | None = None) -> Iterator[TableTransport]:
    """Yield a transport for the tasks started in the block; on a cluster, it uses the folder `shared` if given.

    The folder is emptied first, and removed at the end.
    """
    if not is_one_process(spark):
        if shared is not None:
            remove(shared)
        yield TableTransport(drops=drops, shared=None if shared is None else str(shared.absolute()))
        if shared is not None:
            with suppress(OSError):  # a task that is ending may still write
                remove(shared)
        return
    # a task that is ending may still write
    with tempfile.TemporaryDirectory(prefix="rows-", dir=scratch_folder(), ignore_cleanup_errors=True) as folder:
        yield TableTransport(Path(folder).absolute(), drops=drops)


def pickle_pipeline(graph: m.Graph) -> bytes:
    """Pickle a pipeline, including any of its functions that a worker cannot import.

    Raise PipelineError if a function holds an object that cannot be sent, such as an open file.
    """
    with _PICKLING, ExitStack() as stack:
        # modules that the user has registered stay registered
        known = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call] # it has no types
        for module in [module for module in _out_of_reach() if module.__name__ not in known]:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call] # it has no types
            stack.callback(cloudpickle.unregister_pickle_by_value, module)
        try:
            return cloudpickle.dumps(graph)  # type: ignore[no-any-return, no-untyped-call]
        except Exception as exc:
            msg = (
                f"the functions of the pipeline {graph.name!r} cannot be sent to Spark's workers ({exc}); they must "
                "not use what exists in one process only, such as an open file, a lock or a connection"
            )
            raise PipelineError(msg) from exc


_PICKLING = threading.Lock()
"""Several pipelines start at once, and the registry of modules is one."""


PIPELINES: Final = 32
"""Number of pipelines whose operators a worker keeps, as it serves the steps of all pipelines of a run in turn."""


@lru_cache(maxsize=PIPELINES)
def unpickle_pipeline(sent: bytes) -> m.Graph:
    """Unpickle a pipeline, once per process: the same bytes return the same object.

    A pipeline may contain Python functions. If each task unpickled it, the functions would be new objects that differ
    from the earlier ones, and a worker would rebuild the operators that it caches for the pipeline.

    Raise RunError if the code of a function fails while it is loaded.
    """
    try:
        pipeline: m.Graph = pickle.loads(sent)  # noqa: S301 - the driver of this run pickled it
    except BaseException as exc:  # noqa: BLE001 - raised again, with what failed
        raise_user_code_error(exc, "the functions of the pipeline cannot be loaded in one of Spark's Python processes")
    return pipeline


def _out_of_reach() -> Iterator[ModuleType]:
    """Yield the loaded modules that a worker would not find, such as modules beside a pipeline file."""
    homes = {sys.prefix, sys.base_prefix}
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # a worker does not run in this folder
    path = [entry for entry in sys.path if entry in given or (entry and Path(entry) != Path.cwd())]
    found: dict[str, bool] = {}
    for name, module in list(sys.modules.items()):
        file, top = getattr(module, "__file__", None), name.partition(".")[0]
        if isinstance(file, str) and top != "__main__" and not any(file.startswith(home) for home in homes):
            if top not in found:
                found[top] = PathFinder.find_spec(top, path) is not None
            if not found[top]:
                yield module


def is_one_process(spark: SparkSession) -> bool:
    """Return True if all tasks, and therefore their state stores, run in this process's JVM, without executors."""
    return runs_in_driver(str(spark.sparkContext.master))


_PREFIX = "windrow-scratch-"


@lru_cache(maxsize=1)
def scratch_folder() -> Path:
    """Create a folder for temporary files of this process and its Spark; it is removed when the process ends.

    Folders of killed processes are removed first. A process holds a lock in its folder, which the kernel releases when
    the process dies. The folder is only renamed to its final name once it is locked.
    """
    root = Path(tempfile.gettempdir())
    for folder in root.glob(f"{_PREFIX}*"):
        _remove_stale(folder)
    draft = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=root))
    lock = os.open(draft / "lock", os.O_CREAT | os.O_RDWR, 0o600)  # to the end of the process
    fcntl.flock(lock, fcntl.LOCK_EX)
    # systemd-tmpfiles removes files that were not read for 10 days, but none below a locked folder
    fcntl.flock(os.open(draft, os.O_RDONLY), fcntl.LOCK_SH)
    folder = draft.rename(root / draft.name[1:])
    atexit.register(_remove_own, folder, os.getpid())
    return folder


def _remove_own(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child runs exit handlers too
        shutil.rmtree(folder, ignore_errors=True)


def _remove_stale(folder: Path) -> None:
    """Remove the folder of a process of this user that has ended; leave all other folders."""
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
