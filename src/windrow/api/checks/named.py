"""What rules ask about the names in a pipeline."""

from __future__ import annotations

import difflib
import re
from typing import assert_never

from windrow.model import (
    AnyPipeline,
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    BoolAnd,
    BoolOr,
    CollectList,
    CollectSet,
    Count,
    CountDistinct,
    Custom,
    DataType,
    First,
    Formula,
    Function,
    Last,
    Max,
    Min,
    ProcessPipeline,
    Quantile,
    Sink,
    SqliteSink,
    Stddev,
    Sum,
    TopK,
    Variance,
)

_WORD = re.compile(r"[^\W\d]\w*")


def decoded_type(pipeline: AnyPipeline, name: str) -> DataType | None:
    """Return the type of a decoded field, or None if there is no such field."""
    return next((field.type for field in pipeline.decode.fields if field.name == name), None)


def is_field(pipeline: AnyPipeline, name: str) -> bool:
    """Whether it is the name of a field, decoded or derived."""
    return name in _fields(pipeline)


def is_misspelt(pipeline: AnyPipeline, text: str) -> bool:
    """Whether a text can only be meant as a field's name, and is none."""
    return _WORD.fullmatch(text) is not None and not is_field(pipeline, text)


def no_field(pipeline: AnyPipeline, name: str) -> str:
    """Return the message that `name` is no field, or no decoded one."""
    if is_field(pipeline, name):
        return f"{name!r} is a derived field; name one of decode"
    close = difflib.get_close_matches(name, _fields(pipeline), n=1)
    hint = f"did you mean {close[0]!r}?" if close else "add it there with its type"
    return f"{name!r} is not a field of decode; {hint}"


def arguments(function: Function) -> tuple[str, ...]:
    """Return the fields or expressions that an aggregate is over."""
    match function:
        case Count() | Formula():
            return ()
        case Custom(_, of):
            return of
        case (
            Sum(of)
            | Min(of)
            | Max(of)
            | Avg(of)
            | CountDistinct(of)
            | ApproxCountDistinct(of)
            | Quantile(of)
            | ApproxQuantile(of)
            | TopK(of)
            | First(of)
            | Last(of)
            | CollectList(of)
            | CollectSet(of)
            | Variance(of)
            | Stddev(of)
            | BoolAnd(of)
            | BoolOr(of)
        ):
            return (of,)
        case _:
            assert_never(function)


def sink_path(sink: Sink) -> str:
    """Return the path of the sink's own mapping."""
    return "sink.sqlite" if isinstance(sink, SqliteSink) else "sink.postgres"


def is_name(text: str) -> bool:
    """Whether a text can name a field or a column: printable, and without blanks around it."""
    return bool(text) and text.isprintable() and text == text.strip()


def results(pipeline: AnyPipeline) -> list[tuple[str, str]]:
    """Return the columns of a pipeline's results: where each is declared, and its name."""
    if isinstance(pipeline, ProcessPipeline):
        return [(f"process.returns.{field.name}", field.name) for field in pipeline.process.returns]
    return [(f"aggregate.{aggregate.name}", aggregate.name) for aggregate in pipeline.aggregates]


def _fields(pipeline: AnyPipeline) -> list[str]:
    return [field.name for field in pipeline.decode.fields] + [derived.name for derived in pipeline.derive]
