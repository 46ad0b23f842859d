"""Gathers, each once, the facts about a pipeline that the doctor's rules judge; it changes nothing.

The pipeline can keep running: the history, the tables and the ends of the log are only read, and a trial restore reads
a copy of the checkpoint in a temporary folder.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import reduce
from itertools import zip_longest
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Final

from windrow import model as m
from windrow.authoring.checks import validate
from windrow.errors import CheckpointError, EngineError, InputError, WindrowError
from windrow.model.references import resolve_references
from windrow.runtime.run import CommandLines
from windrow.runtime.spark.jars import java_version
from windrow.telemetry.folders import Folder, is_remote
from windrow.telemetry.health import GOING
from windrow.telemetry.history import FILES, RunRecord, history_of, installed_versions, read_history, read_runs
from windrow.telemetry.reports import now_micros
from windrow.telemetry.status import STEPS, RunStatus, standing_since
from windrow.tools.doctor import facts
from windrow.tools.doctor.facts import Damaged, Examined, Restored, Unknown, secret_settings

if TYPE_CHECKING:
    from windrow.connectors.source import Loss
    from windrow.runtime.stream.checkpoint import Checkpoint
    from windrow.tools.tune.disorder import Disorder

_STEPS: Final = 20_000
"""Steps, or sums of steps, that are read from the history."""
_SIZES: Final = 100
_COUNTED: Final = 256 << 20
"""Bytes of an embedded log up to which its records are counted."""
_REACH: Final = 1.0
_ANSWER: Final = 5.0
"""Seconds to connect to a broker, and for its answer."""
_TRIES: Final = 3
"""How often the files of a checkpoint that is being written are read before they count as damaged."""
_SAVEPOINTS: Final = 3
_SHORTEST: Final = 6
"""Characters of the shortest secret that is searched for."""


def examine(
    commands: CommandLines, graph: m.Graph, checkpoint: Folder, *, restore: Callable[[Checkpoint], None] | None
) -> Examined:
    """Gather the facts about a pipeline and the run of a checkpoint.

    `commands` supplies command lines for the pipeline. `restore` is called before a copy of the checkpoint is restored;
    if it is None, nothing is restored.
    """
    now = now_micros()
    run = _run(history_of(checkpoint), now, graph)
    with ThreadPoolExecutor() as pool:
        logs = {node.name: pool.submit(log_facts, node) for node in graph.sources}
        tables = {
            node.name: pool.submit(_tables, graph, node) for node in graph.sinks if isinstance(node.sink, m.TableSink)
        }
        known, at = _checkpoint(checkpoint, graph, run)
        found_logs = {name: log.result() for name, log in logs.items()}
        found_tables = {name: table.result() for name, table in tables.items()}
    return Examined(
        graph=graph,
        now=now,
        commands=commands,
        machine=machine_facts(),
        place=disk(checkpoint) if isinstance(checkpoint, Path) else None,
        run=run,
        checkpoint=known,
        restored=_restored(graph, at, known, restore),
        disorder=_disorder(graph, history_of(checkpoint), run),
        savepoints=_savepoints(checkpoint),
        logs=found_logs,
        tables=found_tables,
        lost=_lost(graph, at, known, found_logs),
        warnings=tuple((finding.where, finding.message) for finding in validate(graph) if finding.level == "warning"),
        leaks=tuple(_leaks(graph, checkpoint, run)),
        readable=tuple(_readable(graph, checkpoint)),
    )


def _run(path: Path, now: int, graph: m.Graph) -> facts.RunFacts | Unknown:
    try:
        processes = read_runs(path)
        steps = read_history(path, last=_STEPS)
    except InputError as exc:
        nothing = "no run has written a history here (a run with --host memory or batch writes none)"
        return Unknown(str(exc) if path.is_file() else nothing)
    record = processes[-1] if processes else None
    status = RunStatus.of(record, steps[-STEPS:], now, graph)
    since = standing_since(steps)
    sizes = [step.state_bytes for step in steps if step.state_bytes is not None]
    return facts.RunFacts(
        status=status,
        processes=tuple(processes),
        total=reduce(add, steps) if steps else None,
        options=_command_line(record) if status.state in GOING else None,
        state_bytes=(*sizes[:: max(1, len(sizes) // _SIZES)], *sizes[-1:]),
        stands=None if since is None else status.now - since,
    )


def _command_line(record: RunRecord | None) -> tuple[str, ...] | None:
    """Return the command line of a process as words, or None if it is unknown or the process is on another machine."""
    if record is None or record.machine != socket.gethostname():
        return None
    try:
        return tuple(Path(f"/proc/{record.pid}/cmdline").read_bytes().decode(errors="replace").split("\0"))
    except OSError:
        return None


def _disorder(graph: m.Graph, path: Path, run: facts.RunFacts | Unknown) -> Disorder | Unknown:
    total = run if isinstance(run, Unknown) else run.counts
    if isinstance(total, Unknown):
        return total
    from windrow.tools.tune.disorder import read_recorded  # noqa: PLC0415 - a pipeline that never ran needs no Arrow

    try:
        return read_recorded(graph, [total])
    except InputError:
        return Unknown(f"{path} does not contain the lateness of records in these partitions")


def _checkpoint(
    folder: Folder, graph: m.Graph, run: facts.RunFacts | Unknown
) -> tuple[facts.CheckpointFacts | Unknown, Checkpoint | None]:
    try:
        is_there = folder.exists()
    except CheckpointError as exc:  # an object store does not answer
        return Unknown(str(exc)), None
    if not is_there:
        return Unknown(f"no run has left a checkpoint in {folder}"), None
    from windrow.runtime.stream.checkpoint import Checkpoint  # noqa: PLC0415 - a pipeline that never ran needs no Arrow

    try:
        known = Checkpoint.read(folder)
    except CheckpointError as exc:
        return facts.CheckpointFacts(None, damage=str(exc)), None
    if known is None:
        return Unknown(f"no run has left a checkpoint in {folder}"), None
    differs = None
    try:
        Checkpoint.open(folder, graph)
    except CheckpointError as exc:
        # between the first line and the advice there is a line for each difference
        differs = "; ".join(line.strip() for line in str(exc).splitlines()[1:-1])
    is_going = not isinstance(run, Unknown) and run.is_going
    damage = _damage(known, _TRIES if is_going else 1)
    size = 0 if is_remote(folder) else _size(Path(str(folder)))
    return facts.CheckpointFacts(known.run, known.follows, known.committed, size, damage, differs), known


def _damage(known: Checkpoint, tries: int) -> str | None:
    """Return a description of the damage to a checkpoint's files, or None.

    The files are read up to `tries` times, because a run may remove some of them meanwhile.
    """
    from windrow.runtime.stream.integrity import refuse_damaged, refuse_damaged_tables  # noqa: PLC0415 - as above

    try:
        refuse_damaged(known.spark)
        if not is_remote(known.folder):
            refuse_damaged_tables(known.spark)
    except (CheckpointError, OSError) as exc:
        return _damage(known, tries - 1) if tries > 1 else str(exc)
    return None


def _size(folder: Path) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):  # a run may remove it meanwhile
                total += (Path(root) / name).stat().st_size
    return total


def _restored(
    graph: m.Graph,
    known: Checkpoint | None,
    found: facts.CheckpointFacts | Unknown,
    restore: Callable[[Checkpoint], None] | None,
) -> Restored | Damaged | Unknown:
    if known is None or isinstance(found, Unknown) or found.damage is not None:
        return Unknown("no checkpoint can be read")
    if found.differs is not None or found.epoch is None or restore is None:
        why = "--no-restore was given" if found.differs is None else "the pipeline has changed"
        return Unknown("no step was committed" if found.epoch is None else why)
    room = shutil.disk_usage(tempfile.gettempdir()).free
    if 2 * found.size > room:
        return Unknown(f"a copy needs {2 * found.size:,} bytes, and {tempfile.gettempdir()} has {room:,}; set TMPDIR")
    restore(known)
    with tempfile.TemporaryDirectory(prefix="windrow-doctor-") as folder:
        try:
            return restore_copy(graph, known, Path(folder))
        except CheckpointError as exc:
            return Damaged(str(exc).replace(folder, str(known.folder.parent)))


def restore_copy(graph: m.Graph, known: Checkpoint, to: Path) -> Restored | Damaged | Unknown:
    """Copy a checkpoint into a folder and read its state; raise CheckpointError if it is damaged."""
    from windrow.engine.state.inspect import inspect_state  # noqa: PLC0415 - Spark only where it is needed
    from windrow.runtime.settings import SparkOptions  # noqa: PLC0415 - the same
    from windrow.runtime.spark.session import spark_session  # noqa: PLC0415 - the same
    from windrow.runtime.stream.take_savepoint import look  # noqa: PLC0415 - the same

    began = time.monotonic()
    copy = to / known.folder.name
    # the log of steps first: the states of the steps in it are kept for a hundred steps
    for part in ("windrow.json", "beginning.json", "lists.json", "spark/commits", "spark/offsets", "spark", "start"):
        _copy(known.folder / part, copy / part)
    spark = SparkOptions("local[1]")
    try:
        spark_session(spark, log=to / "spark.log")
    except WindrowError as exc:
        return Unknown(str(exc))
    try:
        epoch, states = look(graph, copy, spark)
        report = inspect_state(graph, states)
    except EngineError:
        return Damaged("Spark cannot read the states of its key groups")
    size, keys = sum(group.bytes for group in report.groups), sum(group.keys for group in report.groups)
    return Restored(epoch, size, keys, report.windows, time.monotonic() - began)


def _copy(source: Folder, target: Path) -> None:
    """Copy a file or folder, skipping files that exist in the target or that are removed meanwhile."""
    if source.is_dir():
        for path in source.iterdir():
            if not path.name.startswith(".") or path.name.endswith(".crc"):
                _copy(path, target / path.name)
        return
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        target.write_bytes(source.read_bytes())


def _savepoints(checkpoint: Folder) -> dict[str, Restored | Damaged]:
    """Read the newest savepoints beside a checkpoint whose name is the checkpoint's followed by an epoch."""
    if is_remote(checkpoint):
        return {}
    parent = Path(str(checkpoint.parent))
    name = re.compile(rf"{re.escape(checkpoint.name)}-\d+")
    paths = parent.iterdir() if parent.is_dir() else ()
    folders = [path for path in paths if name.fullmatch(path.name) and (path / "savepoint.json").is_file()]
    newest = sorted(folders, key=lambda path: path.stat().st_mtime)[-_SAVEPOINTS:]
    return {str(path): _read_savepoint(path) for path in newest}


