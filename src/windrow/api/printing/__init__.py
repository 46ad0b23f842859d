"""How a pipeline prints back; secrets never do."""

from windrow.api.printing.to_dict import to_dict
from windrow.api.printing.to_json import to_json
from windrow.api.printing.to_mermaid import to_mermaid
from windrow.api.printing.to_python import to_python, to_python_file
from windrow.api.printing.to_text import to_text
from windrow.api.printing.to_yaml import to_yaml

__all__ = ["to_dict", "to_json", "to_mermaid", "to_python", "to_python_file", "to_text", "to_yaml"]
