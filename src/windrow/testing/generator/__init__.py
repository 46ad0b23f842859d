"""Makes event logs, the same for the same seed: purchases, out of order, some late, some malformed; or Nexmark's."""

from windrow.testing.generator.events import generate
from windrow.testing.generator.kafka import write_kafka
from windrow.testing.generator.log import write_log
from windrow.testing.generator.spec import LivePace, LogSpec, Made, NexmarkSpec

__all__ = ["LivePace", "LogSpec", "Made", "NexmarkSpec", "generate", "write_kafka", "write_log"]
