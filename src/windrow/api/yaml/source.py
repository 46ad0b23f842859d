"""The `source` section."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from windrow.api.yaml.fields import Fields, read_one_of
from windrow.api.yaml.spot import Spot
from windrow.model import KafkaSource, LogSource, Source

_START: tuple[Literal["earliest", "latest"], ...] = ("earliest", "latest")


def read_source(spot: Spot) -> Source:
    """Read ``{log: {path: ...}}`` or ``{kafka: {servers: ..., topic: ..., start: ..., options: {...}}}``."""
    return read_one_of(spot, "source", _KINDS)


def _log(spot: Spot) -> LogSource:
    fields = Fields(spot, ("path",))
    path = fields.required("path", Spot.text)
    fields.check()
    return LogSource(path.value)


def _kafka(spot: Spot) -> KafkaSource:
    fields = Fields(spot, ("servers", "topic", "start", "options"))
    servers = fields.required("servers", Spot.text)
    topic = fields.required("topic", Spot.text)
    start = fields.optional("start", lambda entry: entry.choice(_START), KafkaSource.start)
    options = fields.optional("options", _options, ())
    fields.check()
    return KafkaSource(servers.value, topic.value, start.value, options.value)


def _options(spot: Spot) -> tuple[tuple[str, str], ...]:
    fields = Fields(spot)
    options = [(name, fields.attempt(Spot.text, entry)) for name, entry in fields]
    fields.check()
    return tuple((name, option.value) for name, option in options)


_KINDS: dict[str, Callable[[Spot], Source]] = {"log": _log, "kafka": _kafka}
