"""Secrets come from the environment or a file, and are in nothing that a run leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.contracts.stores import PostgresStore
from tests.graphs import as_graph, python_of
from tests.runtime.runs import Runner
from tests.runtime.spend import Topic, event, spend
from tests.servers.secure_kafka import USER, SecureKafka
from tests.servers.secure_postgres import SECRET, SecurePostgres, TlsProxy

from windrow.authoring.printing import to_json, to_text, to_yaml
from windrow.connectors.kafka.source import KafkaTopic
from windrow.connectors.memory import CollectSink
from windrow.errors import InputError, SourceError
from windrow.model import KafkaSource, PostgresSink
from windrow.runtime.memory import MemoryRun
from windrow.testing.servers.kafka import Kafka

pytestmark = pytest.mark.usefixtures("spark")

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="windrow" password="{}";'
VALUES = [(partition, event(minute, f"u{partition}")) for minute in range(30) for partition in range(2)]


def left_behind(*folders: Path) -> Iterator[bytes]:
    for folder in folders:
        yield from (path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_secret_is_in_nothing_that_a_run_leaves_behind(  # noqa: PLR0917 - fixtures
    kafka: Kafka,
    topic: Callable[..., str],
    secure_postgres: SecurePostgres,
    tls: TlsProxy,
    secure_database: str,
    runner: Runner,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPEND_PASSWORD", SECRET)
    log = Topic(kafka, topic(2))
    log.append(VALUES)
    # nobody asks for these, but they are given to both clients; PostgreSQL asks
    options = (("sasl.jaas.config", LOGIN.format("${SPEND_PASSWORD}")), ("ssl.key.password", "${SPEND_PASSWORD}"))
    sink = PostgresSink(tls.url_of(secure_database, "${SPEND_PASSWORD}"), "spend")
    pipeline = spend(KafkaSource(kafka.servers, log.name, options=options), sink)
    shown = [to_text(as_graph(pipeline)), to_yaml(as_graph(pipeline)), to_json(as_graph(pipeline)), python_of(pipeline)]
    assert all("${SPEND_PASSWORD}@" in text for text in shown[1:])
    runner.bounded(pipeline)
    assert sum(report.records for report in runner.reports) == len(VALUES)
    gone = spend(KafkaSource(kafka.servers, "no-such-topic", options=options), sink)
    with pytest.raises(SourceError, match="there is no topic") as caught:
        Runner(tmp_path / "gone").bounded(gone)
    told = [*shown, str(caught.value), *capfd.readouterr()]
    store = PostgresStore(secure_postgres.url_of(secure_database))
    tables = [name for (name,) in store.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
    assert {"spend", "spend_clocks", "windrow_tables"} < set(tables)
    rows = [str(store.query(f"SELECT * FROM {table}")) for table in tables]
    assert not any(part in text for text in (*told, *rows) for part in (SECRET, "s3cr3t", "p%40ss"))
    logs = [path.parent for path in tmp_path_factory.getbasetemp().rglob("spark.log")]
    found = list(left_behind(tmp_path, *logs))
    assert len(found) > 10
    assert not any(b"s3cr3t" in content for content in found)


def test_a_secret_that_is_not_there_is_named(runner: Runner, tmp_path: Path) -> None:
    for reference, said in (
        ("${NOT_SET_HERE}", "NOT_SET_HERE is not set"),
        (f"${{file:{tmp_path}/none}}", "cannot read"),
    ):
        source = KafkaSource("127.0.0.1:1", "spend", options=(("ssl.key.password", reference),))
        with pytest.raises(InputError, match=f"the Kafka option ssl.key.password: .*{said}"):
            runner.bounded(spend(source, PostgresSink("postgresql://h/db", "spend")))


@pytest.mark.long
def test_a_topic_behind_tls_and_a_password(
    runner: Runner, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, database: str
) -> None:
    """Both clients read it: Spark's, and librdkafka where a source is asked and read without Spark."""
    broker = SecureKafka(tmp_path_factory.mktemp("secure"), SECRET)
    broker.start()
    try:
        broker.create_topic("spend", 2)
        Topic(broker, "spend").append(VALUES)
        password = tmp_path / "password"
        password.write_text(f"{SECRET}\n")
        options = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": LOGIN.format(f"${{file:{password}}}"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(broker.authority),
        }
        assert f'username="{USER}"' in options["sasl.jaas.config"]
        source = KafkaSource(broker.secure_servers, "spend", options=tuple(options.items()), group="lag")
        pipeline = spend(source, PostgresStore(database).settings())
        assert KafkaTopic(source).partitions() == [0, 1]
        memory = CollectSink()
        MemoryRun(as_graph(pipeline), memory, None).run(lambda _: None)
        runner.bounded(pipeline, on_warning=pytest.fail)  # of the group, too
        assert sum(report.records for report in runner.reports) == len(VALUES)
        for wrong, said in (
            ({"sasl.jaas.config": LOGIN.format("wrong")}, "(?i)authentication"),
            ({"ssl.truststore.location": "/dev/null"}, "(?i)ssl|certificate"),
        ):
            given = tuple((options | wrong).items())
            with pytest.raises((SourceError, InputError), match=said) as caught:
                KafkaTopic(KafkaSource(broker.secure_servers, "spend", options=given)).partitions()
            assert SECRET not in str(caught.value)
    finally:
        broker.stop()
