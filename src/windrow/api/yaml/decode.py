"""The `decode` section."""

from __future__ import annotations

import re
from functools import partial

from windrow.api.yaml.fields import Fields
from windrow.api.yaml.spot import Spot
from windrow.errors import PipelineError
from windrow.model import DataType, Decode, Field, parse_field_type

_CUT = re.compile(r"decimal\s*\(\s*\d+\s*")
_REST = re.compile(r"\s*\d+\s*\)\??")


def read_decode(spot: Spot) -> Decode:
    """Read ``{user: string, country: "string?", amount: {type: "decimal(12,2)", alias: [amt]}}``."""
    fields = Fields(spot)
    read = []
    cut = False
    for name, entry in fields:
        if cut and _REST.fullmatch(name):
            continue  # told already, with the first half
        cut = bool(entry.is_scalar and _CUT.fullmatch(entry.node.value))
        read.append(fields.attempt(partial(_read_field, name), entry))
    fields.check()
    return Decode(tuple(field.value for field in read))


def _read_field(name: str, spot: Spot) -> Field:
    if not spot.is_mapping:
        return Field(name, *spot.parsed(_parse_whole_type))
    fields = Fields(spot, ("type", "alias"))
    type_ = fields.required("type", lambda one: one.parsed(_parse_whole_type), 'such as type: "decimal(12,2)"')
    alias = fields.optional("alias", lambda one: one.each(Spot.text), ())
    fields.check()
    return Field(name, *type_.value, alias.value)


def _parse_whole_type(text: str) -> tuple[DataType, bool]:
    if _CUT.fullmatch(text):
        msg = 'a comma ends a value within {...}; put the type in quotes: "decimal(12,2)"'
        raise PipelineError(msg)
    return parse_field_type(text)
