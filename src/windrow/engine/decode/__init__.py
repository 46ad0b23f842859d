"""Decoding: raw records to Arrow columns, with derived fields, and to dead letters."""
