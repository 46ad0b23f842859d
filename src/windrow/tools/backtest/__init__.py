"""Backtests of rules."""
