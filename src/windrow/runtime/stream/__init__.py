"""The stream host: Spark Structured Streaming."""
