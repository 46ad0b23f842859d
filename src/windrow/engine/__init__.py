"""The engine: watermarks, operators and their state, computed on Arrow columns without Spark."""
