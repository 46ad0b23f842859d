"""What a person may say about a connection, for Spark's consumers (Java) and for librdkafka."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from windrow.errors import InputError
from windrow.model import KafkaSource
from windrow.model.secret import resolved
from windrow.sources.base import Cut

OURS = {
    "bootstrap.servers": "write `servers`",
    "auto.offset.reset": "write `start`",
    "group.id": "offsets are kept in the checkpoint, in no group",
    "enable.auto.commit": "offsets are kept in the checkpoint, in no group",
    "isolation.level": "only committed records are read",
    "key.deserializer": "keys are read as bytes",
    "value.deserializer": "values are read as bytes; write `decode`",
    "interceptor.classes": "records are read as they are",
}
READING = {"max.poll.records": "20000"}
"""How Spark's consumers fetch, unless the pipeline says otherwise: with Kafka's 500 a poll they read a tenth slower."""

_CONNECTION = ("security.", "sasl.", "ssl.", "client.id", "client.dns.lookup")
_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_LOGIN = "sasl.jaas.config"
_EARLIEST = -2
"""Kafka's number for the first offset of a partition."""
_JAAS = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def checked_options(source: KafkaSource) -> dict[str, str]:
    """Return the source's options, with what references in them name; raise InputError for one that windrow sets."""
    for name, _ in source.options:
        if name in OURS:
            msg = f"the Kafka option {name} is not for a pipeline to set: {OURS[name]}"
            raise InputError(msg)
        if name.startswith("kafka."):
            msg = f"the Kafka option {name} has a prefix too much; write {name.removeprefix('kafka.')}"
            raise InputError(msg)
    return {
        name: resolved(value, f"the Kafka option {name}", _quoted if name == _LOGIN else str)
        for name, value in source.options
    }


def _quoted(text: str) -> str:
    """Write a text so that it may stand between the quotes of a JAAS option."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def client_options(source: KafkaSource) -> dict[str, str]:
    """Return librdkafka's settings of the connection, from the names that Kafka's Java clients use.

    What tunes the reading of Spark's consumers is left out. Raise InputError for what librdkafka cannot do.
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
                pass  # said by the name of the setting
            case _ if name.startswith(_CONNECTION):
                settings[_RENAMED.get(name, name)] = value
            case _:
                pass
    return settings


def spark_options(source: KafkaSource, max_records: int | None = None) -> dict[str, str]:
    """Return the options of Spark's ``kafka`` source; raise InputError for one that windrow sets itself."""
    options = {f"kafka.{name}": value for name, value in (READING | checked_options(source)).items()}
    options |= {
        "kafka.bootstrap.servers": source.servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": source.topic,
        "startingOffsets": source.start,
        "failOnDataLoss": "true",
    }
    if max_records is not None:
        options["maxOffsetsPerTrigger"] = str(max_records)
    return options


def start_option(source: KafkaSource, partitions: Iterable[int], start: Cut) -> dict[str, str]:
    """Return the option of a query that begins at some offsets; Spark wants to be told those of all partitions."""
    return {"startingOffsets": _offsets(source, {number: start.get(number, _EARLIEST) for number in partitions})}


def range_options(source: KafkaSource, begin: Cut, end: Cut) -> dict[str, str]:
    """Return the options of Spark's ``kafka`` source for what is between two cuts, of the partitions in `end`.

    Raise InputError for an option that windrow sets itself.
    """
    options = spark_options(source)
    del options["subscribe"]
    return options | {
        "assign": json.dumps({source.topic: sorted(end)}),
        "startingOffsets": _offsets(source, {number: begin.get(number, _EARLIEST) for number in end}),
        "endingOffsets": _offsets(source, end),
    }


def _offsets(source: KafkaSource, cut: Cut) -> str:
    return json.dumps({source.topic: {str(partition): offset for partition, offset in sorted(cut.items())}})
