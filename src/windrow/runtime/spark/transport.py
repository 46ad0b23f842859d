"""Transport of tables and pipelines between the driver and Python workers."""

from __future__ import annotations

import os
import pickle
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from windrow import model as m
from windrow.engine.columns import Blob, pack, unpack
from windrow.engine.user_code import raise_user_code_error
from windrow.errors import PipelineError
from windrow.runtime.settings import runs_in_driver
from windrow.runtime.spark.scratch import scratch_folder
from windrow.telemetry.folders import Folder, fetch, folder_of, remove

_CHUNK = 1 << 16
"""Rows of a batch in a file."""
_IS_FILE = re.compile(rb"/|\w+://")
"""What a path or a URL begins with, and no stream of Arrow's."""
_LEAST = 1 << 16
"""Bytes of a table, from which on a file is worth it."""


@dataclass(frozen=True)
class TableTransport:
    """Transports tables through Spark; large ones in files, if there is a folder that both sides see.

    Spark copies what it transports several times, which costs up to half as much as computing it, and what comes to the
    driver through it must fit into its memory. Records are written to `folder`, if all tasks are on this machine, and
    outputs to it or to `shared`, which on a cluster the driver shares with the executors. With `drops`, output is
    dropped.
    """

    folder: Path | None = None
    drops: bool = False
    shared: str | None = None

    def put(self, table: pa.Table) -> bytes | None:
        """Return the bytes from which `taken` restores a table of an output; None if it has no rows."""
        if self.drops or not table.num_rows:
            return None
        return _packed(table, folder_of(self.shared) if self.folder is None and self.shared else self.folder)

    def pack(self, table: pa.Table) -> bytes:
        """Return the bytes from which `opened` restores an Arrow stream."""
        return _packed(table, self.folder)


def _packed(table: pa.Table, folder: Folder | None) -> bytes:
    if folder is None or table.nbytes < _LEAST:
        return pack(table)
    if isinstance(folder, Path):
        # a machine that tidies its temporary folder may have removed it under a run that had no input for days
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / uuid.uuid4().hex
    with path.open("wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        # a batch is read whole, and one of several GB would not stay in its file while a sink takes it
        writer.write_table(table, max_chunksize=_CHUNK)
    return os.fsencode(str(path))


def taken(blob: bytes) -> pa.Table:
    """Return the table that was put; only once, since its file is deleted then."""
    return unpack(opened(blob))


def opened(blob: bytes) -> Blob:
    """Return the stream that a table was packed to; only once, for the same reason."""
    if not _IS_FILE.match(blob):
        return blob
    path = fetch(folder_of(os.fsdecode(blob)))
    with pa.memory_map(str(path)) as file:
        path.unlink()
        return file.read_buffer()


@contextmanager
def carrying(spark: SparkSession, *, drops: bool, shared: Folder | None = None) -> Iterator[TableTransport]:
    """Yield a transport for the tasks that run in this context; on a cluster with the folder `shared`, if there is one.

    That folder is made anew, and removed.
    """
    if not is_one_process(spark):
        if shared is not None:
            remove(shared)
        yield TableTransport(drops=drops, shared=None if shared is None else str(shared.absolute()))
        if shared is not None:
            with suppress(OSError):  # a task that was asked to end may still write
                remove(shared)
        return
    # a task that was asked to end may still write
    with TemporaryDirectory(prefix="rows-", dir=scratch_folder(), ignore_cleanup_errors=True) as folder:
        yield TableTransport(Path(folder).absolute(), drops=drops)


def pickle_pipeline(graph: m.Graph) -> bytes:
    """Pickle a pipeline, with the functions in it that a worker cannot import.

    Raise PipelineError if one of them holds something that cannot be sent, such as an open file.
    """
    with ExitStack() as held:
        # what somebody has registered stays so
        known = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call] # it has no types
        for module in [module for module in _out_of_reach() if module.__name__ not in known]:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call] # it has no types
            held.callback(cloudpickle.unregister_pickle_by_value, module)
        try:
            return cloudpickle.dumps(graph)  # type: ignore[no-any-return, no-untyped-call]
        except Exception as exc:
            msg = (
                f"the functions of the pipeline {graph.name!r} cannot be sent to Spark's workers ({exc}); let them "
                "use nothing that lives in one process only, such as an open file, a lock or a connection"
            )
            raise PipelineError(msg) from exc


@lru_cache(maxsize=4)
def unpickle_pipeline(sent: bytes) -> m.Graph:
    """Unpickle a pipeline, once in a process: the same bytes give the same object.

    A pipeline may hold Python functions. If each task unpickled it, the functions would be new objects that equal no
    earlier ones, and a worker would build again what it keeps for the pipeline.

    Raise RunError if the code of a function fails as it is loaded.
    """
    try:
        pipeline: m.Graph = pickle.loads(sent)  # noqa: S301 - the driver of this run pickled it
    except BaseException as exc:  # noqa: BLE001 - raised again, with what failed
        raise_user_code_error(exc, "the functions of the pipeline cannot be loaded in a Python process of Spark's")
    return pipeline


def _out_of_reach() -> Iterator[ModuleType]:
    """Go through the loaded modules that a worker would not find, such as those beside a pipeline's file."""
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
    """Return whether all tasks, and so their state stores, are in this process's JVM, and none in an executor."""
    return runs_in_driver(str(spark.sparkContext.master))
