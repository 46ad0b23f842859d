"""Command lines that messages advise, as one types them where a pipeline runs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class CommandLines:
    """Command lines for a pipeline by its `file`, and its `checkpoint` as named there: empty is the default one."""

    file: str
    checkpoint: str = ""

    def of(self, words: str) -> str:
        """Return ``windrow COMMAND FILE OPTIONS`` for ``COMMAND OPTIONS``; ``{c}`` is the option for the checkpoint."""
        name, _, options = words.partition(" ")
        option = f"--checkpoint {shlex.quote(self.checkpoint)}" if self.checkpoint else ""
        given = options.replace("{c}", option).strip()
        return " ".join(["windrow", name, shlex.quote(self.file), *([given] if given else [])])


PLACEHOLDER: Final = CommandLines("PIPELINE")
"""Those of a pipeline that no file has, or of a file that is not known."""
