"""The YAML form of a pipeline."""

from windrow.api.yaml.compose import compose
from windrow.api.yaml.problems import ManyProblemsError, each_error
from windrow.api.yaml.sections import Sections, read_sections

__all__ = ["ManyProblemsError", "Sections", "compose", "each_error", "read_sections"]
