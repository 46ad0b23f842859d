"""On a cluster whose workers share no more with the driver than they are given, a run gives what it gives here."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.graphs import as_graph
from tests.runtime.spend import Files, Log, Topic, events, spend
from tests.servers.cluster import Cluster
from tests.short_forms import Pipeline

from windrow.authoring.printing import to_yaml
from windrow.model import PostgresSink, SqliteSink
from windrow.runtime.spark.jars import jar_set
from windrow.runtime.spark.pack import pack_environment
from windrow.telemetry.folders import Folder, folder_of
from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres

EVENTS = 4_000


@dataclass
class Job:
    """A pipeline of the cluster, with its file, its checkpoint and its log; what it is compared with runs here."""

    cluster: Cluster
    folder: Path
    pipeline: Pipeline
    checkpoint: Folder
    options: list[str] = field(default_factory=list)

    def start(self, command: str, *words: str | Folder, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        file = self.folder / f"{self.pipeline.sink.table}.yaml"
        file.write_text(to_yaml(as_graph(self.pipeline)))
        program = [sys.executable, "-m", "windrow", command, str(file), *map(str, words)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            program, cwd=self.folder, stdout=pipe, stderr=pipe, text=True, env=os.environ | (env or {})
        )

    def run(self, command: str, *words: str | Folder, code: int = 0) -> str:
        """Run a command to its end; return what it has printed."""
        process = self.start(command, *words)
        out, err = process.communicate(timeout=600)
        assert process.returncode == code, f"{out}\n{err}"
        return f"{out}{err}"

    def bounded(self, *words: str | Folder) -> str:
        return self.run("run", "--until-end", "--checkpoint", self.checkpoint, *self.options, *words)

    def here(self) -> Pipeline:
        """Compute the same in the memory of one process, into other tables; return that pipeline."""
        table = f"{self.pipeline.sink.table}_here"
        other = replace(self, pipeline=replace(self.pipeline, sink=self.pipeline.sink.into(table)))
        other.run("run", "--until-end", "--host", "memory")
        return other.pipeline

    def assert_same_as_here(self) -> None:
        """Compare the results with those of one machine."""
        said = self.run("diff", "--against", self.here().sink.table)
        assert "the same" in said, said


MakeJob = Callable[..., Job]


@pytest.fixture
def make_job(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MakeJob]:
    """Make a job in a folder of the driver; its checkpoint and its log, if that is a folder, are shared."""
    shared = cluster.shared / tmp_path.name

    def make(kind: str = "log to SQLite", count: int = EVENTS) -> Job:
        shared.mkdir()
        table = "spend_" + "".join(c for c in tmp_path.name if c.isalnum())[-30:].lower()
        if kind == "log to SQLite":
            log: Log = Files(shared / "log", 3)
            pipeline = spend(log.source, SqliteSink(str(tmp_path / "spend.db"), table))
        else:
            kafka: Kafka = request.getfixturevalue("kafka")
            postgres: Postgres = request.getfixturevalue("postgres")
            kafka.create_topic(table, 3)
            log = Topic(kafka, table)
            pipeline = spend(log.source, PostgresSink(postgres.url, table))
        log.append(events(count))
        pipeline = replace(pipeline, key_groups=4)
        return Job(cluster, tmp_path, pipeline, shared / "checkpoint", list(cluster.options))

    yield make
    shutil.rmtree(shared, ignore_errors=True)


def test_a_cluster_gives_what_one_machine_gives(make_job: MakeJob) -> None:
    job = make_job()
    job.bounded()
    job.assert_same_as_here()
    # as the key groups say, and not as many as cores had come
    assert sorted(path.name for path in (job.checkpoint / "spark/state/0").glob("[0-9]*")) == ["0", "1", "2", "3"]
    assert not (job.checkpoint / "rows").exists()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["log to SQLite", "Kafka to PostgreSQL"])
def test_a_worker_that_dies_in_a_step(kind: str, make_job: MakeJob) -> None:
    job = make_job(kind, 40_000)
    process = job.start("run", "--until-end", "--checkpoint", job.checkpoint, *job.options, "--max-records", "4000")
    _wait_for(lambda: len(_noted(job, "offsets")) >= 3, process)
    job.cluster.kill_worker(job.cluster.workers[0])
    job.cluster.add_worker()
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, f"{out}\n{err}"
    job.assert_same_as_here()


@pytest.mark.long
def test_a_driver_that_dies_is_followed_by_one_at_another_address(make_job: MakeJob) -> None:
    job = make_job(count=40_000)
    words = ["--until-end", "--checkpoint", str(job.checkpoint), *job.options, "--max-records", "4000"]
    process = job.start("run", *words)
    _wait_for(lambda: len(_noted(job, "commits")) >= 2, process)
    second = job.start("run", *words)
    out, err = second.communicate(timeout=120)
    assert second.returncode == 2, f"{out}\n{err}"
    assert "another run is using the checkpoint" in err
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    job.options = [word.replace("spark.driver.host=127.0.0.1", "spark.driver.host=127.0.0.9") for word in job.options]
    job.bounded()
    job.assert_same_as_here()


@pytest.mark.long
def test_two_drivers_whose_file_system_has_no_locks(make_job: MakeJob) -> None:
    """The tables take steps of the later one only; the other ends, and nothing is mixed."""
    job = make_job(count=40_000)
    words = ["--until-end", "--checkpoint", str(job.checkpoint), *job.options, "--max-records", "2000"]
    words += ["--conf", "spark.cores.max=1"]  # or the second would wait for cores
    first = job.start("run", *words)
    _wait_for(lambda: len(_noted(job, "commits")) >= 2, first)
    (job.checkpoint / "lock").unlink()
    second = job.start("run", *words)
    codes = sorted(_ended(one) for one in (first, second))
    assert codes in ([0, 1], [0, 0])
    job.bounded()
    job.assert_same_as_here()


def _ended(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=600)
    return process.returncode


@pytest.mark.long
def test_a_checkpoint_in_an_object_store(make_job: MakeJob, s3: str) -> None:
    """A driver is killed, another one goes on; and a second one takes over from the first, which is refused."""
    job = make_job(count=40_000)
    job.checkpoint = folder_of(f"{s3}/checkpoint")
    said = job.run("run", "--until-end", "--checkpoint", job.checkpoint, *job.options, code=2)
    assert "Hadoop's file system for it is missing" in said
    job.options += ["--conf", f"spark.jars={','.join(map(str, jar_set('s3')))}"]
    said = job.run("run", "--until-end", "--checkpoint", job.checkpoint, *job.options, code=2)
    assert "give its Python the same credentials" in said
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"):
        job.options += ["--conf", f"spark.executorEnv.{name}={os.environ[name]}"]
    words = ["--until-end", "--checkpoint", str(job.checkpoint), *job.options, "--max-records", "4000"]
    killed = job.start("run", *words)
    _wait_for(lambda: len(_noted(job, "commits")) >= 2, killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    words[-1] = "2000"
    words += ["--conf", "spark.cores.max=1"]
    first = job.start("run", *words)
    done = len(_noted(job, "commits"))
    _wait_for(lambda: len(_noted(job, "commits")) > done, first)
    # as on another machine, where the lock is not seen
    (job.folder / ".windrow" / re.sub(r"[^\w.-]+", "-", str(job.checkpoint)) / "lock").unlink()
    second = job.start("run", *words)
    assert _ended(second) == 0
    _, err = first.communicate(timeout=60)
    assert (first.returncode, "was opened by another process of the same run" in err) in {(0, False), (1, True)}, err
    job.bounded()
    job.run("savepoint", "--checkpoint", job.checkpoint, "--to", f"{s3}/savepoint", *job.options)
    assert "key group 3" in job.run("state", "--savepoint", f"{s3}/savepoint")
    job.assert_same_as_here()


@pytest.mark.long
def test_rescaling(make_job: MakeJob) -> None:
    """Another number of workers under a checkpoint, more partitions of the log, and more key groups by a savepoint."""
    job = make_job(count=9_000)
    job.pipeline = replace(job.pipeline, emit=replace(job.pipeline.emit, at_end="hold"))
    job.bounded()
    added = job.cluster.add_worker()
    log = Files.__new__(Files)
    log._path = Path(getattr(job.pipeline.source, "path"))  # noqa: B009, SLF001 - the log that is there
    log.grow(5)
    log.append([(partition + 2, value) for partition, value in events(6_000, seed=2)])
    job.bounded()
    job.cluster.kill_worker(added)
    folder = job.cluster.shared / job.folder.name / "savepoint"
    job.run("savepoint", "--checkpoint", job.checkpoint, "--to", folder, *job.options)
    assert "key group 3" in job.run("state", "--checkpoint", job.checkpoint, *job.options)
    job.pipeline = replace(job.pipeline, key_groups=12, emit=replace(job.pipeline.emit, at_end="fire"))
    job.checkpoint = job.checkpoint.with_name("wider")
    job.bounded("--from-savepoint", folder)
    assert len([*(job.checkpoint / "spark/state/0").glob("[0-9]*")]) == 12
    said = job.run("replay", "--checkpoint", job.checkpoint, *job.options)
    assert "replayed" in said
    assert "the same" in job.run("diff")


@pytest.mark.long
def test_the_batch_host(make_job: MakeJob) -> None:
    job = make_job()
    job.run("run", "--host", "batch", "--until-end", *job.options)
    job.assert_same_as_here()


@pytest.mark.long
def test_executors_with_the_drivers_environment(make_job: MakeJob) -> None:
    job = make_job()
    archive = job.folder / "env.tgz"
    pack_environment(archive, job.cluster.environment)
    options = [word for word in job.options if "spark.pyspark.python" not in word]
    options.remove("--conf")
    job.options = [*options, "--conf", f"spark.archives={archive}#environment"]
    job.bounded()
    assert not (job.folder / "environment").exists()
    job.assert_same_as_here()


@pytest.mark.long
def test_what_executors_lack_is_said_before_the_first_step(make_job: MakeJob, cluster: Cluster) -> None:
    job = make_job()

    def refused(*words: str | Folder, checkpoint: Folder = job.checkpoint, code: int = 2) -> str:
        said = job.run("run", "--until-end", "--checkpoint", checkpoint, *job.options, *words, code=code)
        assert not (checkpoint / "spark").exists()
        return said.replace(str(cluster.folder), "FOLDER")

    hosts = rf"({'|'.join(cluster.workers)})".replace(".", r"\.")
    said = refused("--conf", "spark.pyspark.python=/nowhere/bin/python")
    assert _match(rf"windrow: the executor on {hosts} has no Python /nowhere/bin/python; choose one that exists", said)
    said = refused("--conf", f"spark.pyspark.python={Path(sys.executable).resolve()}")
    assert _match(rf"windrow: the executor on {hosts} has a Python without windrow", said)
    said = refused(checkpoint=job.folder / "private")
    assert _match(rf"the executor on {hosts} does not see the driver's checkpoint \S+/private: choose a --ch", said)
    assert not [*(job.folder / "private").glob(".preflight*")]
    private = Files(job.folder / "log", 2)
    job.pipeline = replace(job.pipeline, source=private.source)
    said = refused(checkpoint=job.checkpoint.with_name("other"))
    assert _match(rf"the executor on {hosts} cannot read the source: there is no log folder {job.folder}/log", said)
    said = refused("--conf", "spark.dynamicAllocation.enabled=true", checkpoint=job.checkpoint.with_name("other"))
    assert "steps are too short for Spark to detect idle executors" in said
    said = refused("--master", "spark://127.0.0.1:1", checkpoint=job.checkpoint.with_name("other"), code=1)
    assert "Spark did not start at spark://127.0.0.1:1" in said


def _match(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None or pytest.fail(f"{pattern} is not in {text}")


def _noted(job: Job, log: str) -> list[int]:
    folder = job.checkpoint / "spark" / log
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"waited {seconds:g} s for the run on the cluster"
        time.sleep(0.05)
