"""Alerts: conditions of a run, and their delivery."""
