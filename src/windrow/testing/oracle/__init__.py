"""The definition of a pipeline's results, record by record, in the most obvious plain Python.

It is slow, and shares no code with the operators: property tests compare them with it.
"""

from windrow.testing.oracle.answer import Answer, Change, Journal, LogRecord, Missed
from windrow.testing.oracle.definition import differences, run

__all__ = ["Answer", "Change", "Journal", "LogRecord", "Missed", "differences", "run"]
