"""The connector for PostgreSQL tables that a run follows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, assert_never

from windrow import model as m
from windrow.connectors import settings
from windrow.connectors.base import Connector, SourceConnector, load
from windrow.connectors.kafka.connector import CDC_OPTIONS, OPTIONS_KEY
from windrow.declare.findings import Finding, error
from windrow.declare.options import mask_options
from windrow.declare.spec import NAMES, TEXT, Key, Section
from windrow.errors import PipelineError
from windrow.model.references import mask_url


def _postgres_cdc(
    *,
    log: str | None,
    servers: str | None,
    topic: str | None,
    options: tuple[tuple[str, str], ...],
    table: str | None,
    **others: Any,  # noqa: ANN401 - the other fields of the model
) -> m.PostgresCdcSource:
    into = m.LogSource(log) if log is not None else m.KafkaSource(servers or "", topic or "", options=options)
    return m.PostgresCdcSource(table=table or "", into=into, **others)


def _postgres_cdc_parts(source: m.PostgresCdcSource) -> dict[str, Any]:
    others = {name: getattr(source, name) for name in ("url", "tables", "key", "slot", "publication")}
    others["table"] = source.table or None
    match source.into:
        case m.LogSource(path=path):
            return {**others, "log": path, "servers": None, "topic": None, "options": ()}
        case m.KafkaSource(servers=servers, topic=topic, options=options):
            return {**others, "log": None, "servers": servers, "topic": topic, "options": options}
        case _:
            assert_never(source.into)


def _postgres_cdc_conflict(given: Mapping[str, Any]) -> str | None:
    if ("table" in given) == ("tables" in given):
        return "needs either `table` or `tables`"
    if "tables" in given and "key" in given:
        return "has `tables` and `key`: the rows of several tables are identified by their own keys"
    of_topic = [name for name in ("servers", "topic", "options") if name in given]
    if "log" in given and of_topic:
        return f"has `log` and `{of_topic[0]}`: its changes are kept either in a log or in a topic"
    if "log" in given or {"servers", "topic"} <= given.keys():
        return None
    return "needs `log`, the folder in which its changes are kept, or `servers` and `topic`"


class _PostgresCdcSection(Section[m.PostgresCdcSource]):
    """The section of a followed table. Its log or topic, several keys in a file, is a single field of the model."""

    def mask(self, value: m.PostgresCdcSource) -> m.PostgresCdcSource:
        into = value.into
        if isinstance(into, m.KafkaSource):
            into = replace(into, options=mask_options(into.options))
        return replace(value, url=mask_url(value.url), into=into)


def _kept_words(log: m.LogSource | m.KafkaSource) -> str:
    match log:
        case m.LogSource(path=path):
            return f"the embedded log {path}"
        case m.KafkaSource(servers=servers, topic=topic, options=options):
            return f"the Kafka topic {topic} at {servers}" + "".join(f", {name}={value}" for name, value in options)
        case _:
            assert_never(log)


def _tables_words(source: m.PostgresCdcSource) -> str:
    return f"the table{'s' * (len(source.names) > 1)} {', '.join(source.names)}"


_LONGEST_NAME = 63
_SLOT_NAME = re.compile(r"[a-z0-9_]+")


def _findings(source: m.PostgresCdcSource) -> Iterator[Finding]:
    yield from settings.url_findings(source.url)
    if not source.tables and not source.table.strip():
        yield error("table", "is empty; name the table, with its schema if that is not in the search_path")
    yield from _tables_findings(source)
    match source.into:
        case m.LogSource(path=path):
            if not path:
                yield error("log", "is empty; name the folder in which changes of the table are kept")
        case m.KafkaSource(servers=servers, topic=topic, options=options):
            yield from settings.broker_findings(servers)
            yield from settings.topic_findings(topic, settings.LONGEST_TOPIC - len(".position"))
            yield from settings.option_findings(options, CDC_OPTIONS)
        case _:
            assert_never(source.into)
    if len(set(source.key)) < len(source.key):
        yield error("key", "has a column twice; keep one of them")
    if source.slot is not None and (not _SLOT_NAME.fullmatch(source.slot) or len(source.slot) > _LONGEST_NAME):
        message = f"{source.slot!r} must be at most {_LONGEST_NAME} lower-case letters, digits and '_'"
        yield error("slot", message)
    if source.publication is not None and not 0 < len(source.publication) <= _LONGEST_NAME:
        yield error("publication", f"{source.publication!r} must have 1 to {_LONGEST_NAME} characters")


def _tables_findings(source: m.PostgresCdcSource) -> Iterator[Finding]:
    seen: list[tuple[str | None, str]] = []
    for index, text in enumerate(source.tables):
        try:
            schema, name = m.table_name(text)
        except PipelineError as exc:
            yield error(f"tables.{index}", exc.message)
            continue
        if any(name == other and (schema is None or before in {None, schema}) for before, other in seen):
            yield error(f"tables.{index}", f"there are two tables {name!r}; give each its schema, or keep one of them")
        seen.append((schema, name))
    if source.tables and not isinstance(source.into, m.LogSource):
        yield error("topic", "keeps the changes of one table; keep those of several tables in a `log`")


def _dataset(source: m.PostgresCdcSource) -> tuple[str, str]:
    found: tuple[str, str] = load("windrow.connectors.postgres.client:source_dataset")(
        source.url, ", ".join(source.names)
    )
    return found


POSTGRES_CDC = Connector(
    SourceConnector(
        (m.PostgresCdcSource,),
        _PostgresCdcSection(
            "wr.postgres_cdc",
            _postgres_cdc,
            (
                Key(
                    "url",
                    TEXT,
                    "the primary itself; otherwise as for the sink.",
                    required=True,
                    positional=True,
                    mask=mask_url,
                ),
                Key(
                    "table",
                    TEXT,
                    'the table, as SQL names it: `orders`, `shop.orders`, `"Orders"`.',
                    note="or `tables`",
                ),
                Key(
                    "tables",
                    NAMES,
                    "several tables instead, with one slot and one `log`; streams with `changes` read them.",
                    default=(),
                    note="or `table`",
                ),
                Key(
                    "log",
                    TEXT,
                    "the folder of the embedded log that keeps the changes; created if it does not exist.",
                    note="or `servers` and `topic`",
                ),
                Key(
                    "servers",
                    TEXT,
                    "the brokers of a topic that keeps the changes instead, as for `kafka`.",
                    note="or `log`",
                ),
                Key(
                    "topic",
                    TEXT,
                    "the topic; created if it does not exist, with the broker's default number of partitions and "
                    "unlimited retention. Its companion is `TOPIC.position`.",
                    note="or `log`",
                ),
                replace(OPTIONS_KEY, doc="as for [`kafka`](../connectors/kafka.md#source)."),
                Key(
                    "key",
                    NAMES,
                    "the columns that identify a row: an update that changes one of them is a deletion and an "
                    "insertion. By default, the primary key, or the index of the table's `REPLICA IDENTITY`.",
                    default=(),
                ),
                Key(
                    "slot",
                    TEXT,
                    "the name of the replication slot that the run creates, by default `windrow_`, the table's name "
                    "and random digits.",
                ),
                Key(
                    "publication",
                    TEXT,
                    "a publication that includes the table. By default, the run creates one with the slot's name, for "
                    "which its role must own the table.",
                ),
            ),
            parts=_postgres_cdc_parts,
            conflict=_postgres_cdc_conflict,
        ),
        lambda source: (
            f"{_tables_words(source)} in PostgreSQL {source.url}, whose changes are in {_kept_words(source.into)}"
        ),
        "[a table of a PostgreSQL database](../connectors/postgres.md#changes-of-a-table), by logical replication: its "
        "rows when the source is first used, then each committed change, exactly once.",
        dataset=_dataset,
        findings=_findings,
        follower="windrow.connectors.postgres.cdc.follow:follow_tables",
        not_written=lambda source: (
            f"the log {source.label} is written by the run that follows {', '.join(source.names)}: change the row in "
            "the database instead, which adds a change"
        ),
    )
)
