"""The semantics: watermarks, operators and their state over Arrow columns, without Spark."""
