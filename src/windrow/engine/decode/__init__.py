"""Decoding of raw records to Arrow columns, including derived fields, and to dead letters."""
