"""The `decode` section."""

from __future__ import annotations

import re

from windrow.api.yaml.fields import Fields
from windrow.api.yaml.spot import Spot
from windrow.errors import PipelineError
from windrow.model import DataType, Decode, Field, parse_type

_CUT = re.compile(r"decimal\s*\(\s*\d+\s*")
_REST = re.compile(r"\s*\d+\s*\)")


def read_decode(spot: Spot) -> Decode:
    """Read ``{user: string, amount: "decimal(12,2)"}``."""
    fields = Fields(spot)
    types = []
    cut = False
    for name, entry in fields:
        if cut and _REST.fullmatch(name):
            continue  # told already, with the first half
        cut = bool(entry.is_scalar and _CUT.fullmatch(entry.node.value))
        types.append((name, fields.attempt(_read_type, entry)))
    fields.check()
    return Decode(tuple(Field(name, type_.value) for name, type_ in types))


def _read_type(spot: Spot) -> DataType:
    return spot.parsed(_parse_whole_type)


def _parse_whole_type(text: str) -> DataType:
    if _CUT.fullmatch(text):
        msg = 'a comma ends a value within {...}; put the type in quotes: "decimal(12,2)"'
        raise PipelineError(msg)
    return parse_type(text)
