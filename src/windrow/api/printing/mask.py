"""Secrets, taken out of what is shown."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeVar, assert_never

from windrow.model import AnyPipeline, KafkaSource, LogSource, PostgresSink, SqliteSink
from windrow.model.secret import is_reference

MASK = "***"
# up to the last @: a password with a slash, a question mark or an @ in it is masked whole
_USERINFO = re.compile(r"^([^:/?]+://[^:@/]*:)(.+)@", re.DOTALL)
_PARAMETER = re.compile(r"([?&](?:ssl)?password=)([^&]+)", re.IGNORECASE)
_SECRET_OPTION = re.compile(r"password|secret|jaas|token|credential|private|keystore\.key|pem$", re.IGNORECASE)

P = TypeVar("P", bound=AnyPipeline)


def masked(pipeline: P) -> P:
    """Return the pipeline with *** for the passwords in it."""
    return replace(pipeline, source=_source(pipeline.source), sink=_sink(pipeline.sink))


def mask_url(url: str) -> str:
    """Return a database URL with *** for the password, in the address or among the parameters.

    A reference (``${NAME}``) is no secret: it stays.
    """
    return _USERINFO.sub(lambda match: f"{_hidden(match)}@", _PARAMETER.sub(_hidden, url))


def _hidden(match: re.Match[str]) -> str:
    return match[1] + (match[2] if is_reference(match[2]) else MASK)


def mask_option(name: str, value: str) -> str:
    """Return a consumer option's value, or *** if its name says that it is secret."""
    return MASK if _SECRET_OPTION.search(name) and not is_reference(value) else value


def _source(source: LogSource | KafkaSource) -> LogSource | KafkaSource:
    match source:
        case LogSource():
            return source
        case KafkaSource():
            return replace(source, options=tuple((name, mask_option(name, value)) for name, value in source.options))
        case _:
            assert_never(source)


def _sink(sink: SqliteSink | PostgresSink) -> SqliteSink | PostgresSink:
    match sink:
        case SqliteSink():
            return sink
        case PostgresSink():
            return replace(sink, url=mask_url(sink.url))
        case _:
            assert_never(sink)
