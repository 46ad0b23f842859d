"""What tests share: real servers, each started by the first test that asks, and one Spark."""

from __future__ import annotations

import faulthandler
import json
import os
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from tests.servers.certificates import make_certificates
from tests.servers.cluster import Cluster, why_no_cluster
from tests.servers.secure_postgres import SecurePostgres, TlsProxy

from windrow.errors import HIDDEN_VALUES
from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = TypeVar("P", bound=Postgres)

SPARK = frozenset({"spark", "make_job", "cluster"})
"""The fixtures that are Spark, or a process of windrow that starts it."""
SERVICES = SPARK | {"kafka", "postgres", "secure_postgres"}
"""The fixtures that are a service."""
TESTS = Path(__file__).parent
BESIDE_SPARK = {TESTS / name for name in ("contracts", "engine", "properties", "tools")}
"""Folders whose tests are in the first half of `make test`, with Spark's, so that the halves take the same time."""

MERGE: dict[str, tuple[str, ...]] = {
    "cli/test_demo.py": (),
    "contracts/test_operators.py": ("test_a_host_that_resumes", "test_other_key_groups", "test_state_is_freed"),
    "docs/test_nexmark.py": ("test_a_query_gives",),
    "docs/test_site.py": (),
    "net/test_net.py": ("test_story",),
    "runtime/test_realtime_permissions.py": (),
    "servers/test_servers.py": (),
    "telemetry/test_folders.py": ("test_a_checkpoint", "test_a_savepoint", "test_large", "test_a_store", "test_spark"),
    "test_packaging.py": (),
    "testing/transcript/test_stories.py": ("test_spark_hosts_go_as_told",),
    "tools/dashboard/test_page.py": (),
}
"""Tests that share a dear fixture, or are dear together, by file and beginning of the name: marked `merge`."""
DEAR_SECONDS = 1.2
"""A test that took longer, by `DURATIONS`, is marked `merge`, unless `KEPT` has it."""
SLOW_SECONDS = 0.1
"""A test that took longer, by `DURATIONS`, is marked `slow`."""
DURATIONS: dict[str, float] = json.loads((TESTS / "durations.json").read_text(encoding="utf-8"))
"""Seconds of each test as last recorded by `make test DURATIONS=1`."""
LONG_DURATIONS: dict[str, float] = json.loads((TESTS / "durations-long.json").read_text(encoding="utf-8"))
"""Seconds of each test as last recorded by `scripts/long record`."""
TIMED_SECONDS = 600
"""A long test that took at most so long, by `LONG_DURATIONS`, is marked `timed`: CI runs these, some each day."""
KEPT = (
    "tests/net/",
    "tests/properties/test_hosts.py",
    "tests/runtime/test_batch.py::test_a_batch_run_gives_the_oracles_answer[log",
    "tests/runtime/test_graph.py::test_a_stream_that_stops_and_resumes",
    "tests/runtime/test_realtime.py::test_it_writes_what_the_memory_host_gives[process",
    "tests/runtime/test_stream.py::test_a_bounded_run_gives_the_oracles_answer",
    "tests/test_imports.py",
)
"""Beginnings of the ids of dear tests that `make test` runs: each host once, from the log to the tables."""

# what commands print is compared with what they print where nobody asks for colours
os.environ.pop("FORCE_COLOR", None)

EXIT_SECONDS = 120
"""How long the tests may take to end after the last one."""

# no deadline: how long an example takes says nothing on a busy machine
hypothesis.settings.register_profile(
    "same", deadline=None, derandomize=True, database=None, print_blob=True, max_examples=15
)
hypothesis.settings.register_profile("merge", hypothesis.settings.get_profile("same"), max_examples=50)
hypothesis.settings.register_profile("quick", hypothesis.settings.get_profile("same"), max_examples=5)
hypothesis.settings.register_profile("random", deadline=None, derandomize=False, print_blob=True)
hypothesis.settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """Have the same examples in every run on every machine; only `make test-long` asks for the profile `random`."""
    if config.getoption("--hypothesis-profile") != "random":
        # hypothesis tries constants of the modules that are loaded, which depend on what else the run has tested
        undo = pytest.MonkeyPatch()
        undo.setattr(providers, "_get_local_constants", Constants)
        config.add_cleanup(undo.undo)


