"""Connectors: one package for each system that windrow reads records from or writes rows to."""
