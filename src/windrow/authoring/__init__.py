"""Ways to write a pipeline, fluent and YAML; its checks; and how it is printed."""