def _read_savepoint(folder: Path) -> Restored | Damaged:
    from windrow.runtime.savepoint import Savepoint  # noqa: PLC0415 - only a savepoint needs Arrow

    began = time.monotonic()
    try:
        epoch = Savepoint.read(folder).epoch
        size = sum(state.size for _, state in Savepoint.states(folder))
    except CheckpointError as exc:
        return Damaged(str(exc))
    return Restored(epoch, size, 0, 0, time.monotonic() - began)


def _tables(graph: m.Graph, node: m.SinkNode) -> facts.TableFacts | Unknown:
    """Read which run owns the tables of a sink, and count losses, dead letters and redrives."""
    if not isinstance(node.sink, m.PostgresSink) and not Path(getattr(node.sink, "path", "")).exists():
        return Unknown(f"there is no database {getattr(node.sink, 'path', '')} yet: no run has written it")
    from windrow.connectors.database import Condition  # noqa: PLC0415 - Arrow only where there is a database
    from windrow.connectors.open_sinks import open_database  # noqa: PLC0415 - the same
    from windrow.connectors.tables import REDRIVES, layout  # noqa: PLC0415 - the same
    from windrow.expressions import sink_spec  # noqa: PLC0415 - the same

    try:
        database = open_database(node.sink)
        tables = layout(sink_spec(graph, node))
        owner, epoch = database.stands(tables.result.name) or (None, None)
        misfits = tuple(database.mismatches(tables))
        losses = [Condition("reason", ">", "lost"), Condition("reason", "<", "losu")]
        wanted = [(tables.clocks, losses), (tables.dead, []), (REDRIVES, [Condition("pipeline", "=", graph.name)])]
        with database.snapshot() as shot:
            counts = [shot.count(table, where) if shot.columns(table.name) else 0 for table, where in wanted]
    except WindrowError as exc:
        return Unknown(str(exc))
    return facts.TableFacts(owner, epoch, tables.result.key, misfits, *counts)


