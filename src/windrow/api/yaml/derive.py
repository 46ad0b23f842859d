"""The `derive` section."""

from __future__ import annotations

from windrow.api.yaml.fields import Fields
from windrow.api.yaml.spot import Spot
from windrow.model import Derive


def read_derive(spot: Spot) -> tuple[Derive, ...]:
    """Read ``{domain: "split_part(url, '/', 3)"}``."""
    fields = Fields(spot)
    texts = [(name, fields.attempt(Spot.text, entry)) for name, entry in fields]
    fields.check()
    return tuple(Derive(name, text.value.strip()) for name, text in texts)
