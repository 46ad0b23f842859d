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
    """Read ``{sqlite: {path, table, key, decimals}}`` or ``{postgres: {url, table, key}}``."""
    return read_one_of(spot, "sink", _KINDS)


def _sqlite(spot: Spot) -> SqliteSink:
    fields = Fields(spot, ("path", "table", "key", "decimals"))
    path = fields.required("path", Spot.text)
    table = fields.required("table", Spot.text)
    key = fields.optional("key", read_names, ())
    decimals = fields.optional("decimals", lambda entry: entry.choice(_DECIMALS), SqliteSink.decimals)
    fields.check()
    return SqliteSink(path.value, table.value, key.value, decimals.value)


def _postgres(spot: Spot) -> PostgresSink:
    fields = Fields(spot, ("url", "table", "key"))
    url = fields.required("url", Spot.text)
    table = fields.required("table", Spot.text)
    key = fields.optional("key", read_names, ())
    fields.check()
    return PostgresSink(url.value, table.value, key.value)


_KINDS: dict[str, Callable[[Spot], Sink]] = {"sqlite": _sqlite, "postgres": _postgres}