def log_facts(node: m.SourceNode) -> facts.LogFacts | Unknown:
    """Query a source for its partitions, records and retention."""
    from windrow.connectors.open_sources import open_source  # noqa: PLC0415 - as a thread of its own loads it

    source = node.source
    try:
        match source.records:
            case m.KafkaSource(servers=servers) as topic:
                if (why := _unreached(servers)) is not None:
                    return Unknown(why)
                from windrow.connectors.kafka.source import preflight, topic_settings  # noqa: PLC0415 - librdkafka only here

                ends = preflight(topic, _ANSWER)
                held = sum(end - first for first, end in ends.values())
                return facts.LogFacts(len(ends), held, _retention(topic_settings(topic, _ANSWER)))
            case m.LogSource(path=path):
                log = open_source(source)
                partitions = log.partitions()
                files = sum(file.stat().st_size for file in Path(path).glob("partition-*.jsonl"))
                records = sum(end - first for first, end in log.ends().values()) if files <= _COUNTED else None
                return facts.LogFacts(len(partitions), records, is_cut=any(Path(path).glob("partition-*.kept.json")))
            case _:
                ends = open_source(source).ends()
                return facts.LogFacts(len(ends), sum(end - first for first, end in ends.values()))
    except (WindrowError, OSError) as exc:
        return Unknown(str(exc))


