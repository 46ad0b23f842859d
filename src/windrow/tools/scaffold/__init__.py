"""A first pipeline for a log of JSON records: its types, event time, key and delay, as a sample of records has them."""
