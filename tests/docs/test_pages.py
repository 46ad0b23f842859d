"""Pages: their links lead somewhere, their commands exist, and their stories and pipelines hold."""

from __future__ import annotations

import dataclasses
import re
import runpy
from pathlib import Path

import click
import pytest
import yaml
from tests.docs.pages import PAGES, ROOT, Block, blocks, commands

import windrow as wr
from windrow.authoring.checks import require_valid
from windrow.authoring.pipeline_file import read_document
from windrow.cli import main
from windrow.expressions.streams import Stream
from windrow.testing.plugin import check_story

EXCERPTS = [block for block in blocks("yaml") if block.excerpt_of]
YAML = [block for block in blocks("yaml") if not block.excerpt_of and block.title is None]
WIDEST = 120


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def page_id(value: object) -> str:
    """A page's path in the repository: the id of a test is the same in every checkout, as its duration has it."""
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else ""


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    for link in links:
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{link} has no such heading"


def test_links_to_code_lead_to_the_lines_of_their_names() -> None:
    with_code_lines = runpy.run_path(str(ROOT / "scripts" / "docs.py"))["with_code_lines"]
    page = ROOT / "docs" / "concepts" / "a-record.md"
    text = page.read_text(encoding="utf-8")
    assert with_code_lines(text) == text, "run `make docs`"
    names = re.findall(r"\[(`[\w.]+`)\](?!:)", text)
    assert set(names) == set(re.findall(r"^\[(`[\w.]+`)\]: ", text, re.MULTILINE))


def test_the_contract_of_a_stream_has_each_of_its_fields() -> None:
    text = (ROOT / "docs" / "concepts" / "a-record.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(Stream))


def test_files_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./]+(?:\.(?:py|yaml|md|xml|toml|lock)|/))`", text))
    folders = ("src", "tests", "docs", "bench", "requirements")
    found = [f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*")]
    found += [f"/{path.name}" for path in ROOT.iterdir()]
    # a capital word in a path stands for a name to choose
    missing = [name for name in named if not re.search(r"[A-Z]{4}", name.replace("CHANGELOG", ""))]
    missing = [name for name in missing if not any(path.endswith(f"/{name.rstrip('/')}") for path in found)]
    assert named
    assert missing == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent != ROOT or page.name == "README.md"], ids=page_id
)
def test_lines_are_short(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    long = [number for number, line in enumerate(lines, 1) if len(line) > WIDEST]
    # a row of a table cannot be wrapped, and those of the terms and the rules explain
    explains = page.name in {"terms.md", "doctor.md"}
    assert [number for number in long if not explains or not lines[number - 1].startswith("| ")] == []


@pytest.mark.parametrize(("page", "words"), commands(), ids=page_id)
def test_commands_and_their_options_exist(page: Path, words: list[str]) -> None:
    del page
    if words == ["COMMAND", "--help"]:
        return
    # click keeps a command's help option from the first context that asks for it: this one must be as the program's
    with click.Context(main, **main.context_settings) as top:
        command = main.get_command(top, words[0])
        assert command is not None, f"there is no command {words[0]}"
        if isinstance(command, click.Group) and words[1:]:
            command = command.commands[words[1]]
        context = click.Context(command, parent=top)
        known = {option for parameter in command.get_params(context) for option in parameter.opts}
    given = {word.partition("=")[0] for word in words[1:] if word.startswith("--")}
    assert given <= known


def test_there_are_commands_and_blocks_to_check() -> None:
    assert commands()
    assert YAML


@pytest.mark.parametrize("block", EXCERPTS, ids=lambda block: block.name)
def test_an_excerpt_is_in_its_file_as_it_stands(block: Block) -> None:
    assert block.excerpt_of is not None
    left = block.excerpt_of.read_text(encoding="utf-8")
    for part in block.parts:
        before, found, left = left.partition(part)
        assert found, f"{block.excerpt_of.name} has this not, or not in this place:\n{part}"
        assert not before or before.endswith("\n")


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.name)
def test_yaml_on_a_page_is_a_true_story_or_a_pipeline_without_errors(block: Block, tmp_path: Path) -> None:
    if "steps" in yaml.safe_load(block.text):
        story = tmp_path / "story.yaml"
        story.write_text(block.text, encoding="utf-8")
        check_story(story, rebatch=5)
    else:
        document = read_document(block.text, block.name)
        require_valid(document.pipeline, document.place)


@pytest.mark.parametrize(
    "block", [block for block in blocks("python") if block.title is None], ids=lambda block: block.name
)
def test_python_on_a_page_is_a_pipeline_and_says_the_same_as_the_yaml_before_it(block: Block) -> None:
    names: dict[str, object] = {}
    exec(compile(block.text, block.name, "exec"), names)  # noqa: S102 - the page's own code
    before = [
        other
        for other in blocks("yaml")
        if other.page == block.page and other.number < block.number and not other.excerpt_of
    ]
    pipeline = names["pipeline"]
    # to() has checked it
    assert isinstance(pipeline, wr.Pipeline)
    if before:
        assert pipeline.graph == read_document(before[-1].text, block.name).pipeline
