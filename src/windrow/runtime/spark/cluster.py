"""Executors of a cluster: their Python interpreter, waiting for them to start, and checks before the first step."""

from __future__ import annotations

import atexit
import json
import platform
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it has no types
from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from windrow import model as m
from windrow.connectors.open_sources import partition_finders
from windrow.errors import CheckpointError, EngineError, InputError, SetupError, WindrowError
from windrow.runtime.spark.errors import SPARK_ERRORS, translate_spark_error
from windrow.runtime.spark.transport import is_one_process
from windrow.telemetry.folders import Folder, folder_of, is_remote

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def partitions_of_state(spark: SparkSession, key_groups: int) -> int:
    """Return the number of state partitions of a new checkpoint, which is also the number of tasks of a level.

    It is ``spark.sql.shuffle.partitions`` if the user set it. Otherwise it is the number of cores on a single machine.
    On a cluster it depends only on the pipeline, because cores come and go while a checkpoint keeps its number. Each
    task adds about 30 ms to a live step, so there are no more tasks than known cores.
    """
    given = spark.sparkContext.getConf().get(SHUFFLE_PARTITIONS)
    if given is not None:
        return int(given)
    if is_one_process(spark):
        return int(spark.sparkContext.defaultParallelism)
    return m.state_partitions(key_groups)


def executors_python(given: Mapping[str, str]) -> str:
    """Return the executors' Python: ``spark.pyspark.python``, else that of an archive, else that of this process.

    A relative path starts where Spark unpacks archives. Spark also runs this Python in the driver, to plan Python
    sources, so there the path is made a link to this process's environment until the process ends.
    """
    archives = [archive for archive in given.get("spark.archives", "").split(",") if archive]
    usual = sys.executable
    if archives:
        path, _, name = archives[0].partition("#")
        usual = f"./{name or path.rpartition('/')[2]}/bin/python"
    python = given.get("spark.pyspark.python", usual)
    if match := re.match(r"(?:\./)?([^/]+)/.", python):
        link = Path(match[1])
        if not link.exists():
            try:
                link.symlink_to(sys.prefix)
            except OSError as exc:
                msg = f"{link.absolute()} cannot be created ({exc.strerror}): run windrow in a writable folder"
                raise SetupError(msg) from exc
            atexit.register(link.unlink, missing_ok=True)
    return python


@dataclass(frozen=True)
class _Executor:
    """What a task found on its executor; `problem` is the reason why it cannot read the source, if it cannot."""

    host: str
    python: str
    windrow: str
    pyspark: str
    sees: bool
    problem: str | None


_TASK = "task long, found string"
_JOBS = "windrow-preflight"


_Log = tuple[str, Callable[[], list[int]], list[int]]
"""The name of a log, the function that finds its partitions, and the partitions that the driver has found."""


def preflight(spark: SparkSession, graph: m.Graph, folder: Folder | None) -> None:
    """Check every executor, and raise SetupError with the host and a remedy if one does not meet a requirement.

    Each executor must run this version of Python, windrow and PySpark, share the checkpoint `folder` (if given) with
    the driver, and find the partitions of the source. Executors that start later are not checked, and no check is made
    if all of Spark runs in this process. Before this, Spark's own access to a folder in an object store is checked.
    Raise EngineError if no executor starts.
    """
    if folder is not None and is_remote(folder):
        _require_access(spark, folder)
    if is_one_process(spark):
        return
    logs = [(name, find, find()) for name, find in partition_finders(graph)]
    with _nonce(folder) as nonce:
        stage = _probe(logs, None if nonce is None else str(nonce))
        try:
            slots = _wait_for_executors(spark)
            spark.sparkContext.setJobGroup(_JOBS, "windrow: check of the executors")
            # a barrier: all tasks run at once, so that each executor has at least one
            rows = spark.range(0, slots, 1, slots).mapInArrow(stage, _TASK, barrier=True).collect()
            hosts = {task: host for task, host, _ in _tasks(spark)}
        except SPARK_ERRORS as exc:
            failed = None
            with suppress(*SPARK_ERRORS):
                failed = next((host for _, host, has_failed in _tasks(spark) if has_failed), None)
            raise translate_spark_error(exc, "the check of the executors", "", host=failed) from exc
        finally:
            with suppress(*SPARK_ERRORS):
                spark.sparkContext._jsc.sc().clearJobGroup()  # noqa: SLF001 - Python has no other way
        found = [_Executor(host=hosts.get(row.task, "?"), **json.loads(row.found)) for row in rows]
        written = set() if nonce is None else {path.name for path in nonce.parent.glob(f"{nonce.name}.*")}
        problems = dict.fromkeys(_problems(found, folder, graph))
        if not problems and nonce is not None and len(written) != slots:
            problems = dict.fromkeys([_not_shared("some executor", folder)])
    if problems:
        raise SetupError("\n".join(problems))


