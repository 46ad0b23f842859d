"""Generates reproducible event logs: purchases, some of them late or malformed; the Nexmark benchmark; card fraud."""

from windrow.tools.generate.events import generate
from windrow.tools.generate.kafka import write_kafka
from windrow.tools.generate.log import write_log
from windrow.tools.generate.spec import AnySpec, FraudSpec, LivePace, LogCounts, LogSpec, NexmarkSpec

__all__ = [
    "AnySpec",
    "FraudSpec",
    "LivePace",
    "LogCounts",
    "LogSpec",
    "NexmarkSpec",
    "generate",
    "write_kafka",
    "write_log",
]
