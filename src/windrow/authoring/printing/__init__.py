"""Print a pipeline as text, YAML, JSON, Python or a flowchart; secrets are masked in all of these forms."""

from windrow.authoring.printing.flowchart import node_text, to_mermaid
from windrow.authoring.printing.plain import to_dict, to_json, to_yaml
from windrow.authoring.printing.python import to_python_file
from windrow.authoring.printing.svg import to_svg
from windrow.authoring.printing.text import to_text

__all__ = [
    "node_text",
    "to_dict",
    "to_json",
    "to_mermaid",
    "to_python_file",
    "to_svg",
    "to_text",
    "to_yaml",
]
