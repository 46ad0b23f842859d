"""Two ways to write a pipeline, fluent stages and YAML, and how it prints back."""
