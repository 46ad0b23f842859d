"""Spark sessions, Python workers, and the transport of packets between them."""
