"""The `derive` section."""

from __future__ import annotations

from windrow.api.yaml.spot import Spot
from windrow.api.yaml.texts import read_texts
from windrow.model import Derive


def read_derive(spot: Spot) -> tuple[Derive, ...]:
    """Read ``{domain: "split_part(url, '/', 3)"}``."""
    return tuple(Derive(name, sql) for name, sql in read_texts(spot, str.strip))