def _require_access(spark: SparkSession, folder: Folder) -> None:
    """Check that Spark finds the files that this process writes to an object store.

    Raise SetupError if Spark lacks the file system, or CheckpointError if it has no access.
    """
    with _nonce(folder) as nonce:
        hadoop = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr] # noqa: SLF001 - Python has no other way
        path = hadoop.Path(str(nonce))
        try:
            if path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path):  # noqa: SLF001 - the same
                return
        except Py4JJavaError as exc:
            said = str(exc.java_exception.toString()).split("\n", 1)[0]
            if "ClassNotFound" in said or "No FileSystem for scheme" in said:
                msg = (
                    f"Spark cannot read {folder}, as Hadoop's file system for it is missing ({said}); add it, "
                    f"for example with --conf spark.jars.packages={_HADOOP_AWS}"
                )
                raise SetupError(msg) from exc
            msg = f"Spark cannot read the checkpoint {folder}: {said}; check the settings spark.hadoop.fs.*"
            raise CheckpointError(msg) from exc
    msg = f"Spark and windrow find different object stores at {folder}: check the settings spark.hadoop.fs.*"
    raise CheckpointError(msg)


_HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.5.0,software.amazon.awssdk:bundle:2.35.4"
"""The packages that Spark needs for s3a."""


def _problems(found: Iterable[_Executor], folder: Folder | None, graph: m.Graph) -> Iterator[str]:
    ours = _here()
    records = [source.source.records for source in graph.sources]
    paths = [Path(record.place) for record in records if isinstance(record, m.LogSource | m.FilesSource)]
    is_relative = not all(path.is_absolute() for path in paths)
    for executor in found:
        for name, title in (("python", "Python"), ("windrow", "windrow"), ("pyspark", "PySpark")):
            theirs = getattr(executor, name)
            if theirs != ours[name]:
                yield (
                    f"the executor on {executor.host} has {title} {theirs}, and the driver {ours[name]}: "
                    "use the same image for both, or pack the driver's environment (windrow pack)"
                )
        if not executor.sees:
            yield _not_shared(f"the executor on {executor.host}", folder)
        if executor.problem is not None:
            where = "; it looks in its own folder: use an absolute path that all hosts share" if is_relative else ""
            yield f"the executor on {executor.host} cannot read the source: {executor.problem}{where}"


def _not_shared(executor: str, folder: Folder | None) -> str:
    if folder is not None and is_remote(folder):
        return (
            f"{executor} does not read the checkpoint {folder} as the driver does: give its Python the same "
            "credentials, through a role or with --conf spark.executorEnv.NAME=VALUE"
        )
    return (
        f"{executor} does not see the driver's checkpoint {folder}: choose a --checkpoint in a folder that the "
        "driver and all executors share"
    )


