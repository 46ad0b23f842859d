"""Aggregates: how an accumulator begins, merges and finishes, as SQL that operators compose."""
