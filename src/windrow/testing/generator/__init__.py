"""Makes event logs: purchases of many users, out of order, some late, some malformed; the same for the same seed."""

from windrow.testing.generator.events import generate
from windrow.testing.generator.kafka import write_kafka
from windrow.testing.generator.log import write_log
from windrow.testing.generator.spec import LivePace, LogSpec, Made

__all__ = ["LivePace", "LogSpec", "Made", "generate", "write_kafka", "write_log"]
