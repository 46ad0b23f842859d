"""The `aggregate` section."""

from __future__ import annotations

import re

from windrow.api.yaml.fields import Fields
from windrow.api.yaml.spot import Spot
from windrow.errors import PipelineError
from windrow.model import Aggregate, Avg, Count, Function, Max, Min, Sum

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_OF_A_FIELD: dict[str, type[Sum | Min | Max | Avg]] = {"sum": Sum, "min": Min, "max": Max, "avg": Avg}


def read_aggregates(spot: Spot) -> tuple[Aggregate, ...]:
    """Read ``{total: sum(amount), events: count()}``."""
    fields = Fields(spot)
    functions = [(name, fields.attempt(lambda entry: entry.parsed(parse_function), entry)) for name, entry in fields]
    fields.check()
    return tuple(Aggregate(name, function.value) for name, function in functions)


def parse_function(text: str) -> Function:
    """Read ``count()`` or ``sum(field)``; raise PipelineError for anything else."""
    call = _CALL.fullmatch(text)
    name, field = (call[1], call[2].strip()) if call else ("", "")
    if name == "count" and not field:
        return Count()
    if name == "count":
        msg = f"{text!r}: count() counts records and takes no field"
        raise PipelineError(msg)
    if name in _OF_A_FIELD and field:
        return _OF_A_FIELD[name](field)
    if name in _OF_A_FIELD:
        msg = f"{text!r} needs a field, such as {name}(amount)"
        raise PipelineError(msg)
    msg = f"{text!r} is not an aggregate; write count(), sum(FIELD), min(FIELD), max(FIELD) or avg(FIELD)"
    raise PipelineError(msg)