@pytest.fixture(autouse=True)
def no_hidden_values() -> Iterator[None]:
    """Forget the values of variables that messages hide: they stay while a process lives."""
    yield
    HIDDEN_VALUES.clear()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Bound what is after the last test too: Python waits at its end for threads that a test has left."""
    if hasattr(config, "workerinput"):
        return  # of xdist: it waits for the other workers
    faulthandler.dump_traceback_later(EXIT_SECONDS, exit=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Append the numbers of passed, skipped and failed tests to the file that `scripts/test` sums up."""
    if counts := os.environ.get("WINDROW_TEST_COUNTS"):
        passed, skipped, failed, errors = (
            len(terminalreporter.stats.get(outcome, ())) for outcome in ("passed", "skipped", "failed", "error")
        )
        with Path(counts).open("a", encoding="utf-8") as file:
            file.write(f"{passed} {skipped} {failed + errors}\n")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that request a service, or Spark, by a fixture, and those that are left to `make test-merge`.

    Tests that start a process of windrow with Spark in another way are marked `service` by hand.
    """
    for item in items:
        requested = set(item.fixturenames) if isinstance(item, pytest.Function) else set()
        if item.get_closest_marker("service") is not None or not SPARK.isdisjoint(requested):
            item.add_marker("spark")
        if not SERVICES.isdisjoint(requested):
            item.add_marker("service")
        seconds = DURATIONS.get(item.nodeid, 0)
        if seconds > SLOW_SECONDS:
            item.add_marker("slow")
        if LONG_DURATIONS.get(item.nodeid, TIMED_SECONDS + 1) <= TIMED_SECONDS:
            item.add_marker("timed")
        beginnings = MERGE.get(item.path.relative_to(TESTS).as_posix())
        is_listed = beginnings is not None and (not beginnings or item.name.startswith(beginnings))
        is_dear = seconds > DEAR_SECONDS and not item.nodeid.startswith(KEPT)
        if is_listed or is_dear:
            item.add_marker("merge")
        if item.get_closest_marker("spark") is not None or not BESIDE_SPARK.isdisjoint(item.path.parents):
            item.add_marker("first_half")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let no test that is not marked `service` start one, so that `make test-quick` stays quick."""
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("service") is None:
            patch.setenv("JAVA_HOME", "/a test that starts Spark or Kafka is marked service")
            patch.setattr(Postgres, "start", _refuse)
        return (yield)


def _refuse(server: Postgres) -> None:
    pytest.fail(f"{type(server).__name__}: a test that starts a server is marked service")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A Spark cluster of two workers of one core. A test that kills one adds another."""
    if why := why_no_cluster():
        pytest.skip(why)
    running = Cluster()
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka broker. A test that stops it starts it again."""
    broker = Kafka(tmp_path_factory.mktemp("kafka"), is_short=True)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server. A test that stops it starts it again."""
    yield from _running(Postgres())


@pytest.fixture(scope="session")
def secure_postgres() -> Iterator[SecurePostgres]:
    """A PostgreSQL server that wants a password, and of its user TLS."""
    yield from _running(SecurePostgres())


def _running(server: P) -> Iterator[P]:
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def s3_store() -> Iterator[dict[str, str]]:
    """A server of S3 in this process; the environment that leads to it."""
    from tests.servers.s3 import s3_server  # noqa: PLC0415 - its libraries take a second to load

    with s3_server() as environment:
        yield environment


@pytest.fixture
def s3(s3_store: dict[str, str]) -> Iterator[str]:
    """The URL of a new folder in a store of S3, to which the environment leads."""
    from tests.servers.s3 import BUCKET, environment_of  # noqa: PLC0415 - the same

    with environment_of(s3_store):
        yield f"s3a://{BUCKET}/{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an authority `ca.pem`, and of a certificate of this machine."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def tls(secure_postgres: SecurePostgres, certificates: Path) -> Iterator[TlsProxy]:
    """The way over TLS to the server that wants it."""
    with TlsProxy(secure_postgres, certificates) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session."""
    from windrow.runtime.spark.session import spark_session  # noqa: PLC0415 - tests without Spark start without it

    session = spark_session(log=tmp_path_factory.mktemp("spark") / "spark.log")
    try:
        yield session
    finally:
        session.stop()
        _end_java()


def _end_java() -> None:
    """End Spark's JVM, and with it the threads in which it calls Python.

    They would wait for the next call until the interpreter is gone, and hold all that Spark may call, DuckDB's
    connections too: nanobind, which binds DuckDB, would list those as leaked.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - tests without Spark start without it

    gateway = SparkContext._gateway  # noqa: SLF001 - no other way
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - no other way


@pytest.fixture
def topic(kafka: Kafka) -> Callable[..., str]:
    """Make a new topic: `topic(partitions)`, with topic settings by keyword (dots as underscores); return its name."""

    def create(partitions: int = 4, **config: str) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        kafka.create_topic(name, partitions, {key.replace("_", "."): value for key, value in config.items()})
        return name

    return create


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """The address of an empty PostgreSQL database, dropped after the test."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture
def secure_database(secure_postgres: SecurePostgres) -> Iterator[str]:
    """The name of an empty database of the user who comes over TLS, dropped after the test."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    secure_postgres.create_database(name)
    yield name
    secure_postgres.drop_database(name)
