"""Servers for play and for tests, which end with the process that starts them."""