def _unreached(servers: str) -> str | None:
    """Return an error message if no broker accepts a connection, else None.

    A Kafka client would retry for seconds instead.
    """
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        with suppress(OSError, ValueError), socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH):
            return None
    return f"no Kafka broker can be reached at {servers}"


def _retention(settings: Mapping[str, str]) -> facts.Retention:
    time_, bytes_ = (int(settings.get(name, -1)) for name in ("retention.ms", "retention.bytes"))
    policy = settings.get("cleanup.policy", "delete")
    is_deleted = "delete" in policy
    return facts.Retention(
        time=time_ * 1_000 if time_ >= 0 and is_deleted else None,
        bytes=bytes_ if bytes_ >= 0 and is_deleted else None,
        is_compacted="compact" in policy,
        is_appended=settings.get("message.timestamp.type") == "LogAppendTime",
    )


def _lost(
    graph: m.Graph,
    known: Checkpoint | None,
    found: facts.CheckpointFacts | Unknown,
    logs: Mapping[str, facts.LogFacts | Unknown],
) -> tuple[Loss, ...] | Unknown:
    """Return the records that the run would read next but that the log no longer has."""
    why = next((fact.why for fact in (*logs.values(), found) if isinstance(fact, Unknown)), None)
    if graph.mode == "realtime":
        why = "a realtime run checks for losses itself, when it opens a partition and then every second"
    elif known is not None and not isinstance(found, Unknown) and (found.damage or found.differs):
        why = "the checkpoint, which holds the position of the run, cannot be used"
    if known is None or why is not None:
        return Unknown(why or "there is no checkpoint, so the position of the run is unknown")
    from windrow.connectors.open_sources import open_sources  # noqa: PLC0415 - the same
    from windrow.runtime.stream.offsets import OffsetLog  # noqa: PLC0415 - as above

    try:
        note = OffsetLog(known).read()
        if note is None:
            return ()
        return open_sources(graph).find_losses(note.at, known.identity).losses
    except WindrowError as exc:
        return Unknown(str(exc))


def _leaks(graph: m.Graph, checkpoint: Folder, run: facts.RunFacts | Unknown) -> Iterator[str]:
    """Yield the run's files that contain the value of a secret reference."""
    secrets: set[bytes] = set()
    for reference in secret_references(graph):
        with suppress(InputError):  # it does not exist on this machine
            secrets.add(resolve_references(reference, "", str).encode())
    secrets = {secret for secret in secrets if len(secret) >= _SHORTEST}
    if not secrets or is_remote(checkpoint):
        return
    for name in ("windrow.json", "spark.log"):
        path = Path(str(checkpoint)) / name
        if path.is_file() and any(secret in path.read_bytes() for secret in secrets):
            yield str(path)
    records = () if isinstance(run, Unknown) else run.processes
    texts = [json.dumps(record.plain(), ensure_ascii=False).encode() for record in records]
    if any(secret in text for text in texts for secret in secrets):
        yield str(Path(str(checkpoint)) / FILES[0])


