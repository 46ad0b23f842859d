from __future__ import annotations

import pytest

from windrow.connectors.kafka.options import OURS, client_options
from windrow.errors import InputError
from windrow.model import KafkaSource


def source(**options: str) -> KafkaSource:
    named = tuple((name.replace("_", "."), value) for name, value in options.items())
    return KafkaSource("a:9092,b:9092", "spend", "latest", named)


@pytest.mark.parametrize("name", [*OURS, "kafka.security.protocol"])
def test_what_windrow_sets_is_not_for_the_pipeline(name: str) -> None:
    mine = KafkaSource("a:9092", "spend", options=((name, "x"),))
    with pytest.raises(InputError, match=f"the Kafka option {name} "):
        client_options(mine)


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


def test_what_tunes_the_reading_goes_along_by_the_name_that_the_client_has_for_it() -> None:
    tuned = client_options(source(fetch_max_bytes="1000", fetch_max_wait_ms="7"))
    assert tuned == {"bootstrap.servers": "a:9092,b:9092", "fetch.max.bytes": "1000", "fetch.wait.max.ms": "7"}
