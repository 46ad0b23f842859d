"""Command lines that messages advise, as one types them where a pipeline runs."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

from windrow.errors import HIDDEN_VALUES


def shell_word(text: str) -> str:
    """Return a text as a word of a command line; a shell puts in the value of a variable that is hidden in it."""
    if not HIDDEN_VALUES.are_in(text):
        return shlex.quote(text)
    return f'"{HIDDEN_VALUES.hide(_SPECIAL.sub(_ESCAPED, text))}"'


_SPECIAL: Final = re.compile(r'(["\\$`])')
_ESCAPED: Final = r"\\\1"


@dataclass(frozen=True)
class CommandLines:
    """Command lines for a pipeline by its `file`, and its `checkpoint` as named there: empty is the default one.

    `given` are options that the file is read with.
    """

    file: str
    checkpoint: str = ""
    given: str = ""

    def of(self, words: str) -> str:
        """Return ``windrow COMMAND FILE OPTIONS`` for ``COMMAND OPTIONS``; ``{c}`` is the option for the checkpoint."""
        name, _, options = words.partition(" ")
        option = f"--checkpoint {shell_word(self.checkpoint)}" if self.checkpoint else ""
        given = options.replace("{c}", option).strip()
        return " ".join(filter(None, ["windrow", name, self.pipeline, given]))

    @property
    def pipeline(self) -> str:
        """The file with the options that it is read with, as words of a command line."""
        return " ".join(filter(None, [shell_word(self.file), self.given]))


PLACEHOLDER: Final = CommandLines("PIPELINE")
"""Those of a pipeline that no file has, or of a file that is not known."""
