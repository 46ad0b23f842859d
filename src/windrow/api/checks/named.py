"""What rules ask about the names in a pipeline."""

from __future__ import annotations

import difflib

from windrow.model import Aggregate, Count, DataType, KafkaSource, Pipeline, Sink, Source, SqliteSink


def type_of(pipeline: Pipeline, name: str) -> DataType | None:
    """Return the type of a decoded field, or None if there is no such field."""
    return next((field.type for field in pipeline.decode.fields if field.name == name), None)


def no_field(pipeline: Pipeline, name: str) -> str:
    """Return the message that `name` is no decoded field."""
    names = [field.name for field in pipeline.decode.fields]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "add it there with its type"
    return f"{name!r} is not a field of decode; {hint}"


def field_of(aggregate: Aggregate) -> str | None:
    """Return the field that an aggregate is over; count has none."""
    return None if isinstance(aggregate.function, Count) else aggregate.function.of


def sink_path(sink: Sink) -> str:
    """Return the path of the sink's own mapping."""
    return "sink.sqlite" if isinstance(sink, SqliteSink) else "sink.postgres"


def source_path(source: Source) -> str:
    """Return the path of the source's own mapping."""
    return "source.kafka" if isinstance(source, KafkaSource) else "source.log"


def is_name(text: str) -> bool:
    """Whether a text can name a field or a column: printable, and without blanks around it."""
    return bool(text) and text.isprintable() and text == text.strip()
