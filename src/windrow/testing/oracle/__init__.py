"""Defines the results of a pipeline, record by record, in the most straightforward Python.

The oracle is slow and shares no code with the operators; property tests compare the operators with it.
"""

from windrow.testing.oracle.answer import Answer, Change, Journal, LogRecord, Missed
from windrow.testing.oracle.definition import differences, run

__all__ = ["Answer", "Change", "Journal", "LogRecord", "Missed", "differences", "run"]
