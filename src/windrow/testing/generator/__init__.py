"""Makes event logs, the same for the same seed: purchases, some late or malformed; Nexmark's; card fraud."""

from windrow.testing.generator.events import generate
from windrow.testing.generator.kafka import write_kafka
from windrow.testing.generator.log import write_log
from windrow.testing.generator.spec import AnySpec, FraudSpec, LivePace, LogSpec, Made, NexmarkSpec

__all__ = [
    "AnySpec",
    "FraudSpec",
    "LivePace",
    "LogSpec",
    "Made",
    "NexmarkSpec",
    "generate",
    "write_kafka",
    "write_log",
]
