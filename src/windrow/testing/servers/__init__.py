"""Servers for development and tests, which end with the process that starts them."""
