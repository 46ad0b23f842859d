"""Plan of the capacity that a pipeline needs under a load: its load, what is expected of it, and the laws."""
