"""Aggregates: the SQL that creates, merges and finishes accumulators, for operators to compose."""
