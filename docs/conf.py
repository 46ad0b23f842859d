"""The site made of the pages under docs/ and examples/, as `make site` builds it with Sphinx.

The pages are those that a git host shows: plain Markdown with relative links. A link to another file of the repository
is a download. The navigation is what each README.md lists, so that there is one list of pages, for both.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

ROOT = Path(__file__).parent.parent

project = "windrow"
author = "the authors of windrow"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/README"
include_patterns = ["docs/**", "examples/**", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = [".*", "bench", "build", "dist", "src", "tests"]
smartquotes = False
highlight_language = "text"
myst_heading_anchors = 6

html_theme = "pydata_sphinx_theme"
html_title = "windrow"
html_static_path = ["site/static"]
html_extra_path = ["site/index.html"]  # leads to the root page, which is docs/README.html
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # they are fetched, which browsers refuse from a folder
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "windrow"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 8,
    "show_nav_level": 1,
    "navigation_depth": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars: dict[str, list[str]] = {root_doc: []}

_LINK = re.compile(r"\[([^]]+)\]\(([^)#\s]+)\)")
_ITEM = re.compile(r"(?:\| *|[-*] +)" + _LINK.pattern)
_FOLDER_LINK = re.compile(r"(?<=\]\()([^):#\s]+)(?=\))")
_CODE_LINE = re.compile(r"(?<=\.py)#L\d+$", re.MULTILINE)
_TITLED_FENCE = re.compile(r'^( *)(```+)(\w+) title="([^"\n]+)"$', re.MULTILINE)


def prepare(app: Sphinx, page: str, source: list[str]) -> None:
    """Write what Sphinx needs of a page that a git host does not: folder links, code links, titles, navigation."""
    folder = (ROOT / page).parent

    def readme(match: re.Match[str]) -> str:
        return f"{match[0].rstrip('/')}/README.md" if (folder / match[0] / "README.md").is_file() else match[0]

    # a line of a file of code: the site has the file
    text = _FOLDER_LINK.sub(readme, _CODE_LINE.sub("", source[0]))
    if page.endswith("README"):
        text += "".join(_toctrees(page, text, set(app.project.docnames)))
    source[0] = _TITLED_FENCE.sub(r"\1\2{code-block} \3\n\1:caption: \4", text)


def _toctrees(page: str, text: str, pages: set[str]) -> Iterator[str]:
    """Yield a table of contents for each heading of a README.md under which rows of tables or items begin with pages.

    A README.md lists the pages of its folder, and those that lie directly in docs/; that of docs/ all others.
    """
    folder = page.removesuffix("README")
    for section in re.split(r"^##+ ", f"\n{text}", flags=re.MULTILINE):
        heading, *lines = section.splitlines()
        entries = []
        for label, link in (match.groups() for line in lines if (match := _ITEM.match(line))):
            target = os.path.normpath(f"{folder}{link}").removesuffix(".md")
            if target in pages and (page == root_doc or target.startswith(folder) or target.count("/") == 1):
                # a file's name says less than the page's own title
                is_file = label.rstrip("/") == link.removesuffix("/README.md")
                entries.append(f"/{target}" if is_file or label.endswith(".md") else f"{label} </{target}>")
        if entries:
            caption = [f":caption: {heading.strip()}"] if heading.strip() else []
            yield "\n".join(["", "```{toctree}", ":hidden:", *caption, "", *entries, "```", ""])


def check_listed_once(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of pages that two README.md list; Sphinx itself warns of those that none lists."""
    del app
    listed = Counter(page for pages in env.toctree_includes.values() for page in pages)
    for page, number in listed.items():
        if number > 1:
            by = [readme for readme, pages in env.toctree_includes.items() if page in pages]
            logging.getLogger(__name__).warning(
                "the navigation has this page twice, by %s", ", ".join(by), location=page
            )


def setup(app: Sphinx) -> None:
    """Connect to Sphinx."""
    app.connect("source-read", prepare)
    app.connect("env-check-consistency", check_listed_once)
