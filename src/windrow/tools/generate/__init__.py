"""Generates event logs, the same for the same seed: purchases, some late or malformed; Nexmark; card fraud."""

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
