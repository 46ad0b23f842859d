"""Convert connection options named as in Kafka's Java clients to settings of librdkafka, without importing it."""

from __future__ import annotations

import re

from windrow import model as m
from windrow.errors import InputError
from windrow.model.references import escape_jaas, resolve_references

TIMEOUT = 10.0
"""Timeout of a request to a broker in seconds."""
_NO_GROUP = "leave it out: offsets are kept in the checkpoint, not in a consumer group"
OURS = {
    "bootstrap.servers": "write it as `servers`",
    "metadata.broker.list": "write it as `servers`",
    "auto.offset.reset": "write it as `start`",
    "group.id": "leave it out: offsets are kept in the checkpoint, and `group` names a consumer group that shows them",
    "enable.auto.commit": _NO_GROUP,
    "enable.auto.offset.store": _NO_GROUP,
    "enable.partition.eof": "leave it out: a step relies on the end of a partition",
    "isolation.level": "leave it out: only committed records are read",
    "key.deserializer": "leave it out: keys are read as bytes",
    "value.deserializer": "leave it out: values are read as bytes, and `decode` describes what they contain",
    "interceptor.classes": "leave it out: records are read as they are",
}
"""Options that a pipeline cannot set, with advice on what to do instead."""
_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms",
}
_LOGIN = "sasl.jaas.config"
_JAAS = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def checked_options(source: m.KafkaSource | m.KafkaSink) -> dict[str, str]:
    """Return the options with references resolved; raise InputError for an option that windrow sets itself."""
    for name, _ in source.options:
        if name in OURS:
            msg = f"the Kafka option {name} cannot be set; {OURS[name]}"
            raise InputError(msg)
        if name.startswith("kafka."):
            msg = f"the Kafka option {name} must not have the prefix; write {name.removeprefix('kafka.')}"
            raise InputError(msg)
    return {
        name: resolve_references(value, f"the Kafka option {name}", escape_jaas if name == _LOGIN else str)
        for name, value in source.options
    }


def pop_transaction_timeout(settings: dict[str, str], default: int) -> int:
    """Remove the option `transaction.timeout.ms` from settings and return it in milliseconds; raise InputError."""
    limit = settings.pop("transaction.timeout.ms", str(default))
    if not limit.isdecimal():
        msg = f"the Kafka option transaction.timeout.ms is {limit!r}: give milliseconds, such as 900000"
        raise InputError(msg)
    return int(limit)


def client_options(source: m.KafkaSource | m.KafkaSink) -> dict[str, str]:
    """Return librdkafka settings for options under the names of Kafka's Java clients or of librdkafka.

    Raise InputError for a setting that librdkafka does not support, such as a JKS file. The client itself reports
    unknown names.
    """
    options = checked_options(source)
    settings = {"bootstrap.servers": source.servers}
    for name, value in options.items():
        match name:
            case _ if name == _LOGIN:
                settings.update({f"sasl.{key}": re.sub(r"\\(.)", r"\1", text) for key, text in _JAAS.findall(value)})
            case "ssl.truststore.location":
                if options.get("ssl.truststore.type", "JKS").upper() != "PEM":
                    msg = "the Kafka option ssl.truststore.location must name a PEM file; set ssl.truststore.type: PEM"
                    raise InputError(msg)
                settings["ssl.ca.location"] = value
            case "ssl.keystore.location" if options.get("ssl.keystore.type", "JKS").upper() == "JKS":
                msg = "the Kafka option ssl.keystore.location must name a PKCS12 file; set ssl.keystore.type: PKCS12"
                raise InputError(msg)
            case "ssl.endpoint.identification.algorithm":
                settings[name] = value or "none"
            case "ssl.truststore.type" | "ssl.truststore.password" | "ssl.keystore.type":
                pass  # implied by the name of the setting
            case _:
                settings[_RENAMED.get(name, name)] = value
    return settings
