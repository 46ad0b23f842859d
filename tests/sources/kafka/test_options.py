from __future__ import annotations

import pytest

from windrow.errors import InputError
from windrow.model import KafkaSource
from windrow.sources.kafka.options import OURS, client_options, spark_options

SOURCE = KafkaSource("a:9092,b:9092", "spend")


def source(**options: str) -> KafkaSource:
    named = tuple((name.replace("_", "."), value) for name, value in options.items())
    return KafkaSource("a:9092,b:9092", "spend", "latest", named)


def test_spark_reads_committed_records_and_loses_none() -> None:
    options = spark_options(SOURCE)
    assert (
        options.items()
        >= {
            "kafka.bootstrap.servers": "a:9092,b:9092",
            "kafka.isolation.level": "read_committed",
            "subscribe": "spend",
            "startingOffsets": "earliest",
            "failOnDataLoss": "true",
        }.items()
    )
    assert "maxOffsetsPerTrigger" not in options


def test_spark_is_told_the_limit_the_start_and_the_options() -> None:
    options = spark_options(source(security_protocol="SSL"), max_records=500)
    assert options["maxOffsetsPerTrigger"] == "500"
    assert options["startingOffsets"] == "latest"
    assert options["kafka.security.protocol"] == "SSL"


@pytest.mark.parametrize("name", [*OURS, "kafka.security.protocol"])
def test_what_windrow_sets_is_not_for_the_pipeline(name: str) -> None:
    mine = KafkaSource("a:9092", "spend", options=((name, "x"),))
    for options in (spark_options, client_options):
        with pytest.raises(InputError, match=f"the Kafka option {name} "):
            options(mine)


def test_a_jaas_config_is_a_name_and_a_password() -> None:
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
        '  username="alice" password="pa\\"ss=\\\\word";'
    )
    options = client_options(source(sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=jaas))
    assert options == {
        "bootstrap.servers": "a:9092,b:9092",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": 'pa"ss=\\word',
    }


def test_certificates_have_other_names() -> None:
    options = client_options(
        source(
            ssl_truststore_type="PEM",
            ssl_truststore_location="/ca.pem",
            ssl_keystore_type="PKCS12",
            ssl_keystore_location="/me.p12",
            ssl_keystore_password="secret",  # noqa: S106 - of no store
            ssl_endpoint_identification_algorithm="",
        )
    )
    assert options == {
        "bootstrap.servers": "a:9092,b:9092",
        "ssl.ca.location": "/ca.pem",
        "ssl.keystore.location": "/me.p12",
        "ssl.keystore.password": "secret",
        "ssl.endpoint.identification.algorithm": "none",
    }
    inline = client_options(source(ssl_truststore_certificates="-----BEGIN", ssl_keystore_key="-----KEY"))
    assert inline.items() >= {"ssl.ca.pem": "-----BEGIN", "ssl.key.pem": "-----KEY"}.items()


@pytest.mark.parametrize("name", ["ssl.truststore.location", "ssl.keystore.location"])
def test_java_key_stores_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"the Kafka option {name} must name a"):
        client_options(KafkaSource("a:9092", "spend", options=((name, "/store.jks"),)))


def test_tuning_of_sparks_consumers_is_theirs_alone() -> None:
    tuned = source(fetch_max_bytes="1000", max_poll_records="7")
    assert client_options(tuned) == {"bootstrap.servers": "a:9092,b:9092"}
    assert spark_options(tuned)["kafka.max.poll.records"] == "7"
    assert spark_options(SOURCE)["kafka.max.poll.records"] == "20000"
