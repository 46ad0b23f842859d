"""The pages, and what is in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")],
)
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_OF = re.compile(r"# (\w+\.yaml)\n")
LEFT_OUT = "# ...\n"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `language` is what stands behind the fence."""

    page: Path
    number: int
    language: str
    text: str

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
    return [block for page in PAGES for block in _blocks(page) if block.language in languages]


def _blocks(page: Path) -> Iterator[Block]:
    for number, match in enumerate(_FENCE.finditer(page.read_text(encoding="utf-8"))):
        yield Block(page, number, match[2], match[3])


def commands() -> list[tuple[Path, list[str]]]:
    """Return every command line of windrow that a page shows, as words."""
    found = []
    for block in blocks("", "sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            words = line.partition("#")[0].removeprefix("$ ").split()
            if words[:1] == ["windrow"] and "[OPTIONS]" not in words:
                found.append((block.page, words[1:]))
    return found
