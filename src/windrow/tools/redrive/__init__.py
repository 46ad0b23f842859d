"""Redriving: appending dead letters to the log again."""
