"""The pages, and what is in them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")],
)
_FENCE = re.compile(r"^( *)```(\w*)( [^`\n]*)?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_OF = re.compile(r"# (\w+\.yaml)\n")
LEFT_OUT = "# ...\n"


@dataclass(frozen=True)
class Block:
    """A fenced block that begins in a line of a page, in a `language`; `title` is the name of the file that it is."""

    page: Path
    number: int
    language: str
    text: str
    title: str | None = None
    line: int = 0

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}-{self.number}"

    @property
    def excerpt_of(self) -> Path | None:
        """The file beside the page of which the block is a part, if its first line names one."""
        of = _OF.match(self.text) if self.language == "yaml" else None
        return self.page.parent / of[1] if of else None

    @property
    def parts(self) -> list[str]:
        """What an excerpt shows, in order; what lies between is left out."""
        return self.text.partition("\n")[2].split(LEFT_OUT)


def blocks(*languages: str) -> list[Block]:
    """Return the blocks of all pages in some languages."""
    return [block for page in PAGES for block in blocks_of(page) if block.language in languages]


def blocks_of(page: Path) -> Iterator[Block]:
    content = page.read_text(encoding="utf-8")
    for number, match in enumerate(_FENCE.finditer(content)):
        line = content.count("\n", 0, match.start()) + 1
        title = _TITLE.search(match[3] or "")
        # in a list or a tab all lines are indented
        yield Block(page, number, match[2], textwrap.dedent(match[4]), title[1] if title else None, line)


def commands() -> list[tuple[Path, list[str]]]:
    """Return every command line of windrow that a page shows, as words."""
    found = []
    for block in blocks("", "sh", "console"):
        for line in block.text.replace("\\\n", " ").splitlines():
            if block.language == "console" and not line.startswith("$ "):
                continue  # what a command gives
            words = line.partition("#")[0].removeprefix("$ ").split()
            if words[:1] == ["windrow"] and "[OPTIONS]" not in words:
                found.append((block.page, words[1:]))
    return found