def secret_references(graph: m.Graph) -> list[str]:
    """Return the references that stand for secrets in a pipeline, but not those for user names or hosts."""
    return [reference for setting in secret_settings(graph) for reference in setting.references]


def _readable(graph: m.Graph, checkpoint: Folder) -> Iterator[str]:
    """Yield a message for each secret file that is readable by everyone, and for a checkpoint writable by everyone."""
    for reference in secret_references(graph):
        path = Path(reference.removeprefix("${file:").removesuffix("}"))
        if reference.startswith("${file:") and path.is_file() and path.stat().st_mode & 0o004:
            yield f"the secret {path} is readable by everyone (mode {path.stat().st_mode & 0o777:o})"
    if isinstance(checkpoint, Path) and checkpoint.is_dir() and checkpoint.stat().st_mode & 0o002:
        yield f"the checkpoint {checkpoint} is writable by everyone (mode {checkpoint.stat().st_mode & 0o777:o})"


def machine_facts() -> facts.Machine:
    """Return the facts about this machine."""
    return facts.Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory=_memory(),
        versions={**installed_versions(), **{name: _installed(name) for name in _BESIDE}, "java": java_version()},
        unmet=tuple(unmet_requirements(importlib.metadata.requires("windrow") or (), _installed)),
        temporary=disk(Path(tempfile.gettempdir())),
    )


_BESIDE: Final = ("confluent-kafka", "psycopg")


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def unmet_requirements(texts: Iterable[str], installed: Callable[[str], str | None]) -> list[str]:
    """Return the requirements that the installed versions do not meet; those of extras are skipped."""
    found = []
    for text in texts:
        requirement, _, marker = text.partition(";")
        match = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*(.*)", requirement.strip())
        if match is None or marker:
            continue
        version, bounds = installed(match[1]), filter(None, map(str.strip, match[2].split(",")))
        if version is None or not all(_meets(version, bound) for bound in bounds):
            found.append(f"{match[1]} {version or 'is missing'} (needs {match[2]})")
    return found


def _meets(version: str, bound: str) -> bool:
    match = re.match(r"(>=|<=|==|<|>)\s*([\d.]+)", bound)
    if match is None:
        return True
    numbers = (map(int, re.findall(r"\d+", re.match(r"[\d.]*", text)[0])) for text in (version, match[2]))  # type: ignore[index]
    have, want = zip(*zip_longest(*numbers, fillvalue=0), strict=True)
    return {">=": have >= want, "<=": have <= want, "==": have == want, "<": have < want, ">": have > want}[match[1]]


def _memory() -> int | None:
    """Return the memory of this machine or its container in bytes, or None if it is unknown."""
    with suppress(OSError, ValueError):
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit != "max":
            return int(limit)
    with suppress(OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


_IN_MEMORY: Final = {"tmpfs", "ramfs", "devtmpfs"}
TEMPORARY: Final = (Path(tempfile.gettempdir()).resolve(), Path("/tmp"))  # noqa: S108 - it is looked for
"""Folders that a restart can empty."""


def disk(folder: Path) -> facts.Disk:
    """Return the disk that holds a folder, which need not exist yet."""
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    usage, kind, real = shutil.disk_usage(existing), _file_system(existing), existing.resolve()
    is_temporary = kind in _IN_MEMORY or any(real.is_relative_to(parent) for parent in TEMPORARY)
    return facts.Disk(str(folder), kind, usage.free, usage.total, is_temporary, existing.stat().st_dev)


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds a folder, such as ``ext4``."""
    best, kind = -1, platform.system()
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, at, name, *_ = line.split()
            at = at.replace("\\040", " ")
            if folder.resolve().is_relative_to(at) and len(at) > best:
                best, kind = len(at), name
    return kind
