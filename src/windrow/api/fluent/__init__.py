"""The fluent form of a pipeline: stages that allow only what makes sense next."""
