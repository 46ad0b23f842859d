"""The `sink` section."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from windrow.api.yaml.fields import Fields, read_one_of
from windrow.api.yaml.key import read_names
from windrow.api.yaml.spot import Spot
from windrow.model import PostgresSink, Sink, SqliteSink

_DECIMALS: tuple[Literal["numeric", "text"], ...] = ("numeric", "text")


def read_sink(spot: Spot) -> Sink:
    """Read ``{sqlite: {path, table, key, decimals, changelog}}`` or ``{postgres: {url, table, key, changelog}}``."""
    return read_one_of(spot, "sink", _KINDS)


def _sqlite(spot: Spot) -> SqliteSink:
    fields = Fields(spot, ("path", "table", "key", "decimals", "changelog"))
    path = fields.required("path", Spot.text)
    table = fields.required("table", Spot.text)
    key = fields.optional("key", read_names, ())
    decimals = fields.optional("decimals", lambda entry: entry.choice(_DECIMALS), SqliteSink.decimals)
    changelog = fields.optional("changelog", _flag, SqliteSink.changelog)
    fields.check()
    return SqliteSink(path.value, table.value, key.value, decimals.value, changelog.value)


def _postgres(spot: Spot) -> PostgresSink:
    fields = Fields(spot, ("url", "table", "key", "changelog"))
    url = fields.required("url", Spot.text)
    table = fields.required("table", Spot.text)
    key = fields.optional("key", read_names, ())
    changelog = fields.optional("changelog", _flag, PostgresSink.changelog)
    fields.check()
    return PostgresSink(url.value, table.value, key.value, changelog.value)


def _flag(spot: Spot) -> bool:
    return spot.choice(("true", "false")) == "true"


_KINDS: dict[str, Callable[[Spot], Sink]] = {"sqlite": _sqlite, "postgres": _postgres}
