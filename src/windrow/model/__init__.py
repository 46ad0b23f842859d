"""What a pipeline is: frozen dataclasses, one noun a file."""

from windrow.model.aggregate import Aggregate, Avg, Count, Function, Max, Min, Sum
from windrow.model.decode import Decode, Field
from windrow.model.duration import format_duration, parse_duration
from windrow.model.emit import Emit
from windrow.model.pipeline import DEFAULT_KEY_GROUPS, Pipeline
from windrow.model.sink import PostgresSink, Sink, SqliteSink
from windrow.model.source import KafkaSource, LogSource, Source
from windrow.model.time import Delay, EventTime, Punctuated, Watermark
from windrow.model.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    TimestampType,
    parse_type,
)
from windrow.model.window import Tumbling, Window

__all__ = [
    "DEFAULT_KEY_GROUPS",
    "Aggregate",
    "Avg",
    "BooleanType",
    "Count",
    "DataType",
    "DecimalType",
    "Decode",
    "Delay",
    "DoubleType",
    "Emit",
    "EventTime",
    "Field",
    "Function",
    "KafkaSource",
    "LogSource",
    "LongType",
    "Max",
    "Min",
    "Pipeline",
    "PostgresSink",
    "Punctuated",
    "Sink",
    "Source",
    "SqliteSink",
    "StringType",
    "Sum",
    "TimestampType",
    "Tumbling",
    "Watermark",
    "Window",
    "format_duration",
    "parse_duration",
    "parse_type",
]
