"""Where the sink is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never
from urllib.parse import urlsplit

from windrow.api.checks.finding import Finding, error
from windrow.model import AnyPipeline, PostgresSink, SqliteSink
from windrow.model.secret import filled, is_reference

_SCHEMES = ("postgresql", "postgres")


def sink_address(pipeline: AnyPipeline) -> Iterator[Finding]:
    """SQLite has a file, and PostgreSQL a URL. The URL is not repeated in messages: it may hold a password."""
    match pipeline.sink:
        case SqliteSink(path):
            if not path or path.startswith(":memory:"):
                yield error("sink.sqlite.path", f"{path!r} keeps nothing; name a file, such as results.db")
        case PostgresSink(url):
            if not (is_reference(url) or _is_postgres(filled(url))):
                message = "must be a URL such as postgresql://user@host:5432/database"
                yield error("sink.postgres.url", message)
        case _:
            assert_never(pipeline.sink)


def _is_postgres(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in _SCHEMES and url.startswith(f"{parts.scheme}://")
