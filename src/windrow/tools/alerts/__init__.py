"""Alert conditions of a run, and alert delivery."""
