"""The text of an aggregate: ``sum(price * quantity) where kind = 'buy'``, or a formula over other results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from windrow.api.calls import NAMES, call_of, make_function
from windrow.api.code_name import code_name
from windrow.errors import PipelineError
from windrow.expressions import Call, split_call
from windrow.model import Aggregate, Custom, Formula, Function

_BEGINS_AS_CALL = re.compile(r"\s*(\w+)\s*\(")
_QUOTED = re.compile(r'"((?:[^"]|"")+)"')


@dataclass(frozen=True)
class Measure:
    """What a result is computed by, before it has a name; with `where`, of some records alone."""

    function: Function
    where: str | None = None


def parse_aggregate(text: str) -> Measure:
    """Read the text of an aggregate; raise PipelineError if it is a call that is not as it should be."""
    begin = _BEGINS_AS_CALL.match(text)
    if begin is None or begin[1] not in NAMES:
        return Measure(Formula(text.strip()))
    call = split_call(text)
    if call is None:
        msg = (
            f"{text!r} is neither one aggregate ({begin[1]}(...), or {begin[1]}(...) where CONDITION) nor a formula "
            "over results: give each aggregate a name, and compute with the names, such as "
            "{total: sum(amount), events: count(), mean: total / events}"
        )
        raise PipelineError(msg)
    return Measure(make_function(call.name, [_argument(text) for text in call.arguments]), call.where)


def aggregate_text(aggregate: Aggregate) -> str:
    """Return the text that reads back as the aggregate; one in Python is told by its name."""
    where = "" if aggregate.where is None else f" where {aggregate.where}"
    match aggregate.function:
        case Formula(sql):
            return f"{sql}{where}"
        case Custom(custom, of):
            return f"custom({', '.join([code_name(custom), *map(_argument_text, of)])}){where}"
        case function:
            name, arguments = call_of(function)
            written = (_argument_text(one) if isinstance(one, str) else repr(one) for one in arguments)
            return f"{name}({', '.join(written)}){where}"


def _argument(text: str) -> str:
    """Return an argument as a model holds it: a name that cannot stand by itself is written in double quotes."""
    bare = text.strip()
    name = _unquoted(bare)
    return bare if name is None or _stands_alone(name) else name


def _argument_text(argument: str) -> str:
    if _stands_alone(argument):
        return argument
    escaped = argument.replace('"', '""')
    return f'"{escaped}"'


@lru_cache(maxsize=1024)
def _stands_alone(text: str) -> bool:
    """Whether a text between brackets is one argument, and this one, and no quoted name that could not be so."""
    inner = _unquoted(text)
    return split_call(f"f({text})") == Call("f", (text,), None) and (inner is None or _stands_alone(inner))


def _unquoted(text: str) -> str | None:
    quoted = _QUOTED.fullmatch(text)
    return quoted[1].replace('""', '"') if quoted else None
