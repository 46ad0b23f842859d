"""The stream host, which runs on Spark Structured Streaming."""
