"""Drafts a first pipeline for JSON records, with types, event time, key and delay inferred from a sample."""
