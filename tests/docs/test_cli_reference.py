"""docs/reference/cli.md is what the commands say, and each option says something."""

from __future__ import annotations

import runpy

import click
import pytest
from tests.docs.pages import ROOT

from windrow.cli import COMMANDS, main


def test_the_page_is_what_the_commands_say() -> None:
    written = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    page = runpy.run_path(str(ROOT / "scripts" / "docs.py"))["page"]
    assert written == page(), "run `make docs`"


def test_the_page_of_python_is_what_the_docstrings_say() -> None:
    written = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    page = runpy.run_path(str(ROOT / "scripts" / "docs.py"))["python_page"]
    assert written == page(), "run `make docs`"


def test_the_guide_has_the_rules_of_doctor() -> None:
    written = (ROOT / "docs" / "guides" / "doctor.md").read_text(encoding="utf-8")
    with_rules = runpy.run_path(str(ROOT / "scripts" / "docs.py"))["with_rules"]
    assert written == with_rules(written), "run `make docs`"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_and_option_has_help(name: str) -> None:
    with click.Context(main) as top:
        command = main.get_command(top, name)
    assert command is not None
    for one in command.commands.values() if isinstance(command, click.Group) else [command]:
        assert one.help
        options = [parameter for parameter in one.params if isinstance(parameter, click.Option)]
        assert [option.opts for option in options if not option.help] == []
        assert "--json" in {name for option in options for name in option.opts}


@pytest.mark.parametrize(("script", "image"), [("picture", "watermark"), ("rooms", "architecture")])
def test_a_picture_is_what_its_script_draws(script: str, image: str) -> None:
    drawn = runpy.run_path(str(ROOT / "scripts" / f"{script}.py"))["picture"]
    assert (ROOT / "docs" / "images" / f"{image}.svg").read_text(encoding="utf-8") == drawn(), "run `make docs`"