def _here() -> dict[str, Any]:
    """Return the versions that must be the same on the driver and the executors."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, "windrow": version("windrow"), "pyspark": version("pyspark")}


def _tasks(spark: SparkSession) -> Iterator[tuple[int, str, bool]]:
    """Yield the ID of each task of the check, its host (unknown to its Python), and True if it has failed."""
    tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - no other way
    for job in tracker.getJobIdsForGroup(_JOBS):
        for stage in getattr(tracker.getJobInfo(job), "stageIds", ()):
            tasks = store.taskList(stage, store.lastStageAttempt(stage).attemptId(), 1 << 30)
            for number in range(tasks.size()):
                task = tasks.apply(number)
                yield task.taskId(), task.host(), task.status() == "FAILED"


def _probe(logs: Sequence[_Log], nonce: str | None) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that a task runs, for `mapInArrow`."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        context = BarrierTaskContext.get()
        problem = next(filter(None, (_source_problem(*log) for log in logs)), None)
        found = _here() | {"sees": _sees(nonce, context.partitionId()), "problem": problem}
        task = pa.array([context.taskAttemptId()], pa.int64())
        yield pa.RecordBatch.from_arrays([task, pa.array([json.dumps(found)])], ["task", "found"])

    return run


def _sees(nonce: str | None, task: int) -> bool:
    """Return True if a task can read the driver's nonce file and write an answer beside it."""
    if nonce is None:
        return True
    path = folder_of(nonce)
    try:
        if path.read_text(encoding="utf-8") != path.name:
            return False
        path.with_name(f"{path.name}.{task}").write_text(path.name, encoding="utf-8")
    except (OSError, CheckpointError):
        return False
    return True


def _source_problem(name: str, find: Callable[[], list[int]], expected: list[int]) -> str | None:
    try:
        found = find()
    except WindrowError as exc:
        return str(exc)
    missing = ", ".join(str(number) for number in expected if number not in found)
    if not missing:
        return None
    return f"it does not find the partitions {missing} of {name} that the driver finds: share {name} with all hosts"


@contextmanager
def _nonce(folder: Folder | None) -> Iterator[Folder | None]:
    """Write a nonce file into a folder; at the end, remove it and the answers of the tasks."""
    if folder is None:
        yield None
        return
    path = folder.absolute() / f".preflight-{uuid.uuid4().hex}"
    try:
        try:
            path.write_text(path.name, encoding="utf-8")
        except OSError as exc:
            msg = f"the checkpoint {folder} cannot be written: {exc.strerror or exc}"
            raise CheckpointError(msg) from exc
        yield path
    finally:
        with suppress(OSError):
            for file in folder.glob(f"{path.name}*"):
                file.unlink()


_FIRST_EXECUTOR = 180.0
"""Seconds to wait for the first executor."""
_NO_OTHER = 3.0
"""Seconds without a new executor after which no further executors are expected."""


def _wait_for_executors(spark: SparkSession) -> int:
    """Wait until the requested executors have started, or no more start; return how many tasks they can run at once.

    Raise EngineError if none starts, or InputError if Spark is set to change their number dynamically.
    """
    context, conf = spark.sparkContext, spark.sparkContext.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        msg = (
            "spark.dynamicAllocation.enabled is true: steps are too short for Spark to detect idle executors, and the "
            "state of a removed executor must move; give --conf spark.dynamicAllocation.enabled=false"
        )
        raise InputError(msg)
    asked = int(conf.get("spark.executor.instances", "0") or 0)
    java = context._jsc.sc()  # noqa: SLF001 - Python has no other way
    begun = changed = time.monotonic()
    slots = 0
    while True:
        count = java.getExecutorMemoryStatus().size() - 1  # without the driver
        now_slots = java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile())
        now = time.monotonic()
        if now_slots != slots:
            slots, changed = now_slots, now
        if slots and ((asked and count >= asked) or now - changed >= _NO_OTHER):
            return int(slots)
        if not slots and now - begun >= _FIRST_EXECUTOR:
            msg = (
                f"no executor of {context.master} has started within {_FIRST_EXECUTOR:g} s: are there workers with "
                f"{conf.get('spark.executor.memory', '1g')} of memory and {conf.get('spark.executor.cores', 'a')} "
                "free core(s), and can they reach the driver (spark.driver.host)?"
            )
            raise EngineError(msg)
        time.sleep(0.1)
