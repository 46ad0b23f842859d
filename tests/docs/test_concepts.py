"""The pages of concepts: each is in the index, and each story beside them holds, and is shown or named by its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, blocks

import windrow as wr
from windrow.expressions import is_window_spec
from windrow.testing.plugin import check_story
from windrow.testing.transcript import read_story

CONCEPTS = ROOT / "docs" / "concepts"
INDEX = CONCEPTS / "README.md"
STORIES = sorted(CONCEPTS.glob("*.yaml"))
WITHOUT_STORY = {"a-record.md", "architecture.md", "data-loss.md", "hosts.md", "steps.md"}
EXPLAINED = re.compile(r"# Explained in (\S+\.md)\. Run it: windrow transcript docs/concepts/(\S+) --rebatch (\d+)")


def stories_of(page: Path) -> set[Path]:
    """Return the stories that a page shows a part of, or links to."""
    shown = {block.excerpt_of for block in blocks("yaml") if block.page == page and block.excerpt_of}
    return shown | {CONCEPTS / name for name in re.findall(r"\]\((\w+\.yaml)\)", page.read_text(encoding="utf-8"))}


def test_the_index_has_every_page() -> None:
    linked = set(re.findall(r"^- \[(\S+\.md)\]\(\1\):", INDEX.read_text(encoding="utf-8"), re.MULTILINE))
    assert linked == {page.name for page in CONCEPTS.glob("*.md")} - {INDEX.name}


def test_the_index_of_comparisons_links_to_each_page_beside_it() -> None:
    index = ROOT / "docs" / "compare" / "README.md"
    linked = set(re.findall(r"\]\((\w[\w-]*\.md)\)", index.read_text(encoding="utf-8")))
    assert linked == {page.name for page in index.parent.glob("*.md")} - {index.name}


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.name)
def test_a_story_holds_and_names_its_page_which_has_it(story: Path) -> None:
    first, _, _ = story.read_text(encoding="utf-8").partition("\n")
    told = EXPLAINED.fullmatch(first)
    assert told is not None, f"{story.name} must begin as {EXPLAINED.pattern}"
    page, named, rebatch = CONCEPTS / told[1], told[2], int(told[3])
    assert named == story.name
    assert story in stories_of(page)
    check_story(story, rebatch=rebatch)


@pytest.mark.parametrize("page", sorted(CONCEPTS.glob("*.md")), ids=lambda path: path.name)
def test_a_page_has_a_story_or_code(page: Path) -> None:
    code = [block for block in blocks("python") if block.page == page]
    assert bool(stories_of(page) or code) is (page.name not in WITHOUT_STORY)


FLUENT = [
    (page, code)
    for page in sorted({block.page for block in blocks("yaml") if block.excerpt_of})
    for code in re.findall(r"`(?:\w+=)?(wr\.\w+\([^`]*\))`", page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("page", "code"), FLUENT, ids=lambda value: value if isinstance(value, str) else value.name)
def test_the_python_of_a_line_means_what_the_page_has_in_its_story(page: Path, code: str) -> None:
    said = eval(code, {"wr": wr})  # noqa: S307 - the page's own code
    stories = {block.excerpt_of for block in blocks("yaml") if block.page == page and block.excerpt_of}
    specs = [read_story(story).streams[""] for story in stories]
    assert said in [
        part
        for spec in specs
        if is_window_spec(spec)
        for part in (spec.node.window, spec.node.emit.early, spec.node.emit.late, spec.time.watermark)
    ]


def test_there_is_python_of_a_line() -> None:
    assert FLUENT
