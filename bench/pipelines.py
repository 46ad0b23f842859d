"""The main job as a pipeline's text: sums and counts of purchases by user and window."""

from __future__ import annotations

UNUSED_LOG, UNUSED_SINK = "{log: {path: unused}}", "{sqlite: {path: unused.db, table: unused}}"
"""For those who give the records, or take the results, themselves."""


def main_job(
    source: str = UNUSED_LOG,
    sink: str = UNUSED_SINK,
    *,
    time: str = "delay: 10m, future: 1h",
    window: str = "{tumbling: 5m}",
    aggregate: str = "total: sum(amount), events: count()",
    emit: str = "lateness: 1h, late: each, mode: retract",
    **settings: int,
) -> str:
    """Return the YAML; `time`, `aggregate` and `emit` stand between braces, further settings each on a line."""
    more = "".join(f"{name}: {value}\n" for name, value in settings.items())
    return f"""\
name: user-spend
source: {source}
decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}}
time: {{field: event_time, {time}}}
key: [user_id]
window: {window}
aggregate: {{{aggregate}}}
emit: {{{emit}}}
sink: {sink}
{more}"""


def from_kafka(servers: str, topic: str) -> str:
    """Return a topic as a source."""
    return f'{{kafka: {{servers: "{servers}", topic: {topic}}}}}'


def from_log(path: object) -> str:
    """Return an embedded log as a source."""
    return f"{{log: {{path: {path}}}}}"


def into_sqlite(path: object, table: str) -> str:
    """Return a table of a file as a sink."""
    return f"{{sqlite: {{path: {path}, table: {table}}}}}"


def into_postgres(url: str, table: str) -> str:
    """Return a table of a database as a sink."""
    return f'{{postgres: {{url: "{url}", table: {table}}}}}'
