"""The connector for Kafka topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from windrow import model as m
from windrow.connectors import settings
from windrow.connectors.base import Connector, SinkConnector, SourceConnector
from windrow.connectors.kafka.options import OURS
from windrow.declare.arguments import Duration, duration_micros
from windrow.declare.findings import Finding, error
from windrow.declare.formats import ENCODING, FORMAT, KEY_FORMAT
from windrow.declare.options import OPTIONS, mask_options
from windrow.declare.spec import DURATION, TEXT, Key, Section, choice

OPTIONS_KEY: Final = Key(
    "options",
    OPTIONS,
    "options of librdkafka, under its own names or those of Kafka's Java clients, such as `security.protocol: SSL`; "
    "values may be [secrets](../guides/security.md). Options that windrow sets are errors: `bootstrap.servers` (use "
    "`servers`), `auto.offset.reset` (use `start`), `group.id`, `enable.auto.commit`, `isolation.level`, the "
    "deserializers and `interceptor.classes`.",
    default=(),
    mask=mask_options,
)


def _source_words(source: m.KafkaSource) -> str:
    more = "".join(f", {name}={value}" for name, value in source.options)
    committed = "" if source.group is None else f", offsets committed to the consumer group {source.group}"
    keys = "" if source.key_format is None else f", keys: {KEY_FORMAT.words(source.key_format)}"
    return (
        f"the Kafka topic {source.topic} at {source.servers} from the {source.start} offset, "
        f"each partition in offset order{more}{committed}{settings.format_words(source)}{keys}"
    )


def _sink_words(sink: m.KafkaSink) -> str:
    envelope = {"json": "", "debezium": ", in Debezium's envelope", "upsert": ", as upserts by key"}[sink.format]
    encoding = "" if sink.encoding is None else f", {ENCODING.words(sink.encoding)}"
    options = "".join(f", {name}={value}" for name, value in sink.options)
    return f"the Kafka topic {sink.topic} at {sink.servers}{envelope}{encoding}{options}"


_WRITER_OPTIONS = {
    "bootstrap.servers": "write it as `servers`",
    "transactional.id": "leave it out: it is the fence between runs, windrow-TOPIC",
    "transaction.timeout.ms": "leave it out: a step may take five minutes",
    "enable.idempotence": "leave it out: transactions need it",
    "acks": "leave it out: transactions wait for all replicas",
    "partitioner": "leave it out: keys are assigned to partitions as Kafka's Java clients do it",
    "key.serializer": "leave it out: keys are bytes",
    "value.serializer": "leave it out: `format` determines what values are",
}
CDC_OPTIONS = {
    **dict.fromkeys(
        [name for name in (*OURS, *_WRITER_OPTIONS) if name != "transaction.timeout.ms"],
        "leave it out: windrow sets it so that each change is written once",
    ),
    "bootstrap.servers": "write it as `servers`",
}
"""Options that cannot be set for a topic of changes, with advice on what to do instead."""


def kafka_sink(
    topic: str,
    *,
    servers: str,
    commit: Duration = "10ms",
    format: m.ChangeFormat = "json",  # noqa: A002 - the setting's name
    options: Mapping[str, str] | None = None,
    encoding: m.SchemaFormat | None = None,
    subject: str | None = None,
    key_subject: str | None = None,
) -> m.KafkaSink:
    """Write changes to a Kafka topic, in one transaction per step, or per `commit` with ``mode="realtime"``.

    The topics TOPIC, ``TOPIC.late``, ``TOPIC.dead`` and ``TOPIC.clocks`` are created if they do not exist. A change is
    a JSON object, with ``format="debezium"`` a change event in Debezium's envelope, or with ``format="upsert"`` the row
    as a JSON object, or no value if it was deleted. With an `encoding` (`avro`, `protobuf` or `json_schema`, with a
    registry), values and the keys of upserts have a schema, registered under `subject` (by default ``TOPIC-value``) and
    `key_subject` (``TOPIC-key``). `options` are passed to the producer unchanged; with ``mode="realtime"``, those of
    the source apply instead.
    """
    micros = duration_micros(commit, "sink.kafka.commit")
    given = tuple((options or {}).items())
    return m.KafkaSink(servers, topic, micros, format, given, encoding, subject, key_subject)


def _source_findings(source: m.KafkaSource) -> Iterator[Finding]:
    yield from settings.broker_findings(source.servers)
    yield from settings.topic_findings(source.topic, settings.LONGEST_TOPIC)
    if source.group is not None and not source.group.strip():
        yield error("group", "is empty; name a consumer group, or leave it out")
    elif source.group is not None and source.group.startswith(m.OWN_GROUPS):
        message = (
            f"{source.group!r}: realtime runs resume from groups that begin with {m.OWN_GROUPS}; give it another name"
        )
        yield error("group", message)
    yield from settings.option_findings(source.options, OURS)


def _sink_findings(sink: m.KafkaSink) -> Iterator[Finding]:
    yield from settings.broker_findings(sink.servers)
    yield from settings.option_findings(sink.options, _WRITER_OPTIONS)
    yield from settings.topic_findings(sink.topic, settings.LONGEST_TOPIC - len(".clocks"))
    yield from _subject_findings(sink)
    if sink.encoding is None:
        return
    if not sink.registries:
        yield error("encoding", "needs a registry, where the schema of the rows is registered")
    if isinstance(sink.encoding, m.AvroFormat) and sink.encoding.reader is not None:
        yield error("encoding.avro", "has a `reader`, which sources use; remove it")
    if sink.format == "debezium":
        yield error("encoding", "applies to the formats json and upsert; Debezium's envelope is always JSON")
    for setting, registry in sink.registries.items():
        yield from settings.registry_findings(setting, registry)
        if dict(registry.options).get(m.AUTO_REGISTER, "true") not in {"true", "false"}:
            yield error(f"{setting}.options.{m.AUTO_REGISTER}", "must be true or false")


def _subject_findings(sink: m.KafkaSink) -> Iterator[Finding]:
    """Check that subjects are given only for what has a schema, and that values and keys have different ones."""
    for setting, subject in {"subject": sink.subject, "key_subject": sink.key_subject}.items():
        if subject is None:
            continue
        if sink.encoding is None:
            yield error(setting, "names the schema of records with an `encoding`; set one, or remove it")
        elif setting == "key_subject" and sink.format != "upsert":
            yield error(setting, f"is for format upsert: with {sink.format}, keys have no schema; remove it")
        elif not subject.strip():
            yield error(setting, "is empty; name a subject of the registry, or leave it out")
    value, key = sink.subjects
    if sink.format == "upsert" and value == key:
        yield error("subject", f"{value!r} is the subject of both the values and the keys; give each its own")


KAFKA = Connector(
    SourceConnector(
        (m.KafkaSource,),
        Section(
            "wr.kafka",
            m.KafkaSource,
            (
                Key("servers", TEXT, "`HOST:PORT`, or several separated by commas.", required=True),
                Key("topic", TEXT, "the topic.", required=True, positional=True),
                Key(
                    "start",
                    choice("earliest", "latest"),
                    "where a new checkpoint starts; an existing one resumes where it stopped.",
                    default=m.KafkaSource.start,
                    shown=True,
                ),
                OPTIONS_KEY,
                Key(
                    "group",
                    TEXT,
                    "a consumer group of this pipeline only, whose offsets are committed after each step, so that "
                    "[tools for Kafka](../guides/other-tools.md#lag-in-kafkas-tools) show the lag. A run never reads "
                    "them.",
                ),
                Key(
                    "format",
                    FORMAT,
                    f"{settings.FORMAT_DOC}; or [another format](../guides/formats.md).",
                    default=m.KafkaSource.format,
                ),
                Key(
                    "key_format",
                    KEY_FORMAT,
                    "the format of the keys, which [tombstones](../reference/pipeline.md#tombstones) need: `text`, "
                    "`json`, `binary` (a whole number in big-endian order, as Kafka's `LongSerializer` writes it), or "
                    "`avro`, `protobuf` or `json_schema` as for `format`. By default, the bytes of each key tell it.",
                ),
            ),
        ),
        _source_words,
        "[a Kafka topic](../connectors/kafka.md#source).",
        dataset=lambda source: (settings.kafka_namespace(source.servers), source.topic),
        findings=_source_findings,
        log="windrow.connectors.kafka.source:KafkaTopic",
        appender="windrow.connectors.kafka.append:topic_appender",
        finder="windrow.connectors.kafka.source:partition_finder",
    ),
    SinkConnector(
        (m.KafkaSink,),
        Section(
            "wr.kafka_sink",
            m.KafkaSink,
            (
                Key(
                    "servers",
                    TEXT,
                    "as for the source; with `mode: realtime`, they must be those of the source.",
                    required=True,
                ),
                Key(
                    "topic",
                    TEXT,
                    "the topic; created if it does not exist, with the broker's default number of partitions (with "
                    "`mode: realtime`, the source's). Its companions are `TOPIC.late`, `TOPIC.dead` and, except with "
                    "`mode: realtime`, `TOPIC.clocks`.",
                    required=True,
                    positional=True,
                ),
                Key(
                    "commit",
                    DURATION,
                    "with `mode: realtime`, the time between two transactions of a partition, at most `5s`.",
                    default=m.KafkaSink.commit,
                ),
                Key(
                    "format",
                    choice("json", "debezium", "upsert"),
                    "the format of a change: the row and its operation as a JSON object, a change event in [Debezium's "
                    "envelope](#debeziums-envelope), or an [upsert](#upserts).",
                    default=m.KafkaSink.format,
                ),
                Key(
                    "encoding",
                    ENCODING,
                    "`avro`, `protobuf` or `json_schema`, with the `registry` in which the schema of the records is "
                    "[registered](#registered-schemas); JSON without a schema by default.",
                ),
                Key("subject", TEXT, "the subject of the schema of values; `TOPIC-value` by default."),
                Key("key_subject", TEXT, "the subject of the schema of keys of upserts; `TOPIC-key` by default."),
                replace(
                    OPTIONS_KEY,
                    doc="as for the source. With `mode: realtime` the options of the source apply, and options here "
                    "are an error.",
                ),
            ),
        ),
        _sink_words,
        "[a Kafka topic](../connectors/kafka.md#sink) of changes.",
        dataset=lambda sink, topic: (settings.kafka_namespace(sink.servers), topic),
        tables="windrow.connectors.kafka.sink:KafkaTopics",
        findings=_sink_findings,
        called="a Kafka topic",
        row_bytes="windrow.connectors.row_bytes:json",
        ddl="windrow.connectors.kafka.subjects:schema_statements",
    ),
)
